"""The life of one attempt on a client: events in, instructions out. No IO, no clock, no asyncio.

    FETCHING ──► WAITING ──► RUNNING ──► PUSHING ──► REPORTING ──► GONE
        │         │  ▲ ╲      ▲ │           │            ▲
        │         │  └─ LINED ┘ │           │            │
        └─────────┴─────────────┴───────────┴── failure ─┘

STOPPING stands for "told to end, the step that runs has not ended yet". Every legal pair of stage and event
is a row of TABLE; anything else raises IllegalEvent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from awe_client.daemon.outcome import CommandEnd, Failure, SpawnRefusal, judge_end, judge_refusal
from shared_models.limits import MAX_TAIL_BYTES
from shared_models.messages import OutputMessage
from shared_models.states import FailureKind

#: So often a start is tried again here, when this machine is short of something, before the attempt is given
#: up.
MAX_STARTS = 5
#: Failures after which there may be something in the work directory that tells its owner more.
KEPT_KINDS = frozenset(
    {FailureKind.COMMAND, FailureKind.SIGNAL, FailureKind.TIMEOUT, FailureKind.OOM, FailureKind.OUTPUT}
)


class Stage(StrEnum):
    """Where an attempt is."""

    FETCHING = "fetching"  #: its directory is being filled
    WAITING = "waiting"  #: ready, for a slot
    LINED = "lined up"  #: in an executor, to start in the slot of the next command that ends there
    RUNNING = "running"  #: its command runs
    PUSHING = "pushing"  #: outputs and logs are on their way
    STOPPING = "stopping"  #: told to end; the step that runs has not ended yet
    REPORTING = "reporting"  #: its report is spooled, the server has not acknowledged it
    GONE = "gone"  #: nothing left to do


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Fetched:
    """The directory holds everything the command needs."""


@dataclass(slots=True, frozen=True)
class StepFailed:
    """Fetching or pushing failed for good."""

    failure: Failure


@dataclass(slots=True, frozen=True)
class SlotGiven:
    """The command may start now."""


@dataclass(slots=True, frozen=True)
class LinedUp:
    """There is no slot, but room behind commands that end fast."""


@dataclass(slots=True, frozen=True)
class Began:
    """The command that was lined up runs, in the slot of one that is over."""


@dataclass(slots=True, frozen=True)
class Returned:
    """The command that was lined up has not begun, and will not."""


@dataclass(slots=True, frozen=True)
class Refused:
    """The command could not be started."""

    refusal: SpawnRefusal


@dataclass(slots=True, frozen=True)
class Ended:
    """The command, and everything it left behind, has ended."""

    end: CommandEnd
    is_followed: bool = False  #: a beginning of its logs was sent already, so all of them have to be


@dataclass(slots=True, frozen=True)
class Pushed:
    """Outputs and logs are on the server. `note` says what could not be stored but does not matter."""

    outputs: list[OutputMessage] = field(default_factory=list)
    kept: str = ""  #: node of what a failed attempt left
    note: str = ""


@dataclass(slots=True, frozen=True)
class LeaseGone:
    """The server refused an upload because the attempt is not ours any more; the step has ended with that."""


@dataclass(slots=True, frozen=True)
class Stopped:
    """The step that was told to stop has stopped."""


@dataclass(slots=True, frozen=True)
class Drop:
    """The attempt is not ours any more (discarded, lease lost): end it and say nothing."""


@dataclass(slots=True, frozen=True)
class Release:
    """Give the attempt back: end it and report it as released."""


@dataclass(slots=True, frozen=True)
class Acknowledged:
    """The server has answered the report, whatever it said."""


Event = (
    Fetched
    | StepFailed
    | SlotGiven
    | LinedUp
    | Began
    | Returned
    | Refused
    | Ended
    | Pushed
    | LeaseGone
    | Stopped
    | Drop
    | Release
    | Acknowledged
)

# --- instructions --------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Fetch:
    """Fill the directory."""


@dataclass(slots=True, frozen=True)
class Queue:
    """Put it in line for a slot; `refused` says that a start was just refused for want of something."""

    refused: bool = False
    keeps_slots: bool = False  #: for want of something that fewer commands would not leave free
    first: bool = False  #: it was first in the line already


@dataclass(slots=True, frozen=True)
class Start:
    """Start the command."""


@dataclass(slots=True, frozen=True)
class LineUp:
    """Let the command start when another one is over."""


@dataclass(slots=True, frozen=True)
class TakeSlot:
    """The command has the slot of one whose end is told next."""


@dataclass(slots=True, frozen=True)
class Kill:
    """End the command: TERM, grace, KILL."""


@dataclass(slots=True, frozen=True)
class GiveSlotBack:
    """The command is over; another may start."""


@dataclass(slots=True, frozen=True)
class Push:
    """Upload outputs (only of a command that did well), the full logs if they are worth it, and what is there
    of the outputs of a failed attempt if that is to be kept.
    """

    outputs: bool
    logs: bool
    left: bool = False


@dataclass(slots=True, frozen=True)
class StopStep:
    """Cancel the transfers of this attempt."""


@dataclass(slots=True, frozen=True)
class Report:
    """Spool and deliver the report."""

    failure: Failure | None = None
    released: bool = False
    outputs: list[OutputMessage] = field(default_factory=list)
    kept: str = ""
    note: str = ""


@dataclass(slots=True, frozen=True)
class Withdraw:
    """Take the report out of the spool."""


@dataclass(slots=True, frozen=True)
class Clean:
    """Remove the directory, or keep it a while for a person to look at."""

    keep: bool = False


@dataclass(slots=True, frozen=True)
class Forget:
    """The attempt is over."""


Instruction = (
    Fetch
    | Queue
    | Start
    | LineUp
    | TakeSlot
    | Kill
    | GiveSlotBack
    | Push
    | StopStep
    | Report
    | Withdraw
    | Clean
    | Forget
)
Instructions = tuple[Instruction, ...]


class IllegalEvent(Exception):
    """An event that cannot happen in the present stage: a bug in the shell around the machine."""


class Machine:
    """One attempt's stage and what must be remembered of it."""

    __slots__ = (
        "_dropped",
        "_failure",
        "_starts",
        "end",
        "has_outputs",
        "keep_failed",
        "must_prepare",
        "stage",
        "time_limit_s",
    )

    def __init__(
        self, *, must_prepare: bool, has_outputs: bool, time_limit_s: float, keep_failed: bool = False
    ) -> None:
        self.must_prepare = must_prepare
        self.has_outputs = has_outputs
        self.time_limit_s = time_limit_s
        self.keep_failed = keep_failed and has_outputs
        self.stage = Stage.FETCHING if must_prepare else Stage.WAITING
        self.end: CommandEnd | None = None
        self._failure: Failure | None = None
        self._dropped = False
        self._starts = 0

    def begin(self) -> Instructions:
        """The first instructions."""
        return (Fetch(),) if self.stage is Stage.FETCHING else (Queue(),)

    def handle(self, event: Event) -> Instructions:
        """Take one event. Raises IllegalEvent for a pair that is not in the table."""
        move = TABLE.get((self.stage, type(event)))
        if move is None:
            raise IllegalEvent(f"{type(event).__name__} while {self.stage}")
        return move(self, event)

    # --- moves -----------------------------------------------------------------------------------

    def _fetched(self, _: Event) -> Instructions:
        self.stage = Stage.WAITING
        return (Queue(),)

    def _start(self, _: Event) -> Instructions:
        self.stage = Stage.RUNNING
        self._starts += 1
        return (Start(),)

    def _line_up(self, _: Event) -> Instructions:
        self.stage = Stage.LINED
        return (LineUp(),)

    def _began(self, _: Event) -> Instructions:
        self.stage = Stage.RUNNING
        self._starts += 1
        return (TakeSlot(),)

    def _began_late(self, _: Event) -> Instructions:
        return (TakeSlot(),)

    def _returned(self, _: Event) -> Instructions:
        self.stage = Stage.WAITING
        return (Queue(first=True),)

    def _refused(self, event: Event) -> Instructions:
        assert isinstance(event, Refused)
        if event.refusal.is_exhaustion and self._starts < MAX_STARTS:
            self.stage = Stage.WAITING
            refusal = event.refusal
            return GiveSlotBack(), Queue(True, keeps_slots=refusal.stage == "disk" or refusal.is_executors)
        return (GiveSlotBack(), *self._report(Report(judge_refusal(event.refusal))))

    def _ended(self, event: Event) -> Instructions:
        assert isinstance(event, Ended)
        self.end = end = event.end
        self._failure = judge_end(end, self.time_limit_s)
        if self._failure is not None and self._failure.kind is FailureKind.RELEASED:
            return (GiveSlotBack(), *self._report(Report(released=True, note=self._failure.message)))
        has_log = bool(end.stdout_size or end.stderr_size)
        long_log = max(end.stdout_size, end.stderr_size) > MAX_TAIL_BYTES
        logs = long_log or (has_log and (self._failure is not None or event.is_followed))
        outputs = self.has_outputs and self._failure is None
        left = self._is_kept(self._failure)
        if not (logs or outputs or left):
            return (GiveSlotBack(), *self._report(Report(self._failure)))
        self.stage = Stage.PUSHING
        return GiveSlotBack(), Push(outputs, logs, left)

    def _is_kept(self, failure: Failure | None) -> bool:
        return self.keep_failed and failure is not None and failure.kind in KEPT_KINDS

    def _pushed(self, event: Event) -> Instructions:
        assert isinstance(event, Pushed)
        return self._report(Report(self._failure, outputs=event.outputs, kept=event.kept, note=event.note))

    def _push_failed(self, event: Event) -> Instructions:
        assert isinstance(event, StepFailed)
        if self._failure is None and self._is_kept(event.failure):
            self._failure = event.failure
            end = self.end
            return (Push(False, bool(end and (end.stdout_size or end.stderr_size)), left=True),)
        return self._step_failed(event)

    def _not_started(self, event: Event) -> Instructions:
        return (GiveSlotBack(), *self._step_failed(event))

    def _step_failed(self, event: Event) -> Instructions:
        assert isinstance(event, StepFailed)
        # The command's own failure says more than that its logs could not be stored.
        return self._report(Report(self._failure or event.failure))

    def _stop_step(self, event: Event) -> Instructions:
        self.stage = Stage.STOPPING
        self._dropped = isinstance(event, Drop)
        return (StopStep(),)

    def _kill(self, event: Event) -> Instructions:
        self.stage = Stage.STOPPING
        self._dropped = isinstance(event, Drop)
        return (Kill(),)

    def _drop_more(self, _: Event) -> Instructions:
        self._dropped = True
        return ()

    def _command_stopped(self, event: Event) -> Instructions:
        return (GiveSlotBack(), *self._stopped(event))

    def _stopped(self, _: Event) -> Instructions:
        return self._gone() if self._dropped else self._report(Report(released=True))

    def _dropped_idle(self, _: Event) -> Instructions:
        return self._gone()

    def _released_idle(self, _: Event) -> Instructions:
        return self._report(Report(released=True))

    def _withdraw(self, _: Event) -> Instructions:
        self.stage = Stage.GONE
        return Withdraw(), Forget()

    def _acknowledged(self, _: Event) -> Instructions:
        self.stage = Stage.GONE
        return (Forget(),)

    def _nothing(self, _: Event) -> Instructions:
        return ()

    def _report(self, report: Report) -> Instructions:
        self.stage = Stage.REPORTING
        if self.end is not None and self.end.tidied:
            return (report,)
        return report, Clean(keep=report.failure is not None)

    def _gone(self) -> Instructions:
        self.stage = Stage.GONE
        return Clean(), Forget()


Move = Callable[[Machine, Event], Instructions]

#: Every legal event of every stage. A step that is told to stop may still end by itself first; RUNNING and
#: LINED take StepFailed when the command's words cannot be made.
TABLE: dict[tuple[Stage, type[Event]], Move] = {
    (Stage.FETCHING, Fetched): Machine._fetched,
    (Stage.FETCHING, StepFailed): Machine._step_failed,
    (Stage.FETCHING, Drop): Machine._stop_step,
    (Stage.FETCHING, Release): Machine._stop_step,
    (Stage.WAITING, SlotGiven): Machine._start,
    (Stage.WAITING, Drop): Machine._dropped_idle,
    (Stage.WAITING, Release): Machine._released_idle,
    (Stage.WAITING, LinedUp): Machine._line_up,
    (Stage.LINED, StepFailed): Machine._step_failed,
    (Stage.LINED, Began): Machine._began,
    (Stage.LINED, Returned): Machine._returned,
    (Stage.LINED, Drop): Machine._kill,
    (Stage.LINED, Release): Machine._kill,
    (Stage.RUNNING, StepFailed): Machine._not_started,
    (Stage.RUNNING, Refused): Machine._refused,
    (Stage.RUNNING, Ended): Machine._ended,
    (Stage.RUNNING, Drop): Machine._kill,
    (Stage.RUNNING, Release): Machine._kill,
    (Stage.PUSHING, Pushed): Machine._pushed,
    (Stage.PUSHING, StepFailed): Machine._push_failed,
    (Stage.PUSHING, LeaseGone): Machine._dropped_idle,
    (Stage.PUSHING, Drop): Machine._stop_step,
    (Stage.PUSHING, Release): Machine._stop_step,
    (Stage.STOPPING, Fetched): Machine._stopped,
    (Stage.STOPPING, Pushed): Machine._stopped,
    (Stage.STOPPING, StepFailed): Machine._stopped,
    (Stage.STOPPING, LeaseGone): Machine._dropped_idle,
    (Stage.STOPPING, Stopped): Machine._stopped,
    (Stage.STOPPING, Began): Machine._began_late,
    (Stage.STOPPING, Returned): Machine._stopped,
    (Stage.STOPPING, Refused): Machine._command_stopped,
    (Stage.STOPPING, Ended): Machine._command_stopped,
    (Stage.STOPPING, Drop): Machine._drop_more,
    (Stage.STOPPING, Release): Machine._nothing,
    (Stage.REPORTING, Acknowledged): Machine._acknowledged,
    (Stage.REPORTING, Drop): Machine._withdraw,
    (Stage.REPORTING, Release): Machine._nothing,
}
