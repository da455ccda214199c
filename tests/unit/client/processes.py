"""Commands that stay, and finding processes by a mark in their command line or environment."""

import asyncio
import os
import time

from awe_client.daemon.frames import CommandSpec
from awe_client.daemon.identity import WorkRoot
from tests.support.eventually import PATIENCE_S


def sleeping(root: WorkRoot, name: str) -> CommandSpec:
    """A command that runs until it is killed, with `AWE_WORK_ID=<name>` as its mark."""
    folder = root.attempts / name
    folder.mkdir()
    env = {b"AWE_WORK_ID": name.encode(), b"PATH": os.environb[b"PATH"]}
    command = [b"sleep", b"1000"]
    return CommandSpec(command, env, os.fsencode(folder), False, None, b"o", b"e", 0.0, 0.2, 100, False)


def marked(mark: str) -> list[int]:
    """Processes, zombies not counted, that carry the mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for file in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{name}/{file}", "rb") as opened:
                        if mark.encode() in opened.read():
                            found.append(int(name))
                            break
                except OSError:
                    continue
    return found


def zombies_below(parent: int) -> list[int]:
    """Zombies among the descendants of a process."""
    from awe_client.daemon.proc import descendants, state_of

    return [pid for pid in descendants(parent) if state_of(pid) == "Z"]


async def no_more(mark: str, within_s: float) -> None:
    """Wait until no process carries the mark; show those that do when the time is over."""
    deadline = time.monotonic() + within_s
    while left := marked(mark):
        assert time.monotonic() < deadline, f"still there: {left}"
        await asyncio.sleep(0.02)


async def appears(mark: str, count: int = 1, within_s: float = PATIENCE_S) -> list[int]:
    """Wait until so many processes carry the mark."""
    deadline = time.monotonic() + within_s
    while len(found := marked(mark)) < count:
        assert time.monotonic() < deadline, f"only {found}"
        await asyncio.sleep(0.02)
    return found
