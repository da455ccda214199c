"""Start the commands of attempts, in a container where the task names an image, and tell how they ended."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from awe_client.daemon import machine as m
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.container import LABEL, Boxed
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.engine import Containers
from awe_client.daemon.environment import as_bytes, command_words, encode, own_environment
from awe_client.daemon.executor import ExecutorPool
from awe_client.daemon.frames import CommandSpec, Size
from awe_client.daemon.holding import Holding
from awe_client.daemon.live_logs import LiveLogs
from awe_client.daemon.outcome import CommandEnd, Failure, SpawnRefusal
from awe_client.daemon.workdir import WorkDirs
from shared_models.errors import InvalidDocument
from shared_models.limits import MAX_TAIL_BYTES
from shared_models.states import FailureKind

Tell = Callable[[Holding, m.Event], None]
_BEGAN = m.Began()


class Commands:
    """Runs commands in the executors. `tell` hears of every start that came to nothing, and of every end."""

    def __init__(
        self,
        executors: ExecutorPool,
        containers: Containers,
        *,
        workdirs: WorkDirs,
        disk: DiskWatch,
        live_logs: LiveLogs,
        work_root: Path,
        grace_s: float,
    ) -> None:
        self._executors = executors
        self._containers = containers
        self._workdirs = workdirs
        self._disk = disk
        self._live_logs = live_logs
        self._work_root = str(work_root)
        self._grace_s = grace_s
        self._endings: set[asyncio.Task[None]] = set()

    def start(self, holding: Holding, tell: Tell, disk_was_full: Callable[[Holding], None]) -> None:
        """Start a command; `disk_was_full` is called when it ends on a full disk, before the end is told."""
        spec = self._ready(holding, tell)
        if spec is None:
            return
        if self._workdirs.has_no_room:
            # Perhaps in a moment: directories of earlier attempts are being removed.
            refusal = SpawnRefusal("disk", errno.ENOSPC, b"")
            asyncio.get_running_loop().call_soon(tell, holding, m.Refused(refusal))
            return
        told = _Told(self, holding, tell, disk_was_full)
        holding.command = self._executors.run(spec, told.ended, _size_of(holding))

    def can_line_up(self, holding: Holding) -> bool:
        """Whether there is room for it behind commands that end fast."""
        task = holding.attempt.task
        is_plain = not (task.image or task.needs.gpus or self._workdirs.has_no_room)
        return is_plain and self._executors.can_line_up(_size_of(holding))

    def line_up(self, holding: Holding, tell: Tell, disk_was_full: Callable[[Holding], None]) -> None:
        """Let a command start in the place of the next one that ends, as there is room for it."""
        spec = self._ready(holding, tell)
        if spec is not None:
            told = _Told(self, holding, tell, disk_was_full)
            holding.command = self._executors.line_up(spec, told, _size_of(holding))

    def recall(self, holding: Holding) -> None:
        """Ask for a command that is lined up; nothing if it has begun."""
        holding.is_recalled = True
        self._executors.recall(holding.command)

    def _ready(self, holding: Holding, tell: Tell) -> CommandSpec | None:
        try:
            spec = self._spec(holding)
        except InvalidDocument as exc:
            tell(holding, m.StepFailed(Failure(FailureKind.COMMAND, str(exc))))
            return None
        holding.disk_was_full = holding.is_recalled = False
        holding.started_at = time.monotonic()
        return spec

    def kill(self, holding: Holding) -> None:
        """End a command: TERM, grace, KILL."""
        self._executors.kill(holding.command)

    async def close(self) -> None:
        """Wait until containers whose commands have ended are gone."""
        await asyncio.gather(*self._endings, return_exceptions=True)

    def end_container(
        self, holding: Holding, what: CommandEnd | SpawnRefusal, tell_end: Callable[[Any], None]
    ) -> None:
        """Remove the container before the end is told: nobody writes to an output any more."""

        async def finish() -> None:
            tell_end(await self._containers.finish(container_name(holding.attempt), what))

        ending = asyncio.ensure_future(finish())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def as_seen_here(self, holding: Holding, end: CommandEnd) -> CommandEnd:
        """An end, with what others have seen of the disk while the command ran."""
        if holding.disk_was_full:
            return replace(end, disk_was_full=True)
        if end.disk_was_full or self._disk.was_full_since(holding.started_at):
            return replace(end, disk_full=not holding.is_beside, disk_was_full=True)
        return end

    def has_sent_log(self, holding: Holding) -> bool:
        """Whether a beginning of its logs is at the server."""
        return self._live_logs.has_sent(holding.attempt.key)

    def _spec(self, holding: Holding) -> CommandSpec:
        attempt, task = holding.attempt, holding.attempt.task
        own = own_environment(attempt)
        stdin, stdout, stderr = task.streams
        spec = CommandSpec(
            argv=command_words(attempt, own),
            env={**task.common_env_bytes, **encode(own)},
            cwd=os.fsencode(attempt.folder),
            make_dir=not task.must_prepare,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            time_limit_s=holding.machine.time_limit_s,
            grace_s=self._grace_s,
            tail_bytes=MAX_TAIL_BYTES,
            tidy=not task.must_prepare and not task.must_push,
            memory_limit_bytes=task.needs.memory_bytes,
        )
        return self._boxed(holding, spec, own) if task.image else spec

    def _boxed(self, holding: Holding, spec: CommandSpec, own: dict[str, str]) -> CommandSpec:
        """The same command, started in a container."""
        attempt, task = holding.attempt, holding.attempt.task
        box = Boxed(
            image=task.image,
            name=container_name(attempt),
            labels={LABEL: self._work_root, "awe.id": attempt.id, "awe.attempt": str(attempt.number)},
            directory=attempt.folder,
            read_only=list(dict.fromkeys(str(link.path) for link in attempt.links)),
            words=[word.decode("utf-8", "surrogateescape") for word in spec.argv],
            env={**task.common_env, **own},
            private=set(task.message.get("private_env") or ()),
            reads_stdin=task.stdin is not None,
            cores=task.needs.cores,
            memory_bytes=task.needs.memory_bytes,
            gpus=task.needs.gpus,
            user=f"{os.geteuid()}:{os.getegid()}",
        )
        start = self._containers.launch(box, holding.image)
        return spec._replace(
            argv=[as_bytes(word) for word in start.words],
            env=encode(start.env),
            cleanup=[as_bytes(word) for word in start.cleanup],
            memory_limit_bytes=0 if start.limits_memory else spec.memory_limit_bytes,
        )


class _Told:
    """Hears of one command, and tells its attempt."""

    __slots__ = ("_commands", "_disk_was_full", "_holding", "_tell")

    def __init__(
        self, commands: Commands, holding: Holding, tell: Tell, disk_was_full: Callable[[Holding], None]
    ) -> None:
        self._commands = commands
        self._holding = holding
        self._tell = tell
        self._disk_was_full = disk_was_full

    def begins(self) -> None:
        self._tell(self._holding, _BEGAN)

    def returned(self) -> None:
        self._tell(self._holding, m.Returned())

    def ended(self, what: CommandEnd | SpawnRefusal) -> None:
        if self._holding.attempt.task.image:
            self._commands.end_container(self._holding, what, self._tell_end)
        else:
            self._tell_end(what)

    def _tell_end(self, what: CommandEnd | SpawnRefusal) -> None:
        holding, commands = self._holding, self._commands
        if isinstance(what, SpawnRefusal):
            self._tell(holding, m.Refused(what))
            return
        if what.disk_full:
            self._disk_was_full(holding)
        else:
            what = commands.as_seen_here(holding, what)
        self._tell(holding, m.Ended(what, commands.has_sent_log(holding)))


def _size_of(holding: Holding) -> Size:
    needs = holding.attempt.task.needs
    return needs.cores, needs.memory_bytes


def container_name(attempt: Attempt) -> str:
    """`awe_<workunit>.<attempt>`: unique on its machine, as workunits are."""
    return f"awe_{attempt.directory.name}"
