"""The pure machine: every instruction of every event, and no event that is not in the table."""

from dataclasses import replace

import pytest

from awe_client.daemon import machine as m
from awe_client.daemon.outcome import CommandEnd, Failure, SpawnRefusal
from shared_models.limits import MAX_TAIL_BYTES
from shared_models.states import FailureKind

GOOD = CommandEnd(
    exit_code=0,
    signal=None,
    reason="",
    oom=False,
    wall_s=1.0,
    user_s=0.5,
    system_s=0.1,
    peak_bytes=10**6,
    stdout_size=0,
    stderr_size=0,
    stdout_tail=b"",
    stderr_tail=b"",
    strays=0,
    disk_full=False,
    tidied=False,
)
BAD = replace(GOOD, exit_code=1, stderr_size=4, stderr_tail=b"why\n")
BROKEN = Failure(FailureKind.INPUT, "no input")


def a_machine(stage: m.Stage = m.Stage.WAITING, *, prepare: bool = False, outputs: bool = False) -> m.Machine:
    machine = m.Machine(must_prepare=prepare, has_outputs=outputs, time_limit_s=0.0)
    machine.stage = stage
    return machine


def test_a_trivial_command_goes_straight_through() -> None:
    machine = m.Machine(must_prepare=False, has_outputs=False, time_limit_s=0.0)
    assert machine.begin() == (m.Queue(),)
    assert machine.handle(m.SlotGiven()) == (m.Start(),)
    assert machine.handle(m.Ended(replace(GOOD, tidied=True))) == (m.GiveSlotBack(), m.Report())
    assert machine.handle(m.Acknowledged()) == (m.Forget(),)
    assert machine.stage is m.Stage.GONE


def test_a_lined_up_command_has_a_slot_from_its_beginning_on() -> None:
    machine = a_machine()
    assert machine.handle(m.LinedUp()) == (m.LineUp(),)
    assert machine.handle(m.Returned()) == (m.Queue(first=True),)
    assert machine.handle(m.LinedUp()) == (m.LineUp(),)
    assert machine.handle(m.Began()) == (m.TakeSlot(),)
    assert machine.handle(m.Ended(replace(GOOD, tidied=True))) == (m.GiveSlotBack(), m.Report())


def test_a_lined_up_command_that_is_told_to_end_has_no_slot_to_give_back_unless_it_began() -> None:
    machine = a_machine(m.Stage.LINED)
    assert machine.handle(m.Release()) == (m.Kill(),)
    assert machine.handle(m.Returned()) == (m.Report(released=True), m.Clean(keep=False))
    machine = a_machine(m.Stage.LINED)
    assert machine.handle(m.Drop()) == (m.Kill(),)
    assert machine.handle(m.Began()) == (m.TakeSlot(),)
    assert machine.handle(m.Ended(GOOD)) == (m.GiveSlotBack(), m.Clean(keep=False), m.Forget())


def test_inputs_are_fetched_and_outputs_pushed_around_the_command() -> None:
    machine = m.Machine(must_prepare=True, has_outputs=True, time_limit_s=0.0)
    assert machine.begin() == (m.Fetch(),)
    assert machine.handle(m.Fetched()) == (m.Queue(),)
    assert machine.handle(m.SlotGiven()) == (m.Start(),)
    assert machine.handle(m.Ended(GOOD)) == (m.GiveSlotBack(), m.Push(outputs=True, logs=False))
    outputs = [{"filename": "o", "size": 1, "md5": "x"}]
    done = m.Report(outputs=outputs)  # type: ignore[arg-type]
    assert machine.handle(m.Pushed(outputs)) == (done, m.Clean(keep=False))  # type: ignore[arg-type]
    assert machine.stage is m.Stage.REPORTING


def test_a_failed_command_pushes_its_logs_and_never_its_outputs() -> None:
    machine = a_machine(m.Stage.RUNNING, outputs=True)
    assert machine.handle(m.Ended(BAD)) == (m.GiveSlotBack(), m.Push(outputs=False, logs=True))
    failure = Failure(FailureKind.COMMAND, "exit code 1: why", exit_code=1)
    assert machine.handle(m.Pushed()) == (m.Report(failure), m.Clean(keep=True))


def test_a_start_that_lacks_room_waits_for_it() -> None:
    machine = a_machine(m.Stage.RUNNING)
    refused = m.Refused(SpawnRefusal("disk", 28, b""))
    assert machine.handle(refused) == (m.GiveSlotBack(), m.Queue(refused=True, keeps_slots=True))


def test_a_victim_of_a_full_disk_is_given_back_and_pushes_nothing() -> None:
    for tidied in (False, True):
        machine = a_machine(m.Stage.RUNNING, outputs=True)
        end = replace(GOOD, stdout_size=9, disk_was_full=True, tidied=tidied)
        back, report, *rest = machine.handle(m.Ended(end))
        assert back == m.GiveSlotBack()
        assert isinstance(report, m.Report)
        assert report.released
        assert report.failure is None
        assert "filled the client's disk" in report.note
        assert rest == ([] if tidied else [m.Clean(keep=False)])


def test_a_failed_log_upload_does_not_hide_the_commands_own_failure() -> None:
    machine = a_machine(m.Stage.RUNNING)
    machine.handle(m.Ended(BAD))
    report = machine.handle(m.StepFailed(Failure(FailureKind.OUTPUT, "log refused")))[0]
    assert isinstance(report, m.Report)
    assert report.failure is not None
    assert report.failure.kind is FailureKind.COMMAND


def test_a_failure_without_any_log_is_reported_at_once() -> None:
    machine = a_machine(m.Stage.RUNNING)
    killed = replace(GOOD, exit_code=None, signal=9)
    give_back, report, clean = machine.handle(m.Ended(killed))
    assert (give_back, clean) == (m.GiveSlotBack(), m.Clean(keep=True))
    assert isinstance(report, m.Report)
    assert report.failure is not None
    assert report.failure.signal == 9


def test_a_log_longer_than_its_tail_is_pushed_also_after_success() -> None:
    machine = a_machine(m.Stage.RUNNING)
    long = replace(GOOD, stdout_size=MAX_TAIL_BYTES + 1)
    assert machine.handle(m.Ended(long)) == (m.GiveSlotBack(), m.Push(outputs=False, logs=True))


def test_a_failed_fetch_is_reported() -> None:
    machine = a_machine(m.Stage.FETCHING, prepare=True)
    assert machine.handle(m.StepFailed(BROKEN)) == (m.Report(BROKEN), m.Clean(keep=True))


def test_an_exhausted_machine_tries_again_a_few_times_and_then_gives_up() -> None:
    machine = a_machine()
    refused = m.Refused(SpawnRefusal("spawn", 24, b"true"))
    for _ in range(m.MAX_STARTS - 1):
        assert machine.handle(m.SlotGiven()) == (m.Start(),)
        assert machine.handle(refused) == (m.GiveSlotBack(), m.Queue(refused=True))
    machine.handle(m.SlotGiven())
    _, report, _ = machine.handle(refused)
    assert isinstance(report, m.Report)
    assert report.failure is not None
    assert report.failure.kind is FailureKind.NODE


def test_a_missing_program_is_not_tried_again() -> None:
    machine = a_machine(m.Stage.RUNNING)
    _, report, _ = machine.handle(m.Refused(SpawnRefusal("program", 2, b"bowtie2")))
    assert isinstance(report, m.Report)
    assert report.failure is not None
    assert (report.failure.kind, report.failure.exit_code) == (FailureKind.COMMAND, 127)


@pytest.mark.parametrize(
    ("stage", "stopping", "ends"),
    [
        (m.Stage.FETCHING, (m.StopStep(),), [m.Stopped(), m.Fetched(), m.StepFailed(BROKEN)]),
        (m.Stage.PUSHING, (m.StopStep(),), [m.Stopped(), m.Pushed(), m.StepFailed(BROKEN)]),
    ],
)
def test_a_dropped_transfer_ends_without_a_word(
    stage: m.Stage, stopping: m.Instructions, ends: list[m.Event]
) -> None:
    for end in ends:
        machine = a_machine(stage)
        assert machine.handle(m.Drop()) == stopping
        assert machine.handle(end) == (m.Clean(), m.Forget())


def test_a_dropped_command_is_killed_and_ends_without_a_word() -> None:
    for end in (m.Ended(GOOD), m.Refused(SpawnRefusal("spawn", 24, b""))):
        machine = a_machine(m.Stage.RUNNING)
        assert machine.handle(m.Drop()) == (m.Kill(),)
        assert machine.handle(end) == (m.GiveSlotBack(), m.Clean(), m.Forget())


def test_a_released_command_is_killed_and_reported_released() -> None:
    machine = a_machine(m.Stage.RUNNING)
    assert machine.handle(m.Release()) == (m.Kill(),)
    assert machine.handle(m.Ended(GOOD)) == (m.GiveSlotBack(), m.Report(released=True), m.Clean(keep=False))


def test_a_release_that_is_overtaken_by_a_discard_is_not_reported() -> None:
    machine = a_machine(m.Stage.RUNNING)
    machine.handle(m.Release())
    assert machine.handle(m.Drop()) == ()
    assert machine.handle(m.Release()) == ()
    assert machine.handle(m.Ended(GOOD)) == (m.GiveSlotBack(), m.Clean(), m.Forget())


def test_a_lost_lease_found_by_an_upload_ends_the_attempt() -> None:
    assert a_machine(m.Stage.PUSHING).handle(m.LeaseGone()) == (m.Clean(), m.Forget())
    machine = a_machine(m.Stage.PUSHING)
    machine.handle(m.Release())
    assert machine.handle(m.LeaseGone()) == (m.Clean(), m.Forget())


def test_what_waits_for_a_slot_can_be_dropped_or_released_at_once() -> None:
    assert a_machine().handle(m.Drop()) == (m.Clean(), m.Forget())
    assert a_machine().handle(m.Release()) == (m.Report(released=True), m.Clean(keep=False))


def test_a_discarded_report_is_withdrawn() -> None:
    machine = a_machine(m.Stage.REPORTING)
    assert machine.handle(m.Release()) == ()
    assert machine.handle(m.Drop()) == (m.Withdraw(), m.Forget())


EVENTS: list[m.Event] = [
    m.Fetched(),
    m.StepFailed(BROKEN),
    m.SlotGiven(),
    m.LinedUp(),
    m.Began(),
    m.Returned(),
    m.Refused(SpawnRefusal("spawn", 2, b"x")),
    m.Ended(GOOD),
    m.Pushed(),
    m.LeaseGone(),
    m.Stopped(),
    m.Drop(),
    m.Release(),
    m.Acknowledged(),
]


@pytest.mark.parametrize("stage", list(m.Stage))
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_is_in_the_table_or_illegal(stage: m.Stage, event: m.Event) -> None:
    machine = a_machine(stage)
    if (stage, type(event)) in m.TABLE:
        machine.handle(event)
    else:
        with pytest.raises(m.IllegalEvent, match=f"{type(event).__name__} while {stage}"):
            machine.handle(event)
        assert machine.stage is stage


@pytest.mark.parametrize("stage", [s for s in m.Stage if s is not m.Stage.GONE])
def test_every_stage_can_be_dropped_and_released(stage: m.Stage) -> None:
    assert (stage, m.Drop) in m.TABLE
    assert (stage, m.Release) in m.TABLE


@pytest.mark.parametrize("stage", [m.Stage.RUNNING, m.Stage.STOPPING])
def test_a_slot_is_given_back_exactly_when_a_command_is_over(stage: m.Stage) -> None:
    for (origin, kind), _ in m.TABLE.items():
        event = next(e for e in EVENTS if type(e) is kind)
        given_back = m.GiveSlotBack() in a_machine(origin).handle(event)
        over = kind in (m.Ended, m.Refused) or (origin is m.Stage.RUNNING and kind is m.StepFailed)
        assert given_back == over, (origin, kind)


def test_what_a_failed_command_left_is_kept_when_its_owner_asks() -> None:
    machine = m.Machine(must_prepare=False, has_outputs=True, time_limit_s=0.0, keep_failed=True)
    machine.stage = m.Stage.RUNNING
    assert machine.handle(m.Ended(BAD)) == (m.GiveSlotBack(), m.Push(outputs=False, logs=True, left=True))
    failure = Failure(FailureKind.COMMAND, "exit code 1: why", exit_code=1)
    assert machine.handle(m.Pushed(kept="n")) == (m.Report(failure, kept="n"), m.Clean(keep=True))


def test_outputs_that_cannot_be_taken_are_kept_once() -> None:
    machine = m.Machine(must_prepare=False, has_outputs=True, time_limit_s=0.0, keep_failed=True)
    machine.stage = m.Stage.RUNNING
    machine.handle(m.Ended(replace(GOOD, stdout_size=1)))
    missing = Failure(FailureKind.OUTPUT, "declared output o missing")
    assert machine.handle(m.StepFailed(missing)) == (m.Push(outputs=False, logs=True, left=True),)
    assert machine.handle(m.StepFailed(BROKEN)) == (m.Report(missing), m.Clean(keep=True))


@pytest.mark.parametrize("kind", [FailureKind.NODE, FailureKind.INPUT])
def test_nothing_is_kept_of_what_the_machine_or_an_input_spoiled(kind: FailureKind) -> None:
    machine = m.Machine(must_prepare=False, has_outputs=True, time_limit_s=0.0, keep_failed=True)
    machine.stage = m.Stage.RUNNING
    machine.handle(m.Ended(GOOD))
    failure = Failure(kind, "spoiled")
    assert machine.handle(m.StepFailed(failure)) == (m.Report(failure), m.Clean(keep=True))
