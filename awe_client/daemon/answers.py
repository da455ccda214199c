"""Work on shared file systems that is waited for only so long.

A network file system that lost its server answers nothing, and says nothing of it; what asks it hangs in the
kernel, and no signal ends it. So who asked is told after a while that there is no answer, and the thread is
left behind. One that hangs already is not asked by ever more threads.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from awe_client.sdk.download_errors import NotSeen
from shared_models.roots import root_of

T = TypeVar("T")

#: What takes longer without moving a byte has no answer.
ANSWER_S = 60.0
#: So many threads are left behind on one file system, and no more.
MAX_HUNG = 16
#: What is to be written to a disk goes at least at this pace, in bytes a second.
_FLUSH_PACE = 1_000_000


def _nothing() -> int:
    return 0


class Answers:
    """Asks the file systems at some roots, and knows where nobody answered."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._hung: dict[str, set[asyncio.Task[Any]]] = defaultdict(set)

    async def of(
        self,
        path: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        moved: Callable[[], int] = _nothing,
        flush_bytes: int = 0,
    ) -> T:
        """What the work that `work` begins gives, which is done in a thread and may be left alone.

        It may take long as long as what `moved` tells grows; and if it writes so many bytes to the disk.
        Raises NotSeen if there is no answer, and what `work` raises.
        """
        root = root_of(path, self._roots) or ""
        if len(self._hung[root]) >= MAX_HUNG:
            raise NotSeen(f"the shared file system at {root} does not answer")
        asked, last = asyncio.ensure_future(work()), -1
        try:
            while not asked.done() and moved() != last:
                last = moved()
                await asyncio.wait((asked,), timeout=ANSWER_S + flush_bytes / _FLUSH_PACE)
        finally:
            asked.add_done_callback(_heard)  # also if we are cancelled at the moment when it ends
            if not asked.done():
                self._hung[root].add(asked)
                asked.add_done_callback(self._hung[root].discard)
        if not asked.done():
            raise NotSeen(f"the shared file system at {root or os.path.dirname(path)} does not answer")
        return asked.result()


def _heard(asked: asyncio.Task[Any]) -> None:
    """Its end may come too late to be told."""
    if not asked.cancelled():
        asked.exception()
