"""The limit of the machine: C loops that only spawn, and GNU xargs; both write two files for each command."""

import os
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

from tests.bench.harness.site import output_folder

SOURCE = Path(__file__).with_name("spawn.c")


@cache
def spawner() -> Path:
    """The compiled loop. Raises RuntimeError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed for the limit: on Debian, apt-get install gcc libc6-dev")
    program = cache_folder() / "spawn"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


def cache_folder() -> Path:
    """Where what is built or installed for the benchmarks stays between runs.

    Raises RuntimeError if it is somebody else's: what lies there is run.
    """
    folder = Path(os.environ.get("AWE_BENCH_PEERS") or f"/tmp/awe-bench-peers-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to another user: name another folder in AWE_BENCH_PEERS")
    return folder


def spawn_loops(count: int, processes: int = 2) -> dict[str, float | str]:
    """`/bin/true` so often by C loops side by side: rate, and the CPU of a command, with its parent's."""
    program, each = spawner(), count // processes
    with output_folder() as folder:
        before = os.times()
        began = time.perf_counter()
        loops = []
        for number in range(processes):
            (folder / str(number)).mkdir()
            loops.append(
                subprocess.Popen(
                    [str(program), str(each), str(folder / str(number))], stdout=subprocess.DEVNULL
                )
            )
        if any(loop.wait() for loop in loops):
            raise RuntimeError("a loop failed")
        took_s = time.perf_counter() - began
        after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    done = each * processes
    return {"tasks": done, "tasks_per_s": done / took_s, "cpu_us": used_s / done * 1e6, "keeps": "two files"}


def xargs(count: int, processes: int = 2) -> dict[str, float | str]:
    """The same by GNU xargs, which needs a shell for the files."""
    line = 'exec /bin/true >"$0.stdout" 2>"$0.stderr"'
    numbers = "\n".join(map(str, range(count))).encode()
    with output_folder() as folder:
        began = time.perf_counter()
        subprocess.run(
            ["xargs", f"-P{processes}", "-n1", "sh", "-c", line], input=numbers, cwd=folder, check=True
        )
        took_s = time.perf_counter() - began
    return {"tasks": count, "tasks_per_s": count / took_s, "keeps": "two files"}
