"""One daemon from start to end: puts the rooms together, asks for work, drains, and leaves nothing behind."""

import asyncio
import logging
import os
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from awe_client.daemon import machine as m
from awe_client.daemon.attempt import AttemptKey, TaskSpec, from_grant
from awe_client.daemon.cache import Cache
from awe_client.daemon.commands import Commands
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.engine import Containers
from awe_client.daemon.environment import inherited
from awe_client.daemon.exchange import ExchangeLoop
from awe_client.daemon.executor import ExecutorPool
from awe_client.daemon.fetch import Fetcher
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.images import Images
from awe_client.daemon.leftovers import kill_leftovers
from awe_client.daemon.live_logs import LiveLogs
from awe_client.daemon.push import Pusher
from awe_client.daemon.resources import Capacity, Totals, detect_gpus, detect_memory
from awe_client.daemon.servers import Servers
from awe_client.daemon.settings import Settings
from awe_client.daemon.spool import Spool
from awe_client.daemon.transfer import Sources
from awe_client.daemon.work_disk import WorkDisk
from awe_client.daemon.workdir import WorkDirs
from awe_client.daemon.workshop import Workshop
from shared_models.messages import FreeMessage, ProgressRow, ReplyMessage, WaitsRow

log = logging.getLogger(__name__)

#: After the last command, results are offered to an unreachable server for so long; they stay in the spool.
DELIVER_S = 30.0
DELIVER_HURRIED_S = 3.0
NOTHING_TO_DELIVER_S = 0.5
#: A release waits for so long beyond the grace of commands; then whatever still runs is killed.
RELEASE_S = 30.0
SWEEP_S = 60.0
#: A work disk that gives no answer for so long hangs.
LOOK_S = 5.0
#: So often the server is told how far transfers are, if no other exchange does.
PROGRESS_S = 5.0
SUSPENDED_WAIT_S = 2.0


class Daemon:
    """A client. `run` returns the exit code; `drain` and `release` may be called from a signal handler."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = WorkRoot(settings.work)
        self._disk = DiskWatch(self._root.attempts)
        self._work_disk = WorkDisk(self._root, lambda: self._loop.notify())
        self._spool = Spool(self._root.spool, self._disk.before_removal)
        self._servers = Servers(
            settings.servers,
            authorization=settings.authorization,
            transfer_timeout_s=settings.transfer_timeout_s,
            transfers=settings.transfers,
        )
        self._sources = Sources(
            self._servers,
            timeout_s=settings.transfer_timeout_s,
            file_roots=settings.file_roots,
            before_removal=self._disk.before_removal,
        )
        self._cache = Cache(self._root.cache, settings.cache_bytes, self._disk)
        self._workdirs = WorkDirs(self._root.attempts, settings.keep_failed_s, self._disk)
        self._executors = ExecutorPool(max(min(settings.executors, settings.slots), 1), self._root)
        self._totals = Totals(
            settings.slots, settings.memory_bytes or detect_memory(), settings.gpus or detect_gpus()
        )
        self._capacity = Capacity(self._totals)
        self._containers = Containers(self._root.path)
        self._images = Images(
            self._containers, self._servers, self._sources, self._root.images, self._disk.before_removal
        )
        live_logs = LiveLogs(self._servers)
        self._commands = Commands(
            self._executors,
            self._containers,
            workdirs=self._workdirs,
            disk=self._disk,
            live_logs=live_logs,
            work_root=self._root.path,
            grace_s=settings.grace_s,
        )
        self._loop = ExchangeLoop(self._servers, self._root, self._work_disk, self._spool, self)
        self._workshop = Workshop(
            fetcher=Fetcher(self._servers, self._sources, self._cache, settings.free_floor_bytes),
            pusher=Pusher(self._servers, settings.file_roots),
            commands=self._commands,
            images=self._images,
            workdirs=self._workdirs,
            spool=self._spool,
            capacity=self._capacity,
            live_logs=live_logs,
            transfers=settings.transfers,
            on_news=self._loop.notify,
        )
        self._base_env = inherited(os.environ)
        self._draining = False
        self._hurried = False
        self._suspended = False
        self._disk_is_low = False
        self._disk_told = 0  #: free bytes, when the newest exchange was made up
        self._busy_at = time.monotonic()
        self._spooled: list[AttemptKey] = []
        self._done_working = asyncio.Event()

    async def run(self) -> int:
        """Work until told to stop.

        Raises WorkRootUnusable, WorkRootLost if another daemon takes the directory meanwhile, EngineMissing,
        and AweError when the server refuses us.
        """
        self._root.open()
        try:
            self._work_disk.open()
            self._spooled = self._spool.open()
            self._cache.open()
            self._images.open()
            await self._containers.open(self._settings.containers)
            left = (self._root.attempts, self._root.group_note)
            if killed := await asyncio.to_thread(kill_leftovers, *left):
                log.warning("leftovers_killed", extra={"processes": killed})
            await self._workdirs.remove_old(self._root.fresh)
            try:
                await self._executors.start()
                await self._exchange_until_done()
            finally:
                await self._shut()
        finally:
            self._work_disk.close()
            self._root.close()
        return 0

    async def _exchange_until_done(self) -> None:
        """Run the exchange loop; once the work is over, give it only so long to deliver what is left."""
        timers = asyncio.ensure_future(self._timers())
        loop = asyncio.ensure_future(self._loop.run())
        work_over = asyncio.ensure_future(self._done_working.wait())
        try:
            await asyncio.wait((loop, work_over), return_when=asyncio.FIRST_COMPLETED)
            await self._work_disk.require_ours(LOOK_S)
            if not loop.done():
                await asyncio.wait((loop,), timeout=self._delivery_s())
            if loop.done():
                loop.result()
            elif not self._spool.is_empty:
                log.warning("results_stay_in_spool", extra={"results": len(self._spool.reports())})
        finally:
            for task in (timers, loop, work_over):
                task.cancel()
            await asyncio.gather(timers, loop, work_over, return_exceptions=True)

    def _delivery_s(self) -> float:
        """How long the end may still take.

        The server may be away, and then there is no use in waiting long.
        """
        if self._spool.is_empty:
            return NOTHING_TO_DELIVER_S
        return DELIVER_HURRIED_S if self._hurried else DELIVER_S

    async def _shut(self) -> None:
        """End all that is ours, and nothing of another daemon that has taken the directory."""
        await self._work_disk.look(LOOK_S)
        has_root = self._work_disk.is_ours
        if not has_root:
            self._spool.abandon()
        await self._executors.stop()
        await self._commands.close()
        if has_root:
            await self._containers.close()
        await self._workshop.close()
        await self._loop.close()
        await self._cache.close()
        await self._workdirs.close()
        await self._sources.close()
        await self._servers.close()
        await self._spool.end()
        log.info("stopped")

    # --- ends ------------------------------------------------------------------------------------

    def drain(self, reason: str) -> None:
        """Finish what runs, take nothing new, then end."""
        if not self._draining:
            log.info("draining", extra={"reason": reason})
            self._draining = True
            self._workshop.release_unstarted()
            self._check_done()
            self._loop.notify()

    def release(self, reason: str) -> None:
        """End what runs, give it back, then end."""
        self.drain(reason)
        log.info("releasing", extra={"reason": reason})
        if not self._hurried:
            self._hurried = True
            asyncio.get_running_loop().call_later(self._settings.grace_s + RELEASE_S, self._give_up)
        self._workshop.release_all()
        self._check_done()

    def interrupt(self, reason: str) -> None:
        """What a signal does: drain the first time, release the second."""
        if self._draining:
            self.release(reason)
        else:
            self.drain(reason)

    def _check_done(self) -> None:
        if self._draining and not self._workshop.is_working:
            self._done_working.set()

    def _give_up(self) -> None:
        """Wait no longer for what does not end, as an executor with a disk that hangs."""
        if not self._done_working.is_set():
            log.error("release_overdue", extra={"holds": len(self._workshop.held_keys())})
            self._done_working.set()

    async def _timers(self) -> None:
        """Wall time, idle time, looks at the disk, and the sweeping of kept directories."""
        started = time.monotonic()
        drain_s, release_s = wall_limits(self._settings.wall_time_s, self._settings.grace_s)
        idle_s = self._settings.idle_exit_s
        swept = started
        pause_s = min([SWEEP_S, *(limit / 10 for limit in (idle_s, self._settings.wall_time_s) if limit > 0)])
        while True:
            now = time.monotonic()
            if drain_s and now - started >= release_s and not self._hurried:
                self.release("wall time")
            elif drain_s and now - started >= drain_s:
                self.drain("wall time")
            if not (self._workshop.is_empty and self._spool.is_empty):
                self._busy_at = now
            elif idle_s and now - self._busy_at >= idle_s:
                self.drain("idle")
            await self._work_disk.look(LOOK_S)
            if not self._work_disk.is_ours:
                self._done_working.set()
            if now - self._loop.begun_at >= PROGRESS_S and self._workshop.progress():
                self._loop.notify()
            if self._make_room() - self._disk_told > self._settings.free_floor_bytes:
                # The request that waits tells of so little that nothing may be given to us.
                self._loop.notify()
            if now - swept >= SWEEP_S:
                self._workdirs.sweep()
                await self._containers.sweep()
                swept = now
            await asyncio.sleep(max(min(pause_s, PROGRESS_S / 2), 0.02))

    # --- what the exchange loop asks -------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether no new work is taken."""
        return self._draining

    @property
    def max_wait_s(self) -> float:
        """How long a request may wait at the server. One that asks for nothing, of a suspended client or one
        with a full disk or no executor, is not ended by what changes that.
        """
        asks = self._executors.is_there and not (self._suspended or self._disk_is_low)
        return 30.0 if asks else SUSPENDED_WAIT_S

    def profile(self) -> dict[str, Any]:
        """Who we are; `spooled` are attempts of our last incarnation whose results we still have."""
        settings = self._settings
        host = socket.gethostname()
        return {
            "id": self._root.client_id,
            "name": settings.name or host,
            "group": settings.group,
            "user": settings.user,
            "domain": settings.domain,
            "instance_id": settings.instance_id,
            "instance_type": settings.instance_type,
            "hostname": host,
            "cores": self._totals.cores,
            "memory_bytes": self._totals.memory_bytes,
            "disk_bytes": self._work_disk.free_bytes + self._cache.unused_bytes,
            "gpus": self._totals.gpus,
            "apps": list(settings.apps),
            "containers": self._containers.offered,
            "file_roots": list(settings.file_roots),
            "version": package_version(),
            "native": True,
            "incarnation": self._root.incarnation,
            "spooled": [list(key) for key in self._spooled],
        }

    def holds(self) -> list[AttemptKey]:
        """Attempts in any stage, and finished ones of our last incarnation that are not acknowledged yet."""
        # Of a grant that was not understood there is nothing but its report.
        keys = [*self._workshop.held_keys(), *self._spooled, *self._spool.keys]
        return list(dict.fromkeys(keys))

    def want_and_free(self) -> tuple[int, FreeMessage, str]:
        """How much to ask for.

        Nothing while draining, suspended, short of disk, with one that hangs, or unable to start processes.
        """
        load = self._workshop.load()
        disk = self._disk_told = self._make_room()
        trouble = self._trouble(disk)
        want = 0
        is_able = self._executors.is_there and not (self._disk_is_low or self._work_disk.hangs)
        if is_able and not (self._draining or self._suspended):
            want = self._capacity.want(
                held_cores=load.unrun_cores,
                held=load.held + len(self._spooled),
                unfinished_pushes=load.pushing,
            )
        totals = self._totals
        free: FreeMessage = {
            "cores": max(self._capacity.slots + self._capacity.ahead() - load.unrun_cores, 0),
            "memory_bytes": max(totals.memory_bytes - load.unrun_memory, 0),
            "disk_bytes": max(disk - self._settings.free_floor_bytes, 0),
            "gpus": max(totals.gpus - load.unrun_gpus, 0),
        }
        return want, free, trouble

    def _make_room(self) -> int:
        """Free bytes of the disk; what the cache keeps for later counts; it goes before there are too few."""
        disk, floor = self._work_disk.free_bytes, self._settings.free_floor_bytes
        unused = self._cache.unused_bytes
        if disk < floor and unused and not self._work_disk.hangs:
            self._cache.give_way(floor - disk)
        return disk + unused

    def _trouble(self, disk: int) -> str:
        if self._work_disk.hangs:
            return f"the work disk does not answer: {self._root.path}"
        low = disk < self._settings.free_floor_bytes
        if low != self._disk_is_low:
            self._disk_is_low = low
            facts = {"free_bytes": disk, "floor_bytes": self._settings.free_floor_bytes}
            log.warning("disk_low" if low else "disk_has_room_again", extra=facts)
        if low:
            self._workdirs.make_room()
            return f"disk nearly full: {disk} bytes free, {self._settings.free_floor_bytes} must stay"
        if not self._executors.is_there:
            return "the process that starts commands could not be started again; it is tried each second"
        if self._capacity.is_lowered:
            return f"could not start processes; running with {self._capacity.slots} slots for a while"
        return ""

    def progress(self) -> list[ProgressRow]:
        """How far transfers are that take a while."""
        return self._workshop.progress()

    def waits(self) -> list[WaitsRow]:
        """Which of them do not move, and why."""
        return self._workshop.waits()

    def has_backlog(self) -> bool:
        """Whether a short delay would starve no slot."""
        return self._workshop.has_backlog

    def is_finished(self) -> bool:
        """Whether nothing is left to do or to say."""
        self._check_done()
        return self._draining and self._workshop.is_empty and self._spool.is_empty

    def take(self, reply: ReplyMessage) -> None:
        """Act on a reply."""
        for result in reply["results"]:
            key = (result["work"], result["attempt"])
            if result["result"] not in ("accepted", "duplicate"):
                log.warning("result_refused", extra=dict(result))
            self._workshop.acknowledged(key)
            if key in self._spooled:
                self._spooled.remove(key)
        for work, attempt in reply["discard"]:
            self._discard((work, attempt))
        if reply["suspended"] != self._suspended:
            self._suspended = reply["suspended"]
            self._log_suspension(reply.get("suspend_reason", ""))
        if reply["stop"]:
            self._workshop.drop_all()
            self.drain("the server said stop")
            self._forget_spooled()
            return
        self._workshop.follow_logs([(work, attempt) for work, attempt in reply.get("logs") or ()])
        self._admit(reply)

    def _log_suspension(self, reason: str) -> None:
        if self._suspended:
            resume = f"awe clients --resume {self._root.client_id}"
            log.warning("suspended", extra={"reason": reason, "resume_with": resume})
        else:
            log.info("resumed")

    def refused(self, key: AttemptKey) -> None:
        """The server will never take this report.

        Give it up; the lease runs out and the work is queued again.
        """
        if key in self._spooled:
            self._spooled.remove(key)
        self._workshop.acknowledged(key)

    def _admit(self, reply: ReplyMessage) -> None:
        url = self._servers.current.base_url
        tasks: dict[str, TaskSpec] = {}
        for grant in reply["work"]:
            try:
                if grant["task"] not in tasks:
                    tasks[grant["task"]] = TaskSpec(reply["tasks"][grant["task"]], self._base_env, url)
                attempt = from_grant(grant, tasks[grant["task"]], self._root.attempts)
            except Exception as exc:
                # Whatever a document says: it must not end this daemon, and the next one that gets it.
                log.exception("grant_not_understood", extra={"task": grant["task"], "rank": grant["rank"]})
                self._workshop.refuse(grant, f"this client cannot take the work: {exc!r}")
            else:
                self._workshop.admit(attempt)

    def _discard(self, key: AttemptKey) -> None:
        log.info("discarded", extra={"work": key[0], "attempt": key[1]})
        if key in self._spooled:
            self._spooled.remove(key)
            self._spool.acknowledge(key)
        self._workshop.deliver(key, m.Drop())

    def _forget_spooled(self) -> None:
        for key in self._spooled:
            self._spool.acknowledge(key)
        self._spooled = []


def wall_limits(wall_time_s: float, grace_s: float) -> tuple[float, float]:
    """When to drain and when to release, in seconds from the start; (0, 0) without a wall time.

    Draining begins a tenth before the end, at most five minutes. What does not finish by itself is released
    in time for TERM, grace, KILL and one exchange, but within the last half of the drain.
    """
    if wall_time_s <= 0:
        return 0.0, 0.0
    drain_s = wall_time_s - min(wall_time_s / 10, 300.0)
    return drain_s, max(wall_time_s - grace_s - 5.0, (drain_s + wall_time_s) / 2)


def package_version() -> str:
    """The version of the installed package; empty when it runs from a tree that is not installed."""
    try:
        return version("awe")
    except PackageNotFoundError:
        return ""


__all__ = ["Daemon", "package_version", "wall_limits"]
