"""Celery: two processes that run one task each. `celery_run.py throughput|latency COUNT`."""

import os
import subprocess
import sys
import time

import redis
from celery_app import app, true
from measuring import arguments, latency, throughput, until

mode, count = arguments()
store = redis.Redis.from_url(os.environ["BENCH_REDIS"])
worker = subprocess.Popen(
    [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-P", "prefork", "-c", "2",
     "-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)  # fmt: skip


def pending() -> int:
    """Messages that are queued, or taken and not acknowledged."""
    return store.llen("celery") + store.hlen("unacked")


def is_idle() -> bool:
    """Twice in a row: kombu moves a message from one to the other in two steps."""
    return pending() == 0 and not time.sleep(0.003) and pending() == 0


def run() -> None:
    """All of them, by one producer."""
    with app.producer_pool.acquire() as producer:
        for _ in range(count):
            true.apply_async(producer=producer)
    until(is_idle)


try:
    true.apply_async().get(timeout=60)
    time.sleep(1.0)  # both processes are there
    if mode == "latency":
        latency(count, lambda: true.apply_async().get(timeout=60))
    else:
        throughput(count, run, int(os.environ["BENCH_REDIS_PID"]))
        kept = sum(1 for _ in store.scan_iter("celery-task-meta-*", count=1000))
        assert kept > count, f"{kept} results of {count}"
finally:
    worker.terminate()
    worker.wait(30)
