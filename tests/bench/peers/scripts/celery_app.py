"""A Celery application whose task is run again when its worker was lost; each result is kept in Redis."""

import os

from celery import Celery
from functions import run_true

url = os.environ["BENCH_REDIS"]
app = Celery("bench", broker=url, backend=url)
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_acks_late=True,
    worker_prefetch_multiplier=64,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
)


@app.task
def true() -> int:
    """The task."""
    return run_true()
