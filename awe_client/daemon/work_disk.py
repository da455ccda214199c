"""The disk of the work directory, which may hang: it is asked in a thread, for which nobody waits long.

What it said last holds until it answers again.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable

from awe_client.daemon.disk import free_disk
from awe_client.daemon.identity import WorkRoot, WorkRootLost
from awe_client.daemon.own_threads import OwnThreads

log = logging.getLogger(__name__)

#: So often a living daemon touches the file `alive`, also while no server answers.
ALIVE_S = 5.0

#: What was seen so long ago still holds while nothing is told that hangs on it.
FRESH_S = 0.1


class WorkDisk:
    """How much room there is, and whether the directory is still ours; each look shows that we live, too.

    One thread for all looks: a disk that hangs costs no more, and later this machine may start no more. The
    end of the program does not wait for it.
    """

    def __init__(self, root: WorkRoot, on_change: Callable[[], None]) -> None:
        """`on_change` is called when it begins to hang, and when it answers again."""
        self._root = root
        self._on_change = on_change
        self._thread = OwnThreads(1, "work disk")
        self._looking: asyncio.Future[None] | None = None
        self._seen_at = -math.inf  #: when the last look that was answered began
        self._life_shown_at = time.monotonic()  #: the directory was just opened
        self.is_ours = True  #: as far as could be seen
        self.free_bytes = 0  #: when it answered last
        self.hangs = False

    def open(self) -> None:
        """Start the thread. Raises OSError."""
        self._thread.start_all()

    def close(self) -> None:
        """Let the thread end, whenever it can."""
        self._thread.shutdown(wait=False)

    async def look(self, within_s: float) -> None:
        """Look anew, or find that it does not answer in time; not again before it has answered."""
        if self.hangs:
            return
        try:
            async with asyncio.timeout(within_s):
                while self._looking is not None:
                    await asyncio.wait((self._looking,))  # begun before we asked
                await asyncio.wait((self._begin(),))
        except TimeoutError:
            if self._looking is not None and not self.hangs:  # else it answered at the last moment
                log.error("work_disk_hangs", extra={"path": str(self._root.path), "within_s": within_s})
                self._change(hangs=True)

    async def require_ours(self, within_s: float, *, anew: bool = True) -> None:
        """Look, unless it was just done and need not be `anew`. Raises WorkRootLost."""
        if anew or time.monotonic() - self._seen_at > FRESH_S:
            await self.look(within_s)
        if not self.is_ours:
            raise WorkRootLost(
                f"another awe-client has taken {self._root.path}, whose file `lock` was removed; "
                "this one ends"
            )

    def _begin(self) -> "asyncio.Future[None]":
        began_at = time.monotonic()
        looking = self._looking = self._thread.begin(self._ask)

        def answered(_: object) -> None:
            self._looking, self._seen_at = None, began_at
            if self.hangs:
                log.warning("work_disk_answers_again", extra={"path": str(self._root.path)})
                self._change(hangs=False)

        looking.add_done_callback(answered)
        return looking

    def _change(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self._on_change()

    # --- in the thread ---------------------------------------------------------------------------

    def _ask(self) -> None:
        with contextlib.suppress(OSError):  # the directory was given back meanwhile
            self.is_ours = self._root.is_ours()
            self.free_bytes = free_disk(self._root.path)
            if time.monotonic() - self._life_shown_at >= ALIVE_S:
                self._root.show_life()
                self._life_shown_at = time.monotonic()
