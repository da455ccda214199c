"""Dramatiq: two processes with eight threads each: with fewer its polling starves it, so it runs up to 16
tasks at once. `dramatiq_run.py throughput|latency COUNT`.
"""

import os
import subprocess
import sys
import time

import redis
from dramatiq_app import broker, true
from measuring import arguments, latency, throughput, until

mode, count = arguments()
worker = subprocess.Popen(
    [sys.executable, "-m", "dramatiq", "dramatiq_app", "-p", "2", "-t", "8"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)  # fmt: skip


def is_idle() -> bool:
    """Nothing is queued, nothing is unacknowledged."""
    return bool(broker.do_qsize("default") == 0)


def run() -> None:
    """All of them, by one producer."""
    for _ in range(count):
        true.send()
    until(is_idle)


try:
    true.send().get_result(block=True, timeout=60_000)
    time.sleep(1.0)  # both processes are there
    if mode == "latency":
        latency(count, lambda: true.send().get_result(block=True, timeout=60_000))
    else:
        throughput(count, run, int(os.environ["BENCH_REDIS_PID"]))
        store = redis.Redis.from_url(os.environ["BENCH_REDIS"])
        kept = sum(len(key) == 32 for key in store.scan_iter("*", count=5000))  # an md5 names a result
        assert kept > count, f"{kept} results of {count}"
finally:
    worker.terminate()
    worker.wait(30)
