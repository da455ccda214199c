"""What the scheduler asks for: done beside the requests, a few at a time, tried again until it is done.

An effect starts when the batch that asked for it is durable. None is ever lost: after a restart recovery asks
again. PrepareTask and FinishTask are fenced by their task's generation, so a late or doubled one changes
nothing; DeleteNodes is noted in the store until it is done (deletions.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from awe_server.runtime.deletions import Deleter
from awe_server.runtime.finish import Finisher
from awe_server.runtime.prepare import Preparer
from awe_server.scheduler.state import DeleteNodes, Effect, FinishTask, PrepareTask
from shared_models.errors import AweError, ShuttingDown, Unavailable

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.2
MAX_RETRY_S = 30.0
#: How many of each kind run at once: looking waits for other hosts, finishing writes to our disk.
LIMITS: dict[type[Any], int] = {PrepareTask: 32, FinishTask: 4, DeleteNodes: 2}


class Effects:
    """Runs effects."""

    def __init__(self, prepare: Preparer, finish: Finisher, delete: Deleter) -> None:
        self._carry_out: dict[type[Any], Callable[[Any], Awaitable[None]]] = {
            PrepareTask: prepare,
            FinishTask: finish,
            DeleteNodes: delete,
        }
        self._queues: dict[type[Any], asyncio.Queue[Effect]] = {kind: asyncio.Queue() for kind in LIMITS}
        self._known: dict[Effect, int] = {}  #: effects to be done, and how often each has failed
        self._again: set[Effect] = set()
        self._pauses: dict[Effect, asyncio.TimerHandle] = {}  #: of those that will be tried again
        self._workers: list[asyncio.Task[None]] = []
        #: what keeps a task's effect from being done, by task id; shown by `why`
        self.troubles: dict[str, str] = {}

    def start(self) -> None:
        """Begin with what is waiting."""
        for kind, limit in LIMITS.items():
            self._workers += [asyncio.create_task(self._work(self._queues[kind])) for _ in range(limit)]

    async def stop(self) -> None:
        """Leave the rest to the next start; safe to call twice."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def begin(self, effects: Iterable[Effect]) -> None:
        """Do these; one that is under way already is done once more afterwards, not beside it."""
        for effect in effects:
            if effect in self._known:
                self._again.add(effect)
            else:
                self._known[effect] = 0
                self._queues[type(effect)].put_nowait(effect)

    def abandon(self) -> None:
        """Forget all: the state is read anew, and asks again for what is needed."""
        self._known.clear()
        self._again.clear()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self.troubles.clear()
        for queue in self._queues.values():
            while not queue.empty():
                queue.get_nowait()

    async def _work(self, queue: asyncio.Queue[Effect]) -> None:
        while True:
            effect = await queue.get()
            if effect in self._known:
                await self._try(effect, queue)

    async def _try(self, effect: Effect, queue: asyncio.Queue[Effect]) -> None:
        """Do it, or do it again later; pauses grow, and hold up no other effect."""
        try:
            await self._carry_out[type(effect)](effect)
        except ShuttingDown:
            return
        except Exception as exc:  # noqa: BLE001 - whatever it is: say so, and try again
            failures = self._known.get(effect, 0)
            self._known[effect] = failures + 1
            delay_s = min(FIRST_RETRY_S * 2 ** min(failures, 16), MAX_RETRY_S)
            self._note_trouble(effect, exc)
            loop = asyncio.get_running_loop()
            self._pauses[effect] = loop.call_later(delay_s, self._go_on, effect, queue)
            return
        self._known.pop(effect, None)
        if effect in self._again:
            self._again.discard(effect)
            self.begin([effect])
        if isinstance(effect, PrepareTask | FinishTask):
            self.troubles.pop(effect.task_id, None)

    def _go_on(self, effect: Effect, queue: asyncio.Queue[Effect]) -> None:
        del self._pauses[effect]
        queue.put_nowait(effect)

    def _note_trouble(self, effect: Effect, exc: Exception) -> None:
        reason = exc.message if isinstance(exc, AweError) else f"{type(exc).__name__}: {exc}"
        if isinstance(effect, PrepareTask | FinishTask):
            verb = "looking at its inputs" if isinstance(effect, PrepareTask) else "making its outputs whole"
            self.troubles[effect.task_id] = f"{verb} failed and is tried again: {reason}"
        expected = isinstance(exc, AweError) and (exc.retryable or isinstance(exc, Unavailable))
        log.warning(
            "effect_failed",
            exc_info=None if expected else exc,
            extra={"effect": type(effect).__name__, "reason": reason},
        )
