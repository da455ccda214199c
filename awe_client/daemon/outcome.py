"""What the end of a command means. Pure: facts from the executor in, a failure or none out."""

import errno
import math
import os
import signal
from dataclasses import dataclass, replace
from typing import Any

from awe_client.daemon.spawn import EXHAUSTED
from shared_models.messages import OutputMessage, ReportMessage
from shared_models.states import FailureKind

#: The machine's own fault, and it will not pass by itself.
_NODE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, *EXHAUSTED})
#: What lies under the name of a log forbids to write there: the document's fault, not the machine's.
_NAME_ERRNOS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
#: A command says with it that trying again makes no sense; the server acts on it.
PERMANENT_EXIT_CODE = 42


@dataclass(slots=True, frozen=True)
class Failure:
    """Why an attempt did not end well."""

    kind: FailureKind
    message: str
    exit_code: int | None = None
    signal: int | None = None
    #: Because of an input that it cannot have, or that was changed, or of what filled its disk: no client is
    #: blamed.
    out_of_reach: bool = False
    #: Of kind `node`: the command ran, and may be what ended the machine's part. The server bounds that.
    ran: bool = False


@dataclass(slots=True, frozen=True)
class CommandEnd:
    """What the executor saw of a command that ran, in the order in which it tells it."""

    exit_code: int | None
    signal: int | None
    reason: str  #: "killed", "timeout" or "memory" if we ended it
    oom: bool
    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int
    stdout_size: int
    stderr_size: int
    stdout_tail: bytes
    stderr_tail: bytes
    strays: int
    disk_full: bool  #: when it ended, or while it ran and no other attempt wrote
    tidied: bool
    used_bytes: int = 0  #: what its processes used when we ended it for memory
    memory_limit_bytes: int = 0
    disk_was_full: bool = False  #: at some moment while it ran; another attempt may have filled it
    spoilt: Failure | None = None  #: what it read was changed meanwhile; no executor knows that


@dataclass(slots=True, frozen=True)
class SpawnRefusal:
    """Why a command could not be started."""

    stage: str
    errno: int
    name: bytes

    @property
    def is_exhaustion(self) -> bool:
        """Whether trying again a little later makes sense."""
        return self.errno in EXHAUSTED or self.stage == "disk" or self.is_executors

    @property
    def is_executors(self) -> bool:
        """Whether what starts commands was not there, or killed before it began with this one."""
        return self.stage == "executor" and not self.is_end_of_executor

    @property
    def is_end_of_executor(self) -> bool:
        """Whether it is none: the command ran, or was about to begin, when what runs it was killed."""
        return self.stage == "executor" and self.errno == errno.EIO


def judge_end(end: CommandEnd, time_limit_s: float) -> Failure | None:
    """Say whether a command failed; only exit code 0 on a disk that always had room is success.

    How a command ended says nothing if it did not read what it was meant to. Who was only beside the one that
    filled the disk, and noticed nothing, has to be given back (`released`): it may have lost bytes, and that
    is nobody's fault. Who ends on a full disk, or failed beside it, may be the one: that counts for the
    workunit, so it cannot go on for ever.
    """
    if end.spoilt is not None:
        return replace(end.spoilt, exit_code=end.exit_code, signal=end.signal)
    if end.reason == "timeout":
        return Failure(
            FailureKind.TIMEOUT, f"ran into its time limit of {time_limit_s:g} s", end.exit_code, end.signal
        )
    if end.reason == "memory":
        used, limit = _mebibytes(end.used_bytes), _mebibytes(end.memory_limit_bytes)
        message = f"ran out of memory: used {used} MiB, its limit is {limit} MiB"
        return Failure(FailureKind.OOM, message, end.exit_code, end.signal)
    if end.signal is not None:
        return _died_by_signal(end)
    no_room = end.disk_full or (end.disk_was_full and end.exit_code)
    if no_room and end.exit_code != PERMANENT_EXIT_CODE:
        # Also after exit code 0: what was written last may be cut off, and its writer need not have noticed.
        message = f"no space left on the client's disk while the command ran ({_exit_message(end)})"
        return Failure(FailureKind.NODE, message, exit_code=end.exit_code, out_of_reach=True, ran=True)
    if end.disk_was_full and not end.exit_code:
        message = f"another workunit filled the client's disk while it ran ({_exit_message(end)})"
        return Failure(FailureKind.RELEASED, message, exit_code=end.exit_code)
    if end.exit_code:
        return Failure(FailureKind.COMMAND, _exit_message(end), exit_code=end.exit_code)
    return None


def judge_refusal(refusal: SpawnRefusal) -> Failure:
    """Say who is to blame for a command that could not be started.

    A program that is not there (or not executable) counts against the workunit, as exit code 127 (126) of a
    shell does, and not as a failure of this machine: the skip list sends the next attempt to another client
    anyway, a misspelled name ends after the usual number of failures instead of wandering for ever, and a
    client that lacks what others have is suspended by its own row of failures.
    """
    name = os.fsdecode(refusal.name)
    why = os.strerror(refusal.errno) if refusal.errno else "unknown reason"
    if refusal.stage == "disk":
        message = f"nothing could be started here: {why}"
        return Failure(FailureKind.NODE, message, out_of_reach=True)
    if refusal.is_end_of_executor:
        message = "the process that ran the command here was killed: by the command, or by what ran beside it"
        return Failure(FailureKind.NODE, message, out_of_reach=True, ran=True)
    if refusal.is_executors:
        message = f"the process that starts commands here is not there, or was killed before: {why}"
        return Failure(FailureKind.NODE, message, out_of_reach=True)
    if refusal.errno in _NODE_ERRNOS:
        return Failure(FailureKind.NODE, f"cannot start a process here ({refusal.stage}): {why}")
    if refusal.stage == "container":
        return Failure(FailureKind.NODE, f"cannot start a container here: {name}")
    if refusal.stage in ("program", "spawn"):
        if refusal.errno == errno.ENOENT:
            return Failure(FailureKind.COMMAND, f"command not found: {name} (or its interpreter)", 127)
        return Failure(FailureKind.COMMAND, f"cannot execute {name}: {why}", 126)
    if refusal.stage == "stdin":
        return Failure(FailureKind.COMMAND, f"cannot open standard input {name}: {why}")
    if refusal.stage in ("stdout", "stderr") and refusal.errno in _NAME_ERRNOS:
        return Failure(FailureKind.COMMAND, f"cannot write the {refusal.stage} of the command: {why}")
    return Failure(FailureKind.NODE, f"cannot prepare the {refusal.stage} of the command: {why}")


def report_of(
    key: tuple[str, int],
    token: str,
    *,
    failure: Failure | None = None,
    released: bool = False,
    end: CommandEnd | None = None,
    outputs: list[OutputMessage] | None = None,
    kept: str = "",
    note: str = "",
) -> ReportMessage:
    """Build the report of an attempt."""
    report: ReportMessage = {
        "work": key[0],
        "attempt": key[1],
        "token": token,
        "outcome": "released" if released else "failed" if failure else "done",
    }
    if failure is not None and not released:
        report["kind"] = str(failure.kind)
        report["exit_code"] = failure.exit_code
        report["signal"] = failure.signal
        if failure.out_of_reach:
            report["out_of_reach"] = True
        if failure.ran:
            report["ran"] = True
    message = "; ".join(text for text in (failure.message if failure else "", note) if text)
    if message:
        # A name of a file may be any bytes; on the wire there is only text.
        report["message"] = message.encode("utf-8", "replace").decode()
    if end is not None:
        if failure is None:
            report["exit_code"] = end.exit_code
        report["computetime_s"] = round(end.wall_s, 6)
        report["stdout_tail"] = end.stdout_tail.decode("utf-8", "replace")
        report["stderr_tail"] = end.stderr_tail.decode("utf-8", "replace")
        report["perf"] = _perf(end)
    if outputs:
        report["outputs"] = outputs
    if kept:
        report["kept"] = kept
    return report


def _perf(end: CommandEnd) -> dict[str, Any]:
    perf: dict[str, Any] = {
        "wall_s": round(end.wall_s, 6),
        "stdout_bytes": end.stdout_size,
        "stderr_bytes": end.stderr_size,
    }
    if end.peak_bytes:  # else nobody measured the command itself, as in a container
        perf["cpu_user_s"] = round(end.user_s, 6)
        perf["cpu_system_s"] = round(end.system_s, 6)
        perf["peak_memory_bytes"] = end.peak_bytes
    if end.strays:
        perf["strays_killed"] = end.strays
    return perf


def _died_by_signal(end: CommandEnd) -> Failure:
    assert end.signal is not None
    name = _signal_name(end.signal)
    if end.oom:
        message = f"killed by {name} while the kernel was killing for memory: ran out of memory"
        return Failure(FailureKind.OOM, message, signal=end.signal)
    message = f"killed by signal {end.signal} ({name})"
    if end.signal == signal.SIGKILL:
        message += "; if nobody killed it, a memory limit did"
    return Failure(FailureKind.SIGNAL, message, signal=end.signal)


def _exit_message(end: CommandEnd) -> str:
    assert end.exit_code is not None
    message = f"exit code {end.exit_code}"
    if end.exit_code == 127:
        message += " (a shell says so when a command was not found)"
    elif end.exit_code == 126:
        message += " (a shell says so when a file cannot be executed)"
    elif 128 < end.exit_code <= 128 + signal.SIGRTMAX:
        number = end.exit_code - 128
        message += (
            f" (a shell says so when its command was killed by signal {number}, {_signal_name(number)})"
        )
    last = end.stderr_tail.rstrip().rpartition(b"\n")[2][-300:].decode("utf-8", "replace")
    return f"{message}: {last}" if last else message


def _mebibytes(size: int) -> str:
    """Rounded up, so that what is above a limit also reads so."""
    return f"{math.ceil(size / 2**20 * 10) / 10:.1f}".removesuffix(".0")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
