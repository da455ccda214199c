"""The shell around the pure scheduler: runs transitions, makes what they changed durable, then answers.

Every transition runs to its end on the event loop, so there are no locks. What it marked joins the gathering
batch (committer.py); whoever asked is answered when everything marked up to then is durable, also if the call
itself changed nothing: the repeat of a request must not overtake its original.

A transition that fails in a way the rules do not know (a bug) may leave the state half changed. Then the
state is thrown away with the gathering batch, nobody of whom was answered yet, and read again from the
store: the same as a crash and a restart, without the restart.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from awe_server.runtime import deletions, recovery
from awe_server.runtime.clock import Clock
from awe_server.runtime.committer import Batch, Committer
from awe_server.runtime.events import LOGGED, EventLog, log_fact
from awe_server.runtime.job_documents import JobDocuments
from awe_server.runtime.random_ids import Tokens
from awe_server.runtime.waiters import Waiters
from awe_server.scheduler import views
from awe_server.scheduler.clients import renew_all
from awe_server.scheduler.demands import offer_skipped
from awe_server.scheduler.state import Changes, Context, Effect, ForgetJob, State
from awe_server.settings import Settings
from awe_server.store.base import (
    Collection,
    Delete,
    DeleteWhere,
    Document,
    Operation,
    Put,
    Store,
    check_storable,
    require_lead,
)
from awe_server.store.errors import StoreLocked
from shared_models.errors import AweError, NotConfirmed, ShuttingDown, Starting, StoreUnavailable
from shared_models.ids import ClientId

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STANDBY_S = 0.5  #: how often a server that stands by tries to take over
SAY_AGAIN_S = 10.0  #: how often it says that it still does
FLUSH_S = 10.0  #: how long a stopping server waits for its store


class Phase(Enum):
    """Where the engine is in its life."""

    NEW = auto()
    STARTING = auto()  #: reading the state
    READY = auto()
    CLOSING = auto()  #: nothing new; what was accepted becomes durable


class Duties(Protocol):
    """What goes on beside requests: effects, ticks, sweeps (duties.py)."""

    @property
    def troubles(self) -> Mapping[str, str]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def begin(self, effects: Iterable[Effect]) -> None: ...
    def abandon(self) -> None: ...


class Engine(JobDocuments):
    """Owns the live state."""

    def __init__(
        self, store: Store, settings: Settings, clock: Clock, fatal: Callable[[BaseException], None]
    ) -> None:
        self.settings = settings
        self._new_token = Tokens()
        self.server: Document = {}  #: what the store knows of the server as a whole
        self.events = EventLog(clock)
        self.waiters = Waiters(lambda: self._live)
        super().__init__(store, clock, State(recovery.rules(settings)), settings.commit_wait_s)
        self._fatal = fatal
        self._phase = Phase.NEW
        self.stands_by = ""  #: who leads, while this server waits for the store
        self._loaded = False  #: the live state is what the store says
        self._extra: list[Operation] = []  #: documents that are not the scheduler's
        self._committer: Committer[Changes] = Committer(
            store,
            take=self._take,
            applied=self._applied,
            answered=_log_facts,
            fatal=fatal,
            commit_wait_s=settings.commit_wait_s,
        )
        self._writer: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._duties: Duties | None = None

    def attach(self, duties: Duties) -> None:
        """Give it what goes on beside requests; before `start`."""
        self._duties = duties

    # -- transitions -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The live state, to look at. Raises Starting while it is being read, LeadInDoubt."""
        self._check_loaded()
        return self._live

    def _check_loaded(self) -> None:
        if not self._loaded:
            raise Starting()
        self.require_lead()

    @property
    def in_doubt(self) -> bool:
        """Whether another server may lead by now: what is in memory may be of yesterday."""
        return self._store.in_doubt

    def require_lead(self) -> None:
        """Raise LeadInDoubt if another server may lead by now; before anything is done outside the store.

        May be called in any thread.
        """
        require_lead(self._store)

    def context(self) -> Context:
        """Now, and a source of tokens, for one transition."""
        return Context(self.clock.monotonic(), self.clock.wall(), self._new_token)

    def run(
        self, transition: Callable[Concatenate[State, Context, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a transition now without waiting for the disk: only for what promises nobody anything."""
        state = self.state
        if self._phase is Phase.CLOSING:
            raise ShuttingDown()
        try:
            return transition(state, self.context(), *args, **kwargs)
        except AweError:
            raise
        except Exception as exc:
            self._distrust(exc)
            raise
        finally:
            self._announce()
            if not self._live.changes.is_empty():
                self._committer.touch()

    def _announce(self) -> None:
        """Wake clients for work that appeared, before the batch is closed: what they are given is in it, too.

        They are answered once it is durable, as everybody is.
        """
        if work := self._live.changes.work:
            self._live.changes.work = {}
            self.waiters.appeared(work)

    async def do(
        self, transition: Callable[Concatenate[State, Context, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a transition now; return its result when everything marked so far is durable.

        Raises what the transition refuses with, or NotConfirmed when the store did not take the batch in
        commit_wait_s (the change stays and will be committed).
        """
        result = self.run(transition, *args, **kwargs)
        await self.confirmed()
        return result

    async def do_with(
        self,
        ops: Sequence[Operation],
        transition: Callable[Concatenate[State, Context, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `do`, with further documents in the same batch."""
        check_storable(ops)
        result = self.run(transition, *args, **kwargs)
        self._add(ops)  # no check comes between: it might part them from the change
        await self.confirmed()
        return result

    async def look(self, view: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a pure view of the state; return when everything it could have seen is durable."""
        result = view(self.state, *args, **kwargs)
        await self._committer.settled()
        return result

    async def settled(self) -> None:
        """Return when everything marked so far is durable."""
        await self._committer.settled()

    async def confirmed(self) -> None:
        """As `settled`, for who has changed something. Raises NotConfirmed: it may still become durable."""
        try:
            await self._committer.settled()
        except (StoreUnavailable, ShuttingDown) as exc:
            raise NotConfirmed(reason=exc.fields.get("reason", exc.message)) from exc

    async def answering(self) -> None:
        """Return once the store answers, as far as is known; for what must not be begun twice.

        Raises StoreUnavailable: nothing was begun.
        """
        if self._committer.trouble:
            await self._committer.settled()

    # -- documents -------------------------------------------------------------------------------------------

    async def put(self, *operations: Operation) -> None:
        """Store documents that are not the scheduler's (nodes, users), in the same group commit.

        Raises InvalidDocument for one that cannot be stored, NotConfirmed.
        """
        check_storable(operations)
        self._check_loaded()
        self._add(operations)
        await self.confirmed()

    def _add(self, operations: Iterable[Operation]) -> None:
        self._extra += operations
        if self._extra:
            self._committer.touch()

    async def _readable(self) -> None:
        self._check_loaded()
        await self._committer.settled()

    # -- committing ------------------------------------------------------------------------------------------

    def _take(self) -> Batch[Changes]:
        offer_skipped(self._live)
        changes = self._live.take()
        extra, self._extra = self._extra, []
        ops: list[Operation] = [
            Delete(removal.collection, removal.value)
            if removal.field == "id"
            else DeleteWhere(removal.collection, removal.field, removal.value)
            for removal in changes.removals
        ]
        ops += extra
        documents = cast(list[tuple[Collection, Document]], views.documents(self._live, changes))
        ops += [Put(collection, document) for collection, document in documents]
        ops += deletions.notes(changes.effects)
        self._flying.append(changes)
        return Batch(ops, [changes])

    def _applied(self, batch: Batch[Changes]) -> None:
        self._flying.clear()
        now_s = self.clock.monotonic()
        for changes in batch.after:
            self.events.publish(changes.events)
            self.waiters.revised(changes.revised)
            self.waiters.appeared(changes.work)
            self.waiters.tell(changes.told)
            for removal in changes.removals:
                if removal.collection == "clients":
                    self.waiters.forget(ClientId(removal.value))
            for effect in changes.effects:
                if isinstance(effect, ForgetJob):
                    self._visitors[effect.job_id] = now_s
            if changes.effects and self._duties is not None:
                self._duties.begin(e for e in changes.effects if not isinstance(e, ForgetJob))
        if self._visitors:
            self.see_off()

    def _distrust(self, exc: Exception) -> None:
        """A transition broke: begin again from the store."""
        log.critical("transition_failed", exc_info=exc, extra={"error": type(exc).__name__})
        if self._phase is not Phase.READY:
            return
        self._phase, self._loaded = Phase.STARTING, False
        self._live.take()
        self._extra = []
        self._committer.discard(Starting())
        if self._duties is not None:
            self._duties.abandon()
        self._reloading = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        try:
            await self._committer.idle()
            await self._recover()
            self._go_on()
            log.warning("state_reloaded")
        except Exception as exc:  # noqa: BLE001 - whatever it is, going on without a state is worse
            self._fatal(exc)

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the state was read and nothing stops the engine."""
        return self._phase is Phase.READY

    @property
    def store_trouble(self) -> str:
        """What the store answered last, "" when it works; for /health."""
        return self._committer.trouble

    @property
    def troubles(self) -> Mapping[str, str]:
        """What keeps a task's data from being looked at or put together, by task id; for `why`."""
        return {} if self._duties is None else self._duties.troubles

    @property
    def server_uuid(self) -> str:
        """The same over restarts on the same store; "" before it is known."""
        return str(self.server.get("uuid", ""))

    @property
    def store_name(self) -> str:
        """The store, without secrets."""
        return self._store.name

    @property
    def lease(self) -> Document | None:
        """The store's claim to be the only writer, where that can run out; for /health."""
        return self._store.lease

    @property
    def commits(self) -> tuple[int, int]:
        """Batches and documents written since the start."""
        return self._committer.batches, self._committer.operations

    async def start(self) -> None:
        """Open the store, recover, start what goes on beside requests.

        Waits for a store that does not answer. Raises StoreLocked, StoreCorrupt, StoreVersion.
        """
        self._phase = Phase.STARTING
        log.info("store_opens", extra={"store": self._store.name})
        await self._open()
        self._writer = asyncio.create_task(self._committer.run())
        await self._recover()
        if self._duties is not None:
            await self._duties.start()
        self._go_on()

    async def _open(self) -> None:
        say_at_s = 0.0
        while True:
            try:
                await recovery.patiently(self._store.open, "open")
                self.stands_by = ""
                return
            except StoreLocked as exc:
                if not self.settings.standby:
                    raise
                self.stands_by = StoreLocked(**exc.fields).message  # no advice: it is meant to wait
                now_s = asyncio.get_running_loop().time()
                if now_s >= say_at_s:
                    log.warning("standing_by", extra={"reason": self.stands_by})
                    say_at_s = now_s + SAY_AGAIN_S
            await asyncio.sleep(STANDBY_S)

    async def _recover(self) -> None:
        # A store that is damaged is left as it is: known before anything in it is put right.
        await recovery.patiently(lambda: recovery.known_server(self._store), "recover")
        self._live = await recovery.patiently(
            lambda: recovery.read_state(self._store, self.settings, self.context), "recover"
        )
        self.server = await recovery.patiently(lambda: recovery.server_document(self._store), "recover")
        self._visitors.clear()
        self.waiters.reset()
        self.events.begin()
        self._loaded = True

    def _go_on(self) -> None:
        """Serve, and write what reading the state put right."""
        renew_all(self._live, self.context())  # the store or the data folder may have taken long
        if self._phase is Phase.STARTING:
            self._phase = Phase.READY
        if not self._live.changes.is_empty():
            self._committer.touch()

    def close(self) -> None:
        """Refuse new work and end every wait."""
        if self._phase is not Phase.NEW:
            self._phase = Phase.CLOSING
        self.waiters.close()
        self.events.close()

    async def stop(self) -> None:
        """Make everything durable and let go of the store; safe to call twice and before start."""
        self.close()
        if self._duties is not None:
            await self._duties.stop()
        for task in (self._reloading, self._writer):
            if task is self._writer and task is not None:
                await self._flush()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._writer = None
        self._committer.break_off(ShuttingDown())
        await self._store.close()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._committer.idle()
        except TimeoutError:
            log.error("not_everything_written", extra={"reason": self.store_trouble})
        except StoreUnavailable as exc:
            log.error("not_everything_written", extra={"reason": exc.message})


def _log_facts(batch: Batch[Changes]) -> None:
    for changes in batch.after:
        for event in changes.events:
            if event.code in LOGGED:
                log_fact(event.code, event.fields)
