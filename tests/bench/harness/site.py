"""A real server and real clients, each in fresh folders, on a free port of loopback.

The server's data and the results that clients keep are on the disk, below the folder for temporary files: an
fsync on tmpfs would cost nothing. The directories of commands, with their output files, are on tmpfs if there
is one (/dev/shm): ext4 makes new files slow for minutes after others were deleted.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from awe_client.daemon.identity import MARK
from tests.bench.harness.machine import cpu_s, file_system, written_bytes
from tests.support.memory import rss_bytes, tree

BIN = Path(sys.executable).parent
LISTENING = "awe-server listening on "
PATIENCE_S = 600.0
TMPFS = Path("/dev/shm")


def _environment() -> dict[str, str]:
    """Ours, but modules stay compiled from one start to the next, as `pip install` leaves them."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Child:
    """A process of ours; its output goes to a file that is shown when it ends too early."""

    def __init__(self, argv: Sequence[str], log: Path, **env: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment() | env
            )
        self.pid = self._process.pid

    def said(self) -> str:
        """Its output so far. Raises RuntimeError if it has ended."""
        text = self.log.read_text(errors="replace")
        if self._process.poll() is not None:
            raise RuntimeError(f"process {self.pid} ended: {text[-2000:]}")
        return text

    def cpu_s(self, *, children: bool = False) -> float:
        """What it and its living descendants used; `children`: and those that were waited for."""
        return sum(cpu_s(pid, children=children) for pid in tree(self.pid))

    def rss_bytes(self) -> int:
        return sum(rss_bytes(pid) for pid in tree(self.pid))

    def written_bytes(self) -> int:
        """What it let the kernel write to storage so far, with its living descendants."""
        return sum(written_bytes(pid) for pid in tree(self.pid))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Site:
    """A server, and the clients that were started for it; all are gone at the end, with their folders."""

    def __init__(self, *, store: str = "", flags: Sequence[str] = (), data: Path | None = None) -> None:
        self._folders = [Path(tempfile.mkdtemp(prefix="awe-bench-"))]
        self._log_folder = self._folders[0]
        self.data = data or self._log_folder / "server"
        self._children: list[Child] = []
        command = [str(BIN / "awe-server"), "serve", "--port", "0", "--data", str(self.data), *flags]
        self.server = self._start([*command, *(["--store", store] if store else [])])
        self.port = 0

    def __enter__(self) -> Self:
        try:
            wait_until(lambda: LISTENING in self.server.said(), "the server listens", every_s=0.005)
        except BaseException:
            self.close()
            raise
        address = self.server.said().partition(LISTENING)[2].split()[0]
        self.port = int(address.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fs(self) -> str:
        """The file system of the server's data: what its fsyncs mean."""
        return file_system(self.data.parent)

    def start_client(self, slots: int = 2, *flags: str) -> Child:
        """Start an awe-client with a fresh work directory."""
        work = self._log_folder / f"work-{len(self._children)}"
        work.mkdir()
        (work / MARK).touch()  # else it would not take a directory in which there is something
        self._folders.append(fresh_folder())
        for name in ("fresh", "attempts"):
            (self._folders[-1] / name).mkdir()
            (work / name).symlink_to(self._folders[-1] / name)
        argv = [str(BIN / "awe-client"), "run", "--server", self.url, "--slots", str(slots)]
        return self._start([*argv, "--work", str(work), *flags])

    def _start(self, argv: Sequence[str]) -> Child:
        child = Child(argv, self._log_folder / f"log-{len(self._children)}")
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self._children):
            child.end()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def fresh_folder() -> Path:
    """A new folder for output files: on tmpfs, if there is one."""
    return Path(tempfile.mkdtemp(prefix="awe-bench-", dir=TMPFS if TMPFS.is_dir() else None))


@contextmanager
def output_folder() -> Iterator[Path]:
    """The same, for the length of a with statement."""
    folder = fresh_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: Callable[[], bool], what: str, *, every_s: float = 0.01) -> None:
    """Raises TimeoutError if it never comes true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never: {what}")
        time.sleep(every_s)


def allow_many_files() -> None:
    """As many open files as this user may have, for us and for whom we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
