"""A Dramatiq application; messages are acknowledged after the task, each result is kept in Redis."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from functions import run_true

url = os.environ["BENCH_REDIS"]
broker = RedisBroker(url=url)
broker.add_middleware(Results(backend=RedisBackend(url=url), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor
def true() -> int:
    """The task."""
    return run_true()
