"""HyperQueue's wheel: a server and two workers of one core, each command with two output files in the current
folder. `hyperqueue_run.py throughput|latency COUNT`.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from hyperqueue import Client, Job
from measuring import arguments, latency, throughput, until

mode, count = arguments()
folder = f"{os.environ['BENCH_SCRATCH']}/hq"
os.makedirs(folder)
NODE = str(Path(__file__).with_name("hyperqueue_node.py"))
started: "list[subprocess.Popen[str]]" = []


def start(*words: str) -> "subprocess.Popen[str]":
    """A process that has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, NODE, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    started.append(process)
    for line in process.stdout or ():
        if line.strip() == "ready":
            return process
    raise RuntimeError(f"HyperQueue's {words[0]} did not start")


class Seen(Exception):
    """Ends a request after its first answer."""


def state_of(number: int) -> dict[str, object]:
    """One request. The library's own wait asks once a second: too coarse to time anything with."""
    found: dict[str, object] = {}

    def see(states: dict[int, dict[str, object]]) -> None:
        found.update(states[number])
        raise Seen

    with suppress(Exception):  # the library makes its own of ours
        client.connection.wait_for_jobs((number,), see)
    return found


def run(job: Job, every_s: float) -> None:
    """Submit, and ask until all is done."""
    number = client.submit(job).id

    def is_done() -> object:
        state = state_of(number)
        assert not state["failed"], state
        return state["completed"]

    until(is_done, every_s)


def job_of(commands: int) -> Job:
    """So many commands, each with its files."""
    job = Job(default_workdir=os.getcwd(), max_fails=None)
    for _ in range(commands):
        job.program(["/bin/true"])
    return job


try:
    server = start("server", folder)
    for number in range(2):
        start("worker", folder, "1", str(number))
    client = Client(folder)
    run(job_of(10), 0.01)
    if mode == "latency":
        latency(count, lambda: run(job_of(1), 0.0005))
    else:
        job = job_of(count)
        throughput(count, lambda: run(job, 0.01), server.pid)
finally:
    for process in reversed(started):
        process.kill()
        process.wait(30)
