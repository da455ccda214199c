"""What the scheduler asks for: done beside the requests, a few at a time, tried again until it is done.

An effect starts when the batch that asked for it is durable. None is ever lost: after a restart recovery asks
again. PrepareTask and FinishTask are fenced by their task's generation, so a late or doubled one changes
nothing; DeleteNodes and DeletePlaces are noted in the store until they are done (deletions.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from awe_server.data.hosts import host_of
from awe_server.runtime.deletions import Deleter, PlaceDeleter
from awe_server.runtime.finish import Finisher
from awe_server.runtime.prepare import Preparer
from awe_server.scheduler.state import DeleteNodes, DeletePlaces, Effect, FinishTask, PrepareTask
from shared_models.errors import AweError, ShuttingDown, Unavailable

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.2
MAX_RETRY_S = 30.0
MAX_LOOKS = 32  #: looks at our own files at once
MAX_FOREIGN_LOOKS = 8  #: at files of one other host; those of other hosts have their own turn
MAX_MERGES = 4  #: finishing writes to our disk
MAX_DELIVERIES = 4  #: of outputs to the same other host
MAX_DELETIONS = 2  #: here, and on each other host
MAX_LANES = 500  #: other hosts with a turn of their own; more share one


@dataclass(slots=True)
class _Lane:
    """Effects that wait for the same thing, done in order, a few at a time: no lane holds up another."""

    limit: int
    waiting: deque[Effect] = field(default_factory=deque)
    running: int = 0


class Effects:
    """Runs effects."""

    def __init__(
        self, prepare: Preparer, finish: Finisher, delete: Deleter, delete_places: PlaceDeleter
    ) -> None:
        self._carry_out: dict[type[Any], Callable[[Any], Awaitable[None]]] = {
            PrepareTask: prepare,
            FinishTask: finish,
            DeleteNodes: delete,
            DeletePlaces: delete_places,
        }
        self._prepare, self._finish = prepare, finish
        self._lanes: dict[tuple[type[Any], str], _Lane] = {}
        self._known: dict[Effect, int] = {}  #: effects to be done, and how often each has failed
        self._again: set[Effect] = set()
        self._pauses: dict[Effect, asyncio.TimerHandle] = {}  #: of those that will be tried again
        self._running: set[asyncio.Task[None]] = set()
        self._is_started = False
        #: what keeps a task's effect from being done, by task id; shown by `why`
        self.troubles: dict[str, str] = {}

    def start(self) -> None:
        """Begin with what is waiting."""
        self._is_started = True
        for key in list(self._lanes):
            self._pump(key)

    async def stop(self) -> None:
        """Leave the rest to the next start; safe to call twice."""
        self._is_started = False
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def begin(self, effects: Iterable[Effect]) -> None:
        """Do these; one that is under way already is done once more afterwards, not beside it."""
        for effect in effects:
            if effect in self._known:
                self._again.add(effect)
            else:
                self._known[effect] = 0
                self._queue(effect)

    def _queue(self, effect: Effect) -> None:
        host = ""
        if isinstance(effect, PrepareTask):
            host = self._prepare.host(effect)
            if host:
                self.troubles.setdefault(effect.task_id, f"{host} is asked, or will be, how big they are")
        elif isinstance(effect, FinishTask):
            host = self._finish.host(effect)
            if host:
                self.troubles.setdefault(effect.task_id, f"they are delivered, or will be, to {host}")
        elif isinstance(effect, DeletePlaces):
            host = host_of(effect.places[0]) if effect.places else ""
        key = (type(effect), host)
        if key not in self._lanes and len(self._lanes) >= MAX_LANES:
            key = (type(effect), "others" if host else "")
        lane = self._lanes.setdefault(key, _Lane(_limit(*key)))
        lane.waiting.append(effect)
        self._pump(key)

    def _pump(self, key: tuple[type[Any], str]) -> None:
        """Start what has its turn; a lane without anything to do is dropped."""
        lane = self._lanes[key]
        while self._is_started and lane.waiting and lane.running < lane.limit:
            effect = lane.waiting.popleft()
            if effect not in self._known:
                continue
            lane.running += 1
            task = asyncio.create_task(self._try(effect))
            self._running.add(task)
            task.add_done_callback(lambda task: self._over(key, task))
        if not lane.waiting and not lane.running:
            del self._lanes[key]

    def _over(self, key: tuple[type[Any], str], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._lanes[key].running -= 1
        self._pump(key)

    def abandon(self) -> None:
        """Forget all: the state is read anew, and asks again for what is needed."""
        self._known.clear()
        self._again.clear()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self.troubles.clear()
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.running}
        for lane in self._lanes.values():
            lane.waiting.clear()

    async def _try(self, effect: Effect) -> None:
        """Do it, or do it again later; pauses grow, and hold up no other effect."""
        try:
            await self._carry_out[type(effect)](effect)
        except ShuttingDown:
            return
        except Exception as exc:  # noqa: BLE001 - whatever it is: say so, and try again
            failures = self._known.get(effect, 0)
            self._known[effect] = failures + 1
            delay_s = min(FIRST_RETRY_S * 2 ** min(failures, 16), MAX_RETRY_S)
            if isinstance(exc, AweError):
                delay_s = max(delay_s, float(exc.fields.get("retry_after_s") or 0.0))
            self._note_trouble(effect, exc)
            loop = asyncio.get_running_loop()
            self._pauses[effect] = loop.call_later(delay_s, self._go_on, effect)
            return
        self._known.pop(effect, None)
        if isinstance(effect, PrepareTask | FinishTask):
            self.troubles.pop(effect.task_id, None)
        if effect in self._again:
            self._again.discard(effect)
            self.begin([effect])

    def _go_on(self, effect: Effect) -> None:
        del self._pauses[effect]
        self._queue(effect)

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


def _limit(kind: type[Any], host: str) -> int:
    if kind is PrepareTask:
        return MAX_FOREIGN_LOOKS if host else MAX_LOOKS
    if kind is FinishTask:
        return MAX_DELIVERIES if host else MAX_MERGES
    return MAX_DELETIONS
