"""Upload what a command left: declared outputs, and the full logs when their tails are not all of them.

Outputs on a shared file system are put there, beside their targets.
"""

import errno
import json
import logging
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from awe_client.api import AsyncAweClient
from awe_client.daemon.archive import NotKept
from awe_client.daemon.attempt import WITHOUT_FILE, Attempt
from awe_client.daemon.outcome import CommandEnd
from awe_client.daemon.outputs import Found, find_left, find_outputs, full_name, words_of
from awe_client.daemon.progress import Meter, MeteredBody
from awe_client.daemon.servers import Patience, Servers
from awe_client.daemon.spawn import EXHAUSTED
from awe_client.daemon.staging import OutputUnreadable, Stager, TargetBusy, TargetRefused
from awe_client.daemon.transfer import StepError
from awe_client.daemon.upload import Upload
from awe_client.daemon.workdir import NotInside, find
from awe_client.sdk.bodies import CountedBody, FileBody
from awe_client.sdk.download_errors import OutOfReach
from awe_client.sdk.http_source import worth_retrying
from awe_client.sdk.threads import file_work
from awe_client.sdk.work import LogName
from shared_models.errors import AweError, LeaseLost, NoSpace, NotFound, ServerUnreachable
from shared_models.file_urls import is_file_url
from shared_models.limits import MAX_ATTRIBUTES_BYTES, MAX_LOG_BYTES
from shared_models.messages import OutputMessage
from shared_models.states import FailureKind

log = logging.getLogger(__name__)

UPLOAD_MISMATCHES = 3
INTERNAL_ERRORS = 4
_LEFT = "what it left"  #: of the outputs, when it failed
T = TypeVar("T")


class Pusher:
    """Uploads with endless patience for the server and none for a lost lease."""

    def __init__(self, servers: Servers, file_roots: Sequence[str] = ()) -> None:
        self._servers = servers
        self._stager = Stager(file_roots)

    async def push_outputs(self, attempt: Attempt, meter: Meter) -> list[OutputMessage]:
        """Upload all declared outputs. Raises StepError and LeaseLost.

        All are looked at before any is uploaded: an attempt that lacks one uploads nothing.
        """
        found = await file_work(find_outputs, attempt)
        for one in found:
            meter.expect(one.output["filename"], (await _body_of(one)).size)
        uploaded: list[OutputMessage] = []
        for one in found:
            if is_file_url(one.output.get("url") or ""):
                uploaded.append(await self._stage(attempt, one, meter))
            else:
                uploaded.append(await self._upload(attempt, one, meter))
        there = {one.output["filename"] for one in found}
        for output in attempt.task.message["outputs"]:
            has_file = output.get("type") not in WITHOUT_FILE
            if output.get("attrfile") and attempt.rank < 2 and (output["filename"] in there or not has_file):
                await self._attributes(attempt, output, meter)
        return uploaded

    async def push_left(self, attempt: Attempt, meter: Meter) -> tuple[str, str]:
        """Upload what a failed attempt left of its outputs; its node, or why none. Raises LeaseLost."""
        try:
            left = await file_work(find_left, attempt)
            if left is None:
                return "", ""
            meter.expect(_LEFT, left.size)
            body = MeteredBody(left, meter.follow(_LEFT))
            node = await self._insist(
                lambda server: server.keep_failed(
                    body, workunit_id=attempt.id, attempt=attempt.number, token=attempt.token
                ),
                "archive of what it left",
                meter,
            )
        except (NotKept, OSError, StepError) as exc:
            return "", f"what it left could not be kept: {words_of(exc)}"
        return node.id, ""

    async def _upload(self, attempt: Attempt, found: Found, meter: Meter) -> OutputMessage:
        name, node = found.output["filename"], found.output.get("node") or ""
        mismatches = 0
        while True:
            body = await _body_of(found)
            patience = self._servers.patience()
            upload = Upload(attempt, node, body, meter.follow(name), patience.reset)
            fact = await self._insist(upload, f"output {name} ({body.size / 1e6:,.1f} MB)", meter, patience)
            if not body.md5 or fact.md5 in ("", body.md5):
                return {"filename": name, "size": body.size, "md5": fact.md5 or body.md5}
            mismatches += 1
            if mismatches >= UPLOAD_MISMATCHES:
                raise StepError(
                    FailureKind.OUTPUT, f"output {name} arrived {mismatches} times with other bytes"
                )

    async def _stage(self, attempt: Attempt, found: Found, meter: Meter) -> OutputMessage:
        """Put an output beside its target on a shared file system. Raises StepError."""
        name, patience = found.output["filename"], self._servers.patience()
        while True:
            try:
                size, md5 = await self._stager.stage(attempt, found.output["url"], found, meter.follow(name))
                meter.waits("")
                return {"filename": name, "size": size, "md5": md5}
            except OutOfReach as exc:
                raise StepError(FailureKind.NODE, f"output {name}: {exc}") from exc
            except OutputUnreadable as exc:
                raise StepError(FailureKind.OUTPUT, f"output {name}: {exc}") from exc
            except TargetRefused as exc:
                raise StepError(FailureKind.OUTPUT, f"output {name} was refused: {exc}") from exc
            except TargetBusy as exc:
                log.info("staging_retried", extra={"output": name, "error": str(exc)})
                meter.waits(f"its output {name} cannot be put there for now: {exc}")
                await patience.wait(exc)

    async def _attributes(self, attempt: Attempt, output: Mapping[str, Any], meter: Meter) -> None:
        """Store a JSON file that the command wrote as the node's attributes; missing or empty: nothing.

        Source: AWE lib/shock/shock.go PutOrPostFile (attrfile, rank < 2).
        """
        try:
            attributes = await file_work(read_attributes, attempt, output)
        except FileNotFoundError:
            return
        except (NotInside, OSError, ValueError, RecursionError) as exc:
            raise StepError(
                FailureKind.OUTPUT, f"attribute file {output['attrfile']}: {words_of(exc)}"
            ) from exc
        if attributes is not None:
            await self._insist(
                lambda server: server.set_output_attributes(
                    output["node"],
                    attributes,
                    workunit_id=attempt.id,
                    attempt=attempt.number,
                    token=attempt.token,
                ),
                f"attribute file of output {output['filename']}",
                meter,
            )

    async def push_logs(self, attempt: Attempt, end: CommandEnd, meter: Meter) -> str:
        """Upload the full logs; returns what a person should know if one could not be stored."""
        notes = []
        logs: dict[LogName, tuple[str, bytes]] = {
            "stdout": (attempt.task.stdout, end.stdout_tail),
            "stderr": (attempt.task.stderr, end.stderr_tail),
        }
        for kind, (name, tail) in logs.items():
            if kind == "stderr" and name == attempt.task.stdout:
                continue
            try:
                # The executor removes only directories whose logs are no longer than their tails.
                body = tail if end.tidied else await _log_body(attempt, name)
                await self._push_log(attempt, kind, body, meter)
            except StepError as exc:
                notes.append(str(exc))
        return "; ".join(notes)

    async def _push_log(self, attempt: Attempt, kind: LogName, body: FileBody | bytes, meter: Meter) -> None:
        if isinstance(body, bytes) and not body:
            return
        await self._insist(
            lambda server: server.write_log(
                attempt.id, kind, body, attempt=attempt.number, token=attempt.token, offset=0
            ),
            f"full {kind}",
            meter,
        )

    async def _insist(
        self,
        call: Callable[[AsyncAweClient], Awaitable[T]],
        what: str,
        meter: Meter,
        patience: Patience | None = None,
    ) -> T:
        """Repeat a call until an awe-server takes it. Raises LeaseLost, and StepError for a refusal.

        `meter` is told what keeps it waiting.
        """
        patience = patience or self._servers.patience()
        while True:
            server = self._servers.current
            try:
                done = await call(server)
                meter.waits("")
                return done
            except LeaseLost:
                raise
            except NotFound as exc:
                if exc.code == "workunit_not_found":
                    raise LeaseLost(str(exc)) from exc
                raise StepError(FailureKind.OUTPUT, f"{what} was refused: {exc}") from exc
            except AweError as exc:
                # Nobody answered, or a stranger did: a proxy that has no server behind it at the moment.
                no_server = isinstance(exc, ServerUnreachable)
                # An internal error of the server may pass, or be told again for ever.
                passing = worth_retrying(exc.fields.get("status", 0)) and patience.failures < INTERNAL_ERRORS
                if not (exc.retryable or no_server or passing):
                    raise StepError(FailureKind.OUTPUT, f"{what} was refused: {exc}") from exc
                self._servers.failed(server, exc)
                log.info("push_retried", extra={"what": what, "error": str(exc)})
                meter.waits(f"its {what} is {'not taken' if no_server else 'refused'} for now: {exc}")
                pause = patience.wait(exc)
                # Room may come in hours; what is smaller, or goes elsewhere, need not wait for it.
                await (meter.stand_aside(pause) if isinstance(exc, NoSpace) else pause)
            except OSError as exc:
                raise StepError(
                    _at_fault(exc), f"cannot read what the command wrote: {exc.strerror}"
                ) from exc


async def _body_of(found: Found) -> CountedBody:
    """The bytes of an output that was there when it was looked for. Raises StepError if it is no more."""
    try:
        return await file_work(found.body)
    except OSError as exc:
        raise StepError(
            _at_fault(exc), f"output {full_name(found.output)} cannot be read any more: {words_of(exc)}"
        ) from exc


def _at_fault(exc: OSError) -> FailureKind:
    """What is at fault when a file that the command wrote cannot be read: it, or the machine."""
    is_machines = exc.errno in EXHAUSTED or exc.errno == errno.EIO
    return FailureKind.NODE if is_machines else FailureKind.OUTPUT


def read_attributes(attempt: Attempt, output: Mapping[str, Any]) -> Any:
    """What the attribute file of an output says; None if it is empty.

    Raises NotInside, OSError (FileNotFoundError: there is none), ValueError, RecursionError. Nothing but a
    plain file of bounded size is opened: a pipe would never end, and a large file would fill our memory.
    """
    path = find(attempt.directory, output["attrfile"], output.get("directory") or "")
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise ValueError("is not a plain file")
    if info.st_size > MAX_ATTRIBUTES_BYTES:
        raise ValueError(f"has {info.st_size} bytes; {MAX_ATTRIBUTES_BYTES} are allowed")
    text = path.read_bytes()
    return json.loads(text) if text.strip() else None


async def _log_body(attempt: Attempt, name: str) -> FileBody | bytes:
    """The file of a log, bounded; no bytes if there are none."""
    try:
        path = await file_work(find, attempt.directory, name)
        body = await file_work(FileBody, path, max_bytes=MAX_LOG_BYTES)
    except (NotInside, OSError):
        return b""
    return body if body.size else b""
