"""The daemon's executor processes: give commands to them, and start another when one is lost."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import time
from collections.abc import Coroutine
from typing import Any

from awe_client.daemon.begun import NEXT, RUN
from awe_client.daemon.cgroup import ControlGroup
from awe_client.daemon.frames import CommandSpec, Size
from awe_client.daemon.helper import AtOnce, Handed, Helper, OnEnd, Told
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.outcome import SpawnRefusal
from awe_client.daemon.own_threads import OwnThreads
from awe_client.daemon.proc import descendants, environ_of, parents, signal_process, state_of

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
#: So often somebody looks whether an executor was stopped (SIGSTOP), as each of its commands can do.
LOOK_S = 1.0
#: The group is ended, and its note removed, after so long, unless the work disk hangs.
GROUP_END_S = 10.0
ONE_CORE: Size = (1, 0)


class ExecutorPool:
    """A few executor processes; a command goes to the one with the least to do, of those not found stopped.

    A helper that dies is replaced.
    """

    def __init__(self, count: int, root: WorkRoot) -> None:
        """Prepare for `count` helpers.

        They keep directories for later use in `fresh`; those of all commands are below `attempts`.
        """
        self._count = count
        self._root = root
        self._folders = (str(root.fresh), str(root.attempts))
        self._group: ControlGroup | None = None
        self._group_in_use = False
        self._helpers: list[Helper] = []
        self._pids: set[int] = set()  # of all helpers from their birth until they are reaped
        self._thread = OwnThreads(1, "executors")
        self._key = 0
        self._of_key: dict[int, Helper] = {}
        self._roomiest: Helper | None = None  #: as the last question for room has found
        self._stopping = False
        self._was_refused = False  #: by this machine, the last time a helper was to be started
        self._restarts: set[asyncio.Task[None]] = set()
        self._next_look: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the processes. Raises OSError."""
        _become_subreaper()
        self._thread.start_all()
        make = ControlGroup.make
        self._group = await self._thread.run(make, self._root.incarnation, self._root.group_note)
        for _ in range(self._count):
            await self._start_helper()
        self._look_later()

    @property
    def is_there(self) -> bool:
        """Whether there is any helper, or will be at once: this machine may refuse to start another."""
        return bool(self._helpers) or not self._was_refused

    def run(self, spec: CommandSpec, on_end: OnEnd, size: Size = ONE_CORE) -> int:
        """Start a command; `on_end` is called once. Returns the key for `kill`."""
        self._key += 1
        if not self._helpers:
            refusal = SpawnRefusal("executor", errno.EAGAIN, b"")
            asyncio.get_running_loop().call_soon(on_end, refusal)
            return self._key
        helper = min(self._helpers, key=lambda h: (h.was_stopped, len(h.commands)))
        self._of_key[self._key] = helper
        helper.hand(self._key, spec, Handed(AtOnce(on_end), size, RUN))
        return self._key

    def can_line_up(self, size: Size) -> bool:
        """Whether commands of this size, and no others, run in some executor and end fast."""
        most, now, self._roomiest = 0, time.monotonic(), None
        for helper in self._helpers:
            room = helper.room_for(size, now)
            if room > most:
                self._roomiest, most = helper, room
        return most > 0

    def line_up(self, spec: CommandSpec, told: Told, size: Size) -> int:
        """Hand over a command for which there is room: it starts in the place of the next one that ends.

        Either `begins` is called and later `ended`, or `returned` and nothing else. Returns the key.
        """
        helper, self._roomiest = self._roomiest or self._helpers[0], None
        self._key += 1
        self._of_key[self._key] = helper
        helper.hand(self._key, spec, Handed(told, size, NEXT))
        return self._key

    def recall(self, key: int) -> None:
        """Ask for a command that was lined up; nothing if it has begun."""
        helper = self._of_key.get(key)
        if helper is not None:
            helper.send(("recall", key))

    def kill(self, key: int) -> None:
        """End a command: TERM to all its processes, grace, KILL. Nothing if it has ended.

        One that was lined up and has not begun is returned.
        """
        helper = self._of_key.get(key)
        if helper is not None:
            helper.send(("kill", key))

    async def stop(self) -> None:
        """End the processes and everything they run; some seconds at most, whatever state they are in."""
        self._stopping = True
        await asyncio.gather(*self._restarts, return_exceptions=True)
        if self._next_look is not None:
            self._next_look.cancel()
        for helper in self._helpers:
            helper.close()
        await asyncio.gather(*(self._reap(helper) for helper in self._helpers))
        self._helpers = []
        await self._end_orphans()
        if self._group is not None:
            await self._end_group(self._group)
        self._thread.shutdown(wait=False)

    async def _end_group(self, group: ControlGroup) -> None:
        """It removes a note from the work disk, which may hang."""
        try:
            await asyncio.wait_for(self._thread.run(group.end), GROUP_END_S)
        except TimeoutError:
            log.warning("control_group_not_ended", extra={"after_s": GROUP_END_S})

    async def _start_helper(self) -> None:
        """Raises OSError: then there is none."""
        helper = Helper.start(self._folders, self._ended, self._lost)
        self._pids.add(helper.pid)
        try:
            await helper.connect()
            if self._group is not None:
                await self._join(self._group, helper.pid)
        except BaseException:
            helper.close()
            await self._reap(helper)
            raise
        self._helpers.append(helper)
        if helper.is_gone:
            self._lost(helper)

    async def _join(self, group: ControlGroup, pid: int) -> None:
        """Put a helper into the group before it runs anything. One that takes nobody is given up.

        Later a refusal (no memory, say) costs no more than that what this helper's commands hide is found by
        what it shows: the group holds commands of others.
        """
        added = await self._thread.run(group.add, pid)
        if added == "in":
            self._group_in_use = True
        elif added == "refused" and self._group_in_use:
            log.warning("executor_not_in_group", extra={"pid": pid})
        elif added == "refused":
            self._group = None
            await self._end_group(group)

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Let helpers go on that were stopped; start those that could not be started when they were lost."""
        for helper in self._helpers:
            helper.let_go_on()
        if len(self._helpers) + len(self._restarts) < self._count and not self._stopping:
            self._in_background(self._start_another())
        self._look_later()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def _ended(self, key: int) -> None:
        self._of_key.pop(key, None)

    def _lost(self, helper: Helper) -> None:
        """A helper is gone. Its commands became our children: end them, tell, and start another helper."""
        if self._stopping or helper not in self._helpers:
            return
        log.error("executor_lost", extra={"pid": helper.pid, "commands": len(helper.commands)})
        self._helpers.remove(helper)
        self._in_background(self._replace(helper))

    async def _replace(self, helper: Helper) -> None:
        try:
            await self._reap(helper)
            await self._end_orphans()
        finally:
            helper.give_up()
        if not self._stopping:
            await self._start_another()

    async def _reap(self, helper: Helper) -> None:
        """Wait for its end. One that does not end even when killed is from now on an orphan like others."""
        try:
            await helper.wait()
        finally:
            self._pids.discard(helper.pid)

    async def _start_another(self) -> None:
        """Start a helper in the place of one that was lost; `_look` does it if this machine cannot now."""
        try:
            await self._start_helper()
            self._was_refused = False
        except (OSError, RuntimeError) as exc:  # no process, no thread
            self._was_refused = True
            log.warning("executor_not_started", extra={"error": str(exc), "left": len(self._helpers)})

    async def _end_orphans(self) -> None:
        """End commands that fell to us; their children fall to us when they die, so it takes some turns."""
        try:
            for _ in range(50):
                if not _kill_orphans(self._pids, self._group):
                    break
                await asyncio.sleep(0.02)
        except OSError as exc:
            log.error("orphans_not_ended", extra={"error": str(exc)})


def _become_subreaper() -> None:
    """Let the commands of an executor that is killed fall to us, so that we can end them."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_orphans(helpers: set[int], group: ControlGroup | None) -> int:
    """Kill and reap commands that fell to us. Returns how many there still were."""
    me, found = os.getpid(), 0
    parent_of = parents()
    started = group.pids() if group is not None else set()
    for pid, parent in parent_of.items():
        if parent == me and pid not in helpers and (pid in started or _is_command(pid)):
            found += 1
            for victim in [pid, *descendants(pid, parent_of)]:
                signal_process(victim, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return found


def _is_command(pid: int) -> bool:
    """Whether a child of ours is an attempt's process. A zombie shows no environment: it has to be reaped."""
    environ = environ_of(pid)
    if not environ:
        return state_of(pid) == "Z"
    return any(entry.startswith(b"AWE_WORK_ID=") for entry in environ)
