"""dask.distributed: a scheduler and two workers of one thread. `dask_run.py throughput|latency COUNT`."""

import os
import subprocess
import sys

from distributed import Client, wait
from functions import run_true_once
from measuring import arguments, latency, throughput

mode, count = arguments()
folder = os.environ["BENCH_SCRATCH"]
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
file = f"{folder}/scheduler.json"


def start(module: str, *flags: str) -> "subprocess.Popen[bytes]":
    """One of dask's own programs."""
    line = f"import sys; from distributed.cli.{module} import main; sys.exit(main())"
    return subprocess.Popen([sys.executable, "-c", line, "--scheduler-file", file, *flags], **quiet)


if __name__ == "__main__":
    scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    workers = start(
        "dask_worker", "--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--local-directory", folder
    )
    try:
        client = Client(scheduler_file=file, timeout=60)
        client.wait_for_workers(2, timeout=60)
        wait(client.map(run_true_once, range(100), pure=False))
        if mode == "latency":
            latency(count, lambda: client.submit(run_true_once, 1, pure=False).result())
        else:
            throughput(
                count, lambda: wait(client.map(run_true_once, range(count), pure=False)), scheduler.pid
            )
        client.close()
    finally:
        for process in (workers, scheduler):
            process.terminate()
            process.wait(30)
