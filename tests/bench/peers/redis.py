"""Debian's redis-server, in memory only, or with each write fsynced before it is answered."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.harness.site import Child, wait_until
from tests.bench.peers.packages import debian, libraries
from tests.support.ports import HeldPort

READY = "Ready to accept connections"


class Redis:
    """One server on a free port; its file is on the disk, where our own server's data is, too."""

    def __init__(self, *, fsync: bool) -> None:
        root = debian("redis-server")
        self._folder = tempfile.TemporaryDirectory(prefix="awe-bench-redis-")
        held = HeldPort()
        self.port = held.number
        held.close()
        keep = ["--appendonly", "yes", "--appendfsync", "always"] if fsync else ["--appendonly", "no"]
        self._child = Child(
            [str(root / "usr/bin/redis-server"), "--port", str(self.port), "--bind", "127.0.0.1",
             "--dir", self._folder.name, "--save", "", *keep],
            Path(self._folder.name) / "log",
            **libraries(root),
        )  # fmt: skip
        wait_until(lambda: READY in self._child.said(), "redis listens")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.end()
        self._folder.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """How the runners find it."""
        return {
            "BENCH_REDIS": f"redis://127.0.0.1:{self.port}/0",
            "BENCH_REDIS_PID": str(self._child.pid),
        }
