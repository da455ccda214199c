"""Watch what the processes of a command use together, for commands that say a limit. Standard library only.

What counts is what the kernel cannot take back without swapping: anonymous memory, shared memory, and what
of both lies in swap. Pages of files do not count: a program that maps a large index is not to blame that the
kernel keeps it. Resident size less shared (`statm`) would be wrong both ways: it counts a forked worker's
untouched copy in full, and shared memory not at all. Not seen: files on a tmpfs that nobody has mapped, and
huge pages from the reserved pool. A limit on address space or data (RLIMIT_AS, RLIMIT_DATA) is no substitute:
Java and Go reserve far more than they use, and it holds for each process by itself.

A look costs what it must:

* /proc is listed once for all commands. A process that was not there before is asked for its parent, and
  belongs to its parent's command from then on, whatever becomes of the parent; an orphan that fell to us is
  told apart by the executor. So double forks and new sessions hide nothing, and a known process costs no
  question at all.
* Processes of limited commands are read from /proc/PID/status: counters, some 15 µs each, however large.
  Their sum is too high if processes share memory, never too low (but some kernels' counters lag a little).
* Only if that sum is above the limit, the proportional share of each process is read (smaps_rollup): exact,
  but 20 to 80 ns a page. A command that is cleared by it is looked at so closely again when it has grown by
  what it had left, or after 20 times what the look cost.
* Looks follow each other after 0.25 s, sooner if some command would be at its limit before that at the pace
  of its growth, and never so soon that they take more than a twentieth of a core.

Measured by tests/bench/memory_watch.py: 16 commands cost 0.3 ms a look (0.1 % of a core), 64 cost 0.9 ms; a
thousand processes of others add 0.7 ms, and 15 ms once, to the first look.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from awe_client.daemon.proc import parent_of, share_memory

EVERY_S = 0.25
#: A new command is looked at after so long: how fast it grows is not known yet.
FIRST_S = 0.05
LEAST_S = 0.01
#: Pauses are at least so many times as long as what comes before them took.
REST = 20
#: Who shares memory with others has more of it as they end, so what is too much is looked at again.
CLOSE_LOOKS = 3
#: After a longer pause a process id may have been given to another process.
STALE_S = 2.0


class Usage(NamedTuple):
    """What one process uses, as its counters say."""

    parent: int
    memory_bytes: int


class _Watched:
    """One command and what is known of its memory."""

    __slots__ = ("closely_at", "closely_from", "key", "limit", "peak", "seen_at", "used")

    def __init__(self, key: int, limit: int) -> None:
        self.key = key
        self.limit = limit
        self.peak = self.used = 0
        self.seen_at = time.monotonic()
        self.closely_at = 0.0  #: look closely after this,
        self.closely_from = limit  #: or as soon as the sum of the counters is above this


class MemoryWatch:
    """Says which commands use more than they may."""

    def __init__(self, owner_of: Callable[[int], int | None]) -> None:
        """`owner_of` gives the key of the command to which a child of ours belongs."""
        self._owner_of = owner_of
        self._watched: dict[int, _Watched] = {}
        self._key_of: dict[int, int | None] = {}  # every process of the machine → its command
        self._looked_at = self._rested_at = 0.0
        self.next_at: float | None = None  #: when to look again, on the monotonic clock

    def add(self, key: int, limit_bytes: int) -> None:
        """Watch a command that has just started."""
        self._watched[key] = _Watched(key, limit_bytes)
        first_at = max(time.monotonic() + FIRST_S, self._rested_at)
        self.next_at = first_at if self.next_at is None else min(self.next_at, first_at)

    def remove(self, key: int) -> int:
        """Forget a command; the most that its processes were seen to use. 0 if it was not watched."""
        watched = self._watched.pop(key, None)
        if not self._watched:
            self.next_at = None
        return watched.peak if watched is not None else 0

    def look(self) -> list[tuple[int, int]]:
        """Look at all of them; the keys of those above their limit, and how much each uses."""
        began = time.monotonic()
        self._sort_processes(began)
        members: dict[int, dict[int, Usage]] = {key: {} for key in self._watched}
        for pid, key in self._key_of.items():
            if key in members and (usage := usage_of(pid)) is not None:
                members[key][pid] = usage
        above = []
        pause = EVERY_S
        for watched in self._watched.values():
            used = _assess(watched, members[watched.key])
            if used > watched.limit:
                above.append((watched.key, used))
            else:
                pause = min(pause, _time_left(watched, used, began))
            watched.peak = max(watched.peak, used)
            watched.used, watched.seen_at = used, began
        now = time.monotonic()
        self._looked_at = now
        self._rested_at = now + REST * (now - began)
        self.next_at = max(now + max(pause, LEAST_S), self._rested_at)
        return above

    def _sort_processes(self, now: float) -> None:
        """Bring `_key_of` up to date."""
        if now > self._looked_at + STALE_S:
            self._key_of.clear()
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._key_of.keys() - present:
            del self._key_of[pid]
        parents = {
            pid: parent for pid in present - self._key_of.keys() if (parent := parent_of(pid)) is not None
        }
        me = os.getpid()
        for pid in parents:
            line = []
            while pid in parents and pid not in self._key_of:
                line.append(pid)
                if parents[pid] == me:
                    self._key_of[pid] = self._owner_of(pid)
                elif parents[pid] == 0:  # the first process
                    self._key_of[pid] = None
                else:
                    pid = parents[pid]
            # A line that ends at nobody we know has just lost a parent: it is sorted next time.
            if pid in self._key_of:
                self._key_of.update(dict.fromkeys(line, self._key_of[pid]))


def usage_of(pid: int) -> Usage | None:
    """Anonymous, shared and swapped memory of a process by its counters; None if it has ended."""
    said = _read(pid, "status")
    if said is None:
        return None
    parent = _number_after(b"\nPPid:", said)
    kibibytes = sum(_number_after(name, said) for name in (b"\nRssAnon:", b"\nRssShmem:", b"\nVmSwap:"))
    return Usage(parent, kibibytes * 1024)


def _read(pid: int, name: str) -> bytes | None:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return None


def _number_after(name: bytes, said: bytes) -> int:
    """The number on a line of a file in /proc; 0 if there is no such line (a zombie has no memory)."""
    at = said.find(name)
    return int(said[at + len(name) : said.index(b"\n", at + 1)].split()[0]) if at >= 0 else 0


def share_of(pid: int) -> int | None:
    """As `usage_of`, but of a page that n processes use only an n-th.

    0 if the process has ended, None if this cannot be read.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            said = file.read()
    except ProcessLookupError:
        return 0
    except OSError:
        return None if os.path.exists(f"/proc/{pid}") else 0
    swapped = _number_after(b"\nSwapPss:", said)
    if b"\nPss_Anon:" not in said:  # before Linux 5.4: pages of files count in
        return (_number_after(b"\nPss:", said) + swapped) * 1024
    # What was given back lazily (MADV_FREE) is the kernel's to take.
    kept = _number_after(b"\nPss_Anon:", said) - _number_after(b"\nLazyFree:", said)
    return (kept + _number_after(b"\nPss_Shmem:", said) + swapped) * 1024


def _assess(watched: _Watched, members: dict[int, Usage]) -> int:
    """What a command uses, as exactly as it matters."""
    began = time.monotonic()
    rough = sum(usage.memory_bytes for usage in members.values())
    if rough <= watched.limit:
        return rough
    if rough <= watched.closely_from and began < watched.closely_at:
        return watched.used
    exact = rough
    for _ in range(CLOSE_LOOKS):
        exact = min(exact, _shares(members))
        if exact <= watched.limit:
            break
    now = time.monotonic()
    watched.closely_at = now + REST * (now - began)
    watched.closely_from = rough + max(watched.limit - exact, 0)
    return exact


def _shares(members: dict[int, Usage]) -> int:
    """What these processes use, each page counted once; too high if some of them end meanwhile."""
    shares = 0
    for pid, usage in members.items():
        if usage.parent in members and share_memory(pid, usage.parent):
            continue  # between vfork and exec a child is its parent
        share = share_of(pid)
        shares += usage.memory_bytes if share is None else min(share, usage.memory_bytes)
    return shares


def _time_left(watched: _Watched, used: int, now: float) -> float:
    """When it will be at its limit if it goes on growing as it does."""
    growth = used - watched.used
    if growth <= 0:
        return EVERY_S
    return (watched.limit - used) * (now - watched.seen_at) / growth
