"""Where attempts live on this client: each has its machine, and this carries out what the machines say.

One owner, one thread of control: every event comes in through `deliver`. Transfers are asyncio tasks with
bounds of their own; commands run in the executors; nothing here waits for either.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from awe_client.daemon import machine as m
from awe_client.daemon.attempt import Attempt, AttemptKey
from awe_client.daemon.commands import Commands
from awe_client.daemon.disk import lacks_inodes
from awe_client.daemon.fetch import Fetcher
from awe_client.daemon.holding import Holding, Load, Tally
from awe_client.daemon.images import Images
from awe_client.daemon.live_logs import LiveLogs
from awe_client.daemon.outcome import Failure, report_of
from awe_client.daemon.places import Places
from awe_client.daemon.progress import Meter
from awe_client.daemon.push import Pusher
from awe_client.daemon.resources import Capacity
from awe_client.daemon.spawn import EXHAUSTED
from awe_client.daemon.spool import Spool
from awe_client.daemon.transfer import StepError, foreign_hosts
from awe_client.daemon.workdir import WorkDirs
from awe_client.sdk.threads import file_work
from shared_models.errors import LeaseLost
from shared_models.file_urls import is_file_url
from shared_models.ids import TaskId, make_workunit_id
from shared_models.messages import GrantMessage, ProgressRow, WaitsRow
from shared_models.states import FailureKind

log = logging.getLogger(__name__)

#: A transfer that is over sooner is not worth telling.
PROGRESS_AFTER_S = 2.0
#: After a refused start, so long before the next one.
START_PAUSE_S = 0.5
#: A command that was lined up and has not begun after so long comes back: what it waits for takes longer.
RECALL_S = 0.2
#: After the disk was full, so long nothing is lined up: who fills it is known better if it is alone.
ALONE_S = 2.0
#: Cancelled transfers have so long to end.
CLOSE_S = 5.0
#: So many attempts that are over are remembered, so that a repeated grant does not run twice.
REMEMBERED = 8192

Step = Callable[[Holding], Any]
_STOPPED = m.Stopped()


class Workshop:
    """All attempts of this daemon."""

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        pusher: Pusher,
        commands: Commands,
        images: Images,
        workdirs: WorkDirs,
        spool: Spool,
        capacity: Capacity,
        live_logs: LiveLogs,
        transfers: int,
        on_news: Callable[[], None],
    ) -> None:
        """`transfers` bounds how many attempts move files at once, in each direction."""
        self._fetcher = fetcher
        self._pusher = pusher
        self._commands = commands
        self._images = images
        self._workdirs = workdirs
        self._spool = spool
        self._capacity = capacity
        self._live_logs = live_logs
        self._on_news = on_news
        self._holdings: dict[AttemptKey, Holding] = {}
        self._tally = Tally()
        self._over: OrderedDict[AttemptKey, None] = OrderedDict()
        self._line: deque[Holding] = deque()
        self._lined: dict[AttemptKey, tuple[Holding, float]] = {}  # and since when, the oldest first
        self._next_recall: asyncio.TimerHandle | None = None
        self._no_start_before = 0.0
        self._no_lining_before = 0.0
        self._is_draining = False
        self._closing = False
        self._fetches = Places(transfers)
        self._pushes = Places(transfers)
        self._carry_out: dict[type[m.Instruction], Callable[[Holding, Any], None]] = {
            m.Fetch: self._fetch,
            m.Queue: self._queue,
            m.Start: self._start,
            m.LineUp: self._line_up,
            m.TakeSlot: self._take_slot,
            m.Kill: self._kill,
            m.GiveSlotBack: self._give_slot_back,
            m.Push: self._push,
            m.StopStep: self._stop_step,
            m.Report: self._report,
            m.Withdraw: self._withdraw,
            m.Clean: self._clean,
            m.Forget: self._forget,
        }

    # --- from outside ----------------------------------------------------------------------------

    def admit(self, attempt: Attempt) -> None:
        """Take a granted attempt, unless it is held or over already: one process per attempt, never two.

        While draining it is given back: it was asked for before.
        """
        if attempt.key in self._holdings or attempt.key in self._over:
            log.warning("grant_repeated", extra={"work": attempt.id, "attempt": attempt.number})
            return
        message = attempt.task.message
        machine = m.Machine(
            must_prepare=attempt.task.must_prepare,
            has_outputs=attempt.task.must_push,
            time_limit_s=float(message.get("time_limit_s") or 0.0),
            keep_failed=bool(message.get("keep_failed")),
        )
        holding = self._holdings[attempt.key] = Holding(attempt, machine)
        reason = self._cannot_run(attempt)
        if reason or self._is_draining:
            machine.stage = m.Stage.FETCHING if reason else m.Stage.WAITING
        self._tally.moved(holding, None)
        if reason:
            self._deliver(holding, m.StepFailed(Failure(FailureKind.NODE, reason)))
        elif self._is_draining:
            self._deliver(holding, m.Release())
        else:
            self._follow(holding, machine.begin())

    def refuse(self, grant: GrantMessage, reason: str) -> None:
        """Report a granted attempt as failed that cannot even be looked at."""
        key = (make_workunit_id(TaskId(grant["task"]), grant["rank"]), grant["attempt"])
        self._spool.add(report_of(key, grant["token"], failure=Failure(FailureKind.NODE, reason)))
        self._on_news()

    def deliver(self, key: AttemptKey, event: m.Event) -> None:
        """Tell an attempt of something; nothing if it is not held."""
        holding = self._holdings.get(key)
        if holding is not None:
            self._deliver(holding, event)

    def acknowledged(self, key: AttemptKey) -> None:
        """The server answered a report."""
        self._spool.acknowledge(key)
        self.deliver(key, m.Acknowledged())

    def release_unstarted(self) -> None:
        """Give back everything that does not run yet; what is lined up, unless it begins first."""
        self._is_draining = True
        self._recall_all()
        for holding in list(self._holdings.values()):
            if holding.machine.stage in (m.Stage.FETCHING, m.Stage.WAITING):
                self._deliver(holding, m.Release())

    def release_all(self) -> None:
        """Give back everything that is not finished."""
        for holding in list(self._holdings.values()):
            self._deliver(holding, m.Release())

    def drop_all(self) -> None:
        """End everything and say nothing: the server has said that none of it is ours."""
        for holding in list(self._holdings.values()):
            self._deliver(holding, m.Drop())

    def follow_logs(self, keys: Iterable[AttemptKey]) -> None:
        """Send the logs of these attempts while their commands run."""
        running = [self._holdings[key] for key in keys if key in self._holdings]
        self._live_logs.follow([h.attempt for h in running if h.machine.stage is m.Stage.RUNNING])

    def held_keys(self) -> list[AttemptKey]:
        """Every attempt that is held, in whatever stage."""
        return list(self._holdings)

    def progress(self) -> list[ProgressRow]:
        """How far transfers are that take a while."""
        moving = [(h.attempt.id, h.meter) for h in self._holdings.values() if h.meter is not None]
        return [
            (id, meter.stage, meter.bytes_done, meter.bytes_total)
            for id, meter in moving
            if meter.seconds >= PROGRESS_AFTER_S
        ]

    def waits(self) -> list[WaitsRow]:
        """Which transfers do not move, and why."""
        moving = [(h.attempt.id, h.meter) for h in self._holdings.values() if h.meter is not None]
        return [(id, meter.waits_for) for id, meter in moving if meter.waits_for]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._holdings

    @property
    def is_working(self) -> bool:
        """Whether something is held that is not just waiting for the server's acknowledgement."""
        return self._tally.is_working

    @property
    def has_backlog(self) -> bool:
        """Whether slots stay busy for the moment without new work."""
        return len(self._line) + len(self._lined) > self._capacity.slots

    def load(self) -> Load:
        """Add up what is held."""
        return self._tally.load

    async def close(self) -> None:
        """Cancel what is left of transfers; who does not end within some seconds is left behind."""
        self._closing = True
        if self._next_recall is not None:
            self._next_recall.cancel()
        steps = [h.step for h in self._holdings.values() if h.step is not None]
        for step in steps:
            step.cancel()
        if steps:
            _, left = await asyncio.wait(steps, timeout=CLOSE_S)
            if left:
                log.error("transfers_do_not_end", extra={"transfers": len(left)})
        self._live_logs.close()

    # --- machines --------------------------------------------------------------------------------

    def _deliver(self, holding: Holding, event: m.Event) -> None:
        machine = holding.machine
        before = machine.stage
        instructions = machine.handle(event)
        self._tally.moved(holding, before)
        self._follow(holding, instructions)

    def _follow(self, holding: Holding, instructions: m.Instructions) -> None:
        for instruction in instructions:
            self._carry_out[type(instruction)](holding, instruction)

    def _cannot_run(self, attempt: Attempt) -> str:
        needs = attempt.task.needs
        if attempt.task.image and not self._images.can_bring:
            return "this client runs no containers"
        if not self._capacity.can_ever_run(needs):
            have = self._capacity.totals
            return (
                f"needs {needs.cores} cores, {needs.memory_bytes} bytes of memory, {needs.gpus} GPUs; "
                f"this client has {have.cores}, {have.memory_bytes}, {have.gpus}"
            )
        return ""

    # --- instructions ----------------------------------------------------------------------------

    def _fetch(self, holding: Holding, _: m.Fetch) -> None:
        self._tally.begins_to_write(holding)
        message = holding.attempt.task.message
        entries = [*message["predata"], *message["inputs"]]
        hosts = foreign_hosts(entry.get("url") or entry.get("host") or "" for entry in entries)
        meter = holding.meter = Meter("fetching")
        self._begin_step(holding, self._fetches.take(hosts, meter.waits), self._fetch_step)

    async def _fetch_step(self, holding: Holding) -> m.Event:
        if holding.attempt.task.image:
            holding.image = await self._images.bring(holding.attempt.task)
        holding.meter = Meter("fetching")
        await self._fetcher.fetch(holding.attempt, holding.meter)
        return m.Fetched()

    def _queue(self, holding: Holding, instruction: m.Queue) -> None:
        if instruction.refused:
            if not instruction.keeps_slots:
                self._capacity.start_refused()
            self._no_start_before = time.monotonic() + START_PAUSE_S
            log.warning("start_refused", extra={"work": holding.attempt.id, "slots": self._capacity.slots})
            self._line.appendleft(holding)
            self._recall_all()
            asyncio.get_running_loop().call_later(START_PAUSE_S, self._start_next)
        elif instruction.first:
            self._lined.pop(holding.attempt.key, None)
            self._line.appendleft(holding)
            if self._is_draining:
                self._deliver(holding, m.Release())
            # When all that come back at this moment are in their places.
            asyncio.get_running_loop().call_soon(self._start_next)
        else:
            self._line.append(holding)
            self._start_next()

    def _start_next(self) -> None:
        """Give slots to the line, in order: the head waits for enough of them, and the others behind it.

        Without a slot it may be lined up in an executor.
        """
        now = time.monotonic()
        if self._closing or now < self._no_start_before:
            return
        while self._line:
            holding = self._line[0]
            if holding.machine.stage is not m.Stage.WAITING:
                self._line.popleft()  # released or dropped meanwhile
            elif self._capacity.take(holding.attempt.task.needs):
                self._line.popleft()
                self._deliver(holding, m.SlotGiven())
            elif now >= self._no_lining_before and self._commands.can_line_up(holding):
                self._line.popleft()
                self._deliver(holding, m.LinedUp())
            else:
                return
        self._call_back()

    def _start(self, holding: Holding, _: m.Start) -> None:
        self._tally.begins_to_write(holding)
        self._commands.start(holding, self._told, self._disk_was_full)

    def _line_up(self, holding: Holding, _: m.LineUp) -> None:
        """It counts as one that writes: that it has begun is heard later."""
        self._tally.begins_to_write(holding)
        self._commands.line_up(holding, self._told, self._disk_was_full)
        if holding.machine.stage is not m.Stage.LINED:
            return  # its words could not be made
        self._lined[holding.attempt.key] = (holding, time.monotonic())
        if self._next_recall is None:
            self._next_recall = asyncio.get_running_loop().call_later(RECALL_S, self._recall_old)

    def _take_slot(self, holding: Holding, _: m.TakeSlot) -> None:
        self._lined.pop(holding.attempt.key, None)
        self._capacity.take_over(holding.attempt.task.needs)

    def _call_back(self) -> None:
        """Slots are free and nobody waits for them: have those come that are lined up, the last first."""
        free = self._capacity.free_slots
        for holding, _ in reversed(self._lined.values()):
            if free <= 0:
                return
            free -= holding.attempt.task.needs.cores
            self._recall(holding)

    def _recall_old(self) -> None:
        horizon, self._next_recall = time.monotonic() - RECALL_S, None
        for holding, since in reversed(self._lined.values()):
            if since <= horizon:
                self._recall(holding)
        if self._lined:
            self._next_recall = asyncio.get_running_loop().call_later(RECALL_S, self._recall_old)

    def _recall_all(self) -> None:
        for holding, _ in reversed(self._lined.values()):
            self._recall(holding)

    def _recall(self, holding: Holding) -> None:
        if not holding.is_recalled:
            self._commands.recall(holding)

    def _told(self, holding: Holding, event: m.Event) -> None:
        """Hear of a command. It may have ended well on input that another one changed under its hands."""
        is_wanted = holding.machine.stage is m.Stage.RUNNING  # else nobody asks how it went
        if not (is_wanted and isinstance(event, m.Ended) and holding.attempt.links):
            self._deliver(holding, event)
            return

        async def look(_: Holding) -> m.Event:
            return replace(event, end=replace(event.end, spoilt=await self._fetcher.spoilt(holding.attempt)))

        self._begin_step(holding, contextlib.nullcontext(), look, stopped=event)

    def _disk_was_full(self, holding: Holding) -> None:
        """What any command wrote at this moment may be cut off, also if there is room when it ends."""
        self._workdirs.was_full(holding.attempt.directory)
        self._no_lining_before = time.monotonic() + ALONE_S
        self._recall_all()
        for other in self._holdings.values():
            if other.machine.stage in (m.Stage.RUNNING, m.Stage.LINED):
                other.disk_was_full = True

    def _kill(self, holding: Holding, _: m.Kill) -> None:
        self._lined.pop(holding.attempt.key, None)
        self._commands.kill(holding)
        self._stop_step(holding, m.StopStep())

    def _give_slot_back(self, holding: Holding, _: m.GiveSlotBack) -> None:
        self._capacity.give_back(holding.attempt.task.needs)
        self._start_next()
        self._on_news()

    def _push(self, holding: Holding, instruction: m.Push) -> None:
        urls = [output.get("url") or "" for output in holding.attempt.task.outputs]
        # All others go to our own server, wherever that puts them.
        hosts = foreign_hosts(url for url in urls if instruction.outputs and is_file_url(url))
        meter = holding.meter = Meter("pushing")

        async def push(_: Holding) -> m.Event:
            meter = holding.meter = Meter("pushing", holding.place)
            outputs = await self._pusher.push_outputs(holding.attempt, meter) if instruction.outputs else []
            end = holding.machine.end
            await self._live_logs.end(holding.attempt.key)
            note = ""
            if instruction.logs and end:
                note = await self._pusher.push_logs(holding.attempt, end, meter)
            kept = ""
            if instruction.left:
                kept, why_not = await self._pusher.push_left(holding.attempt, meter)
                note = "; ".join(text for text in (note, why_not) if text)
            return m.Pushed(outputs, kept, note)

        self._begin_step(holding, self._pushes.take(hosts, meter.waits), push)

    def _begin_step(
        self,
        holding: Holding,
        bound: contextlib.AbstractAsyncContextManager[Any],
        step: Step,
        *,
        stopped: m.Event = _STOPPED,
    ) -> None:
        """Begin what takes a while, and deliver how it ended: `stopped` if it was told to, however early."""

        async def run() -> m.Event:
            try:
                async with bound as holding.place:
                    event: m.Event = await step(holding)
                    return event
            except StepError as exc:
                failure = exc.failure
                if exc.disk_full:
                    self._disk_was_full(holding)
                    if await file_work(lacks_inodes, holding.attempt.directory):
                        # Free bytes let it ask for more, which would fare no better.
                        failure = replace(failure, out_of_reach=False)
                return m.StepFailed(failure)
            except LeaseLost:
                return m.LeaseGone()
            except Exception as exc:
                log.exception("step_broken", extra={"work": holding.attempt.id})
                return m.StepFailed(Failure(FailureKind.NODE, _words(exc)))

        def over(task: asyncio.Task[m.Event]) -> None:
            holding.step = holding.meter = holding.place = None
            if not self._closing:
                self._deliver(holding, stopped if task.cancelled() else task.result())

        holding.step = asyncio.ensure_future(run())
        # Not in the task itself: one that is cancelled before its first turn never begins.
        holding.step.add_done_callback(over)

    def _stop_step(self, holding: Holding, _: m.StopStep) -> None:
        if holding.step is not None:
            holding.step.cancel()

    def _report(self, holding: Holding, report: m.Report) -> None:
        attempt = holding.attempt
        self._spool.add(
            report_of(
                attempt.key,
                attempt.token,
                failure=report.failure,
                released=report.released,
                end=holding.machine.end,
                outputs=report.outputs,
                kept=report.kept,
                note=report.note,
            )
        )
        if report.failure is not None:
            facts = {"work": attempt.id, "attempt": attempt.number, "kind": str(report.failure.kind)}
            log.info("attempt_failed", extra={**facts, "reason": report.failure.message})
        self._on_news()

    def _withdraw(self, holding: Holding, _: m.Withdraw) -> None:
        self._spool.acknowledge(holding.attempt.key)

    def _clean(self, holding: Holding, instruction: m.Clean) -> None:
        self._fetcher.release(holding.attempt)
        self._workdirs.clean(holding.attempt.directory, keep=instruction.keep)

    def _forget(self, holding: Holding, _: m.Forget) -> None:
        key = holding.attempt.key
        self._holdings.pop(key, None)
        self._live_logs.drop(key)
        self._over[key] = None
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
        if not self._holdings:
            self._on_news()


def _words(exc: Exception) -> str:
    """What to tell of an error that no step expects."""
    if isinstance(exc, OSError) and exc.errno in EXHAUSTED:
        return f"the client's machine is short of something: {exc.strerror}"
    if isinstance(exc, RuntimeError) and "start new thread" in str(exc):
        return "the client's machine is short of something: it starts no more threads (ulimit -u)"
    return f"internal error of the client: {exc!r}"
