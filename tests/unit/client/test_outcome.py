"""What the end of a command means (P-02, F-13)."""

import errno
from dataclasses import replace

import pytest

from awe_client.daemon.outcome import CommandEnd, Failure, SpawnRefusal, judge_end, judge_refusal, report_of
from shared_models.messages import check_report
from shared_models.states import FailureKind
from tests.unit.client.test_machine import BAD, GOOD


def test_exit_code_0_is_success() -> None:
    assert judge_end(GOOD, 0) is None


@pytest.mark.parametrize("code", [1, 2, 42, 126, 127, 128, 137, 255])
def test_P_02_every_other_exit_code_is_the_commands_failure(code: int) -> None:
    failure = judge_end(replace(GOOD, exit_code=code), 0)
    assert failure is not None
    assert (failure.kind, failure.exit_code, failure.signal) == (FailureKind.COMMAND, code, None)


def test_a_time_limit_is_a_timeout_even_if_the_command_then_exits_well() -> None:
    failure = judge_end(replace(GOOD, reason="timeout"), 5)
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    "end",
    [
        GOOD,
        BAD,
        replace(GOOD, exit_code=42),
        replace(GOOD, exit_code=None, signal=7),
        replace(GOOD, reason="memory"),
    ],
)
def test_how_a_command_ended_says_nothing_if_what_it_read_was_changed(end: CommandEnd) -> None:
    spoilt = Failure(FailureKind.NODE, "db.txt was changed")
    failure = judge_end(replace(end, spoilt=spoilt), 5)
    assert failure == replace(spoilt, exit_code=end.exit_code, signal=end.signal)


def test_a_kill_without_a_culprit_hints_at_memory_and_with_evidence_says_so() -> None:
    killed = replace(GOOD, exit_code=None, signal=9)
    plain, proven = judge_end(killed, 0), judge_end(replace(killed, oom=True), 0)
    assert plain is not None
    assert proven is not None
    assert (plain.kind, proven.kind) == (FailureKind.SIGNAL, FailureKind.OOM)
    assert "memory limit" in plain.message
    assert proven.signal == 9


@pytest.mark.parametrize(
    ("used", "says"),
    [
        (812 << 20, "used 812 MiB, its limit is 512 MiB"),
        ((512 << 20) + 1, "used 512.1 MiB, its limit is 512"),
    ],
)
def test_a_command_ended_for_memory_says_how_much_it_used_and_might(used: int, says: str) -> None:
    end = replace(GOOD, signal=9, reason="memory", used_bytes=used, memory_limit_bytes=512 << 20)
    failure = judge_end(end, 0)
    assert failure is not None
    assert failure.kind is FailureKind.OOM
    assert says in failure.message


def test_a_signal_without_a_name_is_numbered() -> None:
    failure = judge_end(replace(GOOD, exit_code=None, signal=40), 0)
    assert failure is not None
    assert "killed by signal 40" in failure.message


def test_a_full_disk_spoils_success_and_excuses_failure_but_not_a_permanent_one() -> None:
    for code in (0, 1):
        failure = judge_end(replace(GOOD, exit_code=code, disk_full=True), 0)
        assert failure is not None
        assert failure.kind is FailureKind.NODE
        assert failure.out_of_reach, "room comes back with its directory: the client is fine"
        assert failure.ran, "it may be the one that filled it"
        assert "no space left" in failure.message
    failure = judge_end(replace(GOOD, exit_code=42, disk_full=True), 0)
    assert failure is not None
    assert failure.kind is FailureKind.COMMAND


def test_who_ran_well_while_another_filled_the_disk_is_given_back() -> None:
    failure = judge_end(replace(GOOD, disk_was_full=True), 0)
    assert failure is not None
    assert failure.kind is FailureKind.RELEASED
    assert "another workunit filled the client's disk" in failure.message
    # Who removes what filled it, and fails, must not go round for ever.
    failure = judge_end(replace(GOOD, exit_code=1, disk_was_full=True), 0)
    assert failure is not None
    assert (failure.kind, failure.out_of_reach) == (FailureKind.NODE, True)
    for end, kind in (
        (replace(GOOD, disk_was_full=True, exit_code=42), FailureKind.COMMAND),
        (replace(GOOD, disk_was_full=True, reason="timeout"), FailureKind.TIMEOUT),
        (replace(GOOD, disk_was_full=True, disk_full=True), FailureKind.NODE),
    ):
        failure = judge_end(end, 0)
        assert failure is not None
        assert failure.kind is kind


def test_a_start_that_waits_for_room_in_vain_blames_no_client() -> None:
    assert judge_refusal(SpawnRefusal("disk", errno.ENOSPC, b"")).out_of_reach
    assert not judge_refusal(SpawnRefusal("spawn", errno.ENOSPC, b"")).out_of_reach


def test_only_a_command_that_ran_may_have_ended_what_ran_it() -> None:
    lost = judge_refusal(SpawnRefusal("executor", errno.EIO, b""))
    assert (lost.kind, lost.ran, lost.out_of_reach) == (FailureKind.NODE, True, True)
    assert report_of(("w", 1), "t", failure=lost)["ran"] is True
    for stage, number in (("executor", errno.EAGAIN), ("spawn", errno.EIO), ("disk", errno.ENOSPC)):
        refused = judge_refusal(SpawnRefusal(stage, number, b""))
        assert (refused.kind, refused.ran) == (FailureKind.NODE, False)
        assert "ran" not in report_of(("w", 1), "t", failure=refused)


@pytest.mark.parametrize(
    ("stage", "number", "kind", "exit_code"),
    [
        ("program", errno.ENOENT, FailureKind.COMMAND, 127),
        ("program", errno.EACCES, FailureKind.COMMAND, 126),
        ("spawn", errno.ENOEXEC, FailureKind.COMMAND, 126),
        ("spawn", errno.E2BIG, FailureKind.COMMAND, 126),
        ("spawn", errno.EMFILE, FailureKind.NODE, None),
        ("spawn", errno.EAGAIN, FailureKind.NODE, None),
        ("stdout", errno.ENOSPC, FailureKind.NODE, None),
        ("directory", errno.EACCES, FailureKind.NODE, None),
        ("stdin", errno.ENOENT, FailureKind.COMMAND, None),
    ],
)
def test_who_is_to_blame_for_a_command_that_did_not_start(
    stage: str, number: int, kind: FailureKind, exit_code: int | None
) -> None:
    failure = judge_refusal(SpawnRefusal(stage, number, b"the-file"))
    assert (failure.kind, failure.exit_code) == (kind, exit_code)
    if kind is FailureKind.COMMAND:
        assert "the-file" in failure.message


def odd_message() -> str:
    failure = judge_refusal(SpawnRefusal("program", errno.EACCES, b"caf\xe9"))
    return str(report_of(("w", 1), "t", failure=failure)["message"])


def test_reports_are_what_the_server_accepts() -> None:
    key = ("6a1f0c1e-0000-4000-8000-000000000000_t_1", 3)
    failure = judge_end(BAD, 0)
    failed = check_report(report_of(key, "tok", failure=failure, end=BAD, note="log not stored"))
    assert (failed.outcome, failed.kind, failed.exit_code) == ("failed", FailureKind.COMMAND, 1)
    assert failed.message == "exit code 1: why; log not stored"
    done = check_report(report_of(key, "tok", end=replace(GOOD, strays=2)))
    assert (done.outcome, done.exit_code, done.computetime_s) == ("done", 0, 1.0)
    assert done.perf["strays_killed"] == 2
    assert odd_message() == "cannot execute caf?: Permission denied"
    released = check_report(report_of(key, "tok", released=True, failure=failure))
    assert (released.outcome, released.kind) == ("released", None)


def test_a_command_that_an_executor_never_took_up_is_tried_again_and_nobody_is_blamed() -> None:
    for number in (errno.EPIPE, errno.EAGAIN):
        refusal = SpawnRefusal("executor", number, b"")
        assert refusal.is_exhaustion
        failure = judge_refusal(refusal)
        assert (failure.kind, failure.out_of_reach, failure.ran) == (FailureKind.NODE, True, False)
