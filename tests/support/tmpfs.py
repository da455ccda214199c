"""A file system of a given size, for tests of full disks."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest


@contextlib.contextmanager
def tmpfs(mount_point: Path, size_bytes: int, *, inodes: int | None = None) -> Iterator[Path]:
    """Mount one at `mount_point`, which may be missing; where that is not allowed, skip the test and say why,
    or fail it with AWE_TEST_TMPFS=required.

    It is unmounted at the end even if a process that was killed a moment ago still holds a file.
    """
    if os.geteuid() != 0:
        lacking("mounting a tmpfs takes root")
    mount_point.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},mode=0755" + (f",nr_inodes={inodes}" if inodes is not None else "")
    done = _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount_point))
    if done.returncode != 0:
        lacking(f"cannot mount a tmpfs: {done.stderr.strip()}")
    try:
        yield mount_point
    finally:
        _unmount(mount_point)


def lacking(reason: str) -> NoReturn:
    """End a test that needs a file system of its own: skipped, or failed if it has to run here."""
    if os.environ.get("AWE_TEST_TMPFS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Write a file until only so much is free; returns the file, whose removal makes room again."""
    ballast = folder / ".ballast"
    about = os.statvfs(folder)
    size = about.f_bavail * about.f_frsize - leave_bytes
    with ballast.open("wb") as file:
        if size > 0:
            os.posix_fallocate(file.fileno(), 0, size)
    return ballast


def _unmount(mount_point: Path) -> None:
    deadline = time.monotonic() + 5
    while (done := _run("umount", str(mount_point))).returncode != 0:
        if time.monotonic() > deadline:
            _run("umount", "--lazy", str(mount_point))
            raise AssertionError(f"somebody still uses {mount_point}: {done.stderr.strip()}")
        time.sleep(0.05)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
