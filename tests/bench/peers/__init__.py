"""Other job servers, run side by side with ours: each from PyPI or Debian, in folders of its own."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.harness.site import output_folder
from tests.bench.peers import packages
from tests.bench.peers.redis import Redis

SCRIPTS = Path(__file__).with_name("scripts")
PATIENCE_S = 900.0


@dataclass(frozen=True)
class Peer:
    """One of them: its runner, its packages, and what is left of it when it is killed."""

    script: str
    distributions: tuple[str, ...]
    keeps: str
    needs_redis: bool = False
    fsync: bool = False  #: Redis writes each change to the disk before it answers

    def throughput(self, count: int) -> dict[str, float | str]:
        """Run /bin/true so often on two slots: `tasks_per_s`, and `server_cpu_us` of a task."""
        return self._run("throughput", count)

    def latency(self, count: int) -> dict[str, float | str]:
        """Run /bin/true so often, one after the other: `p50_ms`, `p99_ms`, from submit to known completed."""
        return self._run("latency", count)

    def _run(self, mode: str, count: int) -> dict[str, float | str]:
        if not self.needs_redis:
            return self._found(mode, count, {})
        with Redis(fsync=self.fsync) as redis:
            return self._found(mode, count, redis.environment)

    def _found(self, mode: str, count: int, environment: Mapping[str, str]) -> dict[str, float | str]:
        with output_folder() as folder, tempfile.TemporaryDirectory(prefix="awe-bench-") as scratch:
            done = subprocess.run(
                [str(packages.python()), str(SCRIPTS / f"{self.script}_run.py"), mode, str(count)],
                cwd=folder,
                env={**os.environ, **environment, "PYTHONPATH": str(SCRIPTS), "BENCH_SCRATCH": scratch},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
        if done.returncode:
            raise RuntimeError(f"{self.script}: {done.stderr[-2000:]}")
        found: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
        return {**found, "version": packages.versions(*self.distributions), "keeps": self.keeps}


_FSYNCED = "each write fsynced before it is answered; no output"
_IN_MEMORY = "nothing; no output"

#: By name.
PEERS: Mapping[str, Peer] = {
    "hyperqueue": Peer("hyperqueue", ("hyperqueue",), "nothing (the wheel has no journal); two files"),
    "dramatiq": Peer("dramatiq", ("dramatiq", "redis"), _FSYNCED, needs_redis=True, fsync=True),
    "celery": Peer("celery", ("celery", "redis"), _FSYNCED, needs_redis=True, fsync=True),
    "celery_in_memory": Peer("celery", ("celery", "redis"), _IN_MEMORY, needs_redis=True),
    "dask": Peer("dask", ("distributed",), "nothing; no output"),
}
