"""Group commit: what many requests changed at one moment becomes durable together, then all are answered.

While one batch is being written the next one gathers; it is taken the moment the write ends, so there is no
artificial delay and no queue of batches. A store that does not answer is tried again for ever: newer changes
join the batch, requests get StoreUnavailable after `commit_wait_s`, and nothing is dropped.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from awe_server.faults import reach
from awe_server.store.base import DeleteWhere, Operation, Put, Store
from awe_server.store.errors import no_answer
from shared_models.errors import AweError, StoreUnavailable

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
MAX_RETRY_S = 5.0
LOOK_S = 5.0  #: how often a server with nothing to write asks whether it still may
DOUBT_S = 0.5  #: ... and how often while that is in doubt

A = TypeVar("A")


@dataclass(slots=True)
class Batch(Generic[A]):
    """What is written together, and what has to happen once it is durable."""

    ops: list[Operation]
    after: list[A] = field(default_factory=list)


class _Waiting:
    """Requests that wait for one batch. They share a deadline, set by the first of them."""

    def __init__(self, wait_s: float, too_late: Callable[[], str]) -> None:
        self._wait_s = wait_s
        self._too_late = too_late
        self._futures: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def join(self) -> None:
        self._start_timer()
        future = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        await future

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._give_up)

    def _give_up(self) -> None:
        reason = self._too_late()
        self.fail(no_answer(reason))

    def _drain(self) -> list[asyncio.Future[None]]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        futures, self._futures = self._futures, []
        return futures

    def release(self) -> None:
        for future in self._drain():
            if not future.done():
                future.set_result(None)

    def fail(self, error: AweError) -> None:
        for future in self._drain():
            if not future.done():
                future.set_exception(type(error)(error.message, **error.fields))

    def absorb(self, other: "_Waiting") -> None:
        """Take over those who waited for a batch that joined this one."""
        self._futures += other._drain()
        if self._futures:
            self._start_timer()


class Committer(Generic[A]):
    """Writes one batch at a time."""

    def __init__(
        self,
        store: Store,
        *,
        take: Callable[[], Batch[A]],
        applied: Callable[[Batch[A]], None],
        answered: Callable[[Batch[A]], None],
        fatal: Callable[[BaseException], None],
        commit_wait_s: float,
    ) -> None:
        self._store = store
        self._take = take
        self._applied = applied
        self._answered = answered  #: for what nobody waits for
        self._fatal = fatal
        self._commit_wait_s = commit_wait_s
        self._dirty = False
        self._open = self._new_waiting()
        self._flying: _Waiting | None = None
        self._wake = asyncio.Event()
        self._broken: AweError | None = None
        self.trouble = ""  #: what the store said last; "" while it works
        self.batches = 0  #: durable batches so far
        self.operations = 0  #: documents written so far

    def touch(self) -> None:
        """Something was marked: the gathering batch is not empty."""
        self._dirty = True
        self._wake.set()

    async def settled(self) -> None:
        """Return when everything marked so far is durable.

        Raises StoreUnavailable after commit_wait_s; what was marked stays and will be written.
        """
        if self._broken is not None:
            raise self._broken
        if self._dirty:
            await self._open.join()
        elif self._flying is not None:
            await self._flying.join()

    async def run(self) -> None:
        """Write batches until cancelled; whatever the store cannot explain stops the server."""
        try:
            while True:
                await self._woken()
                self._wake.clear()
                while self._dirty:
                    await self._write()
        except Exception as exc:  # noqa: BLE001 - memory and disk must not drift apart: stop instead
            self.break_off(StoreUnavailable("the server stops: it could not write its state"))
            self._fatal(exc)

    async def _woken(self) -> None:
        """Wait for something to write, and meanwhile notice when this server may not write any more."""
        while not self._wake.is_set():
            try:
                async with asyncio.timeout(DOUBT_S if self._store.in_doubt else LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                with contextlib.suppress(StoreUnavailable):
                    await self._store.commit([])

    async def idle(self) -> None:
        """Return when nothing is marked and nothing is being written, however long that takes."""
        while self._dirty or self._flying is not None:
            try:
                await self.settled()
            except StoreUnavailable:
                if self._broken is not None:
                    raise

    def discard(self, error: AweError) -> None:
        """Forget the gathering batch (the caller has dropped its marks) and answer those who wait for it."""
        self._dirty = False
        self._open.fail(error)

    def break_off(self, error: AweError) -> None:
        """Refuse from now on, and answer those who wait with the error."""
        self._broken = error
        self._open.fail(error)
        if self._flying is not None:
            self._flying.fail(error)

    def _new_waiting(self) -> _Waiting:
        return _Waiting(self._commit_wait_s, self._too_late)

    def _too_late(self) -> str:
        """A batch was not written in the time that requests wait; returns why, as far as is known."""
        self._note_trouble(self.trouble or f"no answer within {self._commit_wait_s:g} s")
        return self.trouble

    def _note_trouble(self, reason: str) -> None:
        if not self.trouble:
            log.error("store_unavailable", extra={"reason": reason})
        self.trouble = reason

    def _next(self) -> tuple[Batch[A], _Waiting]:
        batch = self._take()
        waiting, self._open = self._open, self._new_waiting()
        self._dirty = False
        return batch, waiting

    async def _write(self) -> None:
        batch, self._flying = self._next()
        delay_s = FIRST_RETRY_S
        while not await self._try(batch.ops):
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_S)
            if self._dirty:
                newer, waiting = self._next()
                batch = Batch(compact([*batch.ops, *newer.ops]), batch.after + newer.after)
                self._flying.absorb(waiting)
        self.batches += 1
        self.operations += len(batch.ops)
        self._applied(batch)
        reach("before-reply")
        self._flying.release()
        self._flying = None
        asyncio.get_running_loop().call_soon(self._answered, batch)  # behind those who were released

    async def _try(self, ops: Sequence[Operation]) -> bool:
        try:
            if ops:
                reach("before-commit")
                await self._store.commit(ops)
                reach("after-commit")
        except StoreUnavailable as exc:
            self._note_trouble(exc.message)
            return False
        if self.trouble:
            log.warning("store_available_again", extra={"written": len(ops)})
            self.trouble = ""
        return True


def compact(ops: Sequence[Operation]) -> list[Operation]:
    """Several batches as one: only the last word on each document, in order, and jobs last of all.

    A task whose document comes again in the newer batch leaves the older one; the job has to come after it
    still, or a torn batch would show a job without its task.
    """
    seen: set[tuple[str, str]] = set()
    kept: list[Operation] = []
    for op in reversed(ops):
        if not isinstance(op, DeleteWhere):
            key = (op.collection, op.document["id"] if isinstance(op, Put) else op.id)
            if key in seen:
                continue
            seen.add(key)
        kept.append(op)
    kept.reverse()
    kept.sort(key=_is_job)  # stable
    return kept


def _is_job(op: Operation) -> bool:
    return isinstance(op, Put) and op.collection == "jobs"
