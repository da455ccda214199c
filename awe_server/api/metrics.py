"""`GET /metrics` for Prometheus: numbers of now, read when they are asked for."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from awe_server.api.deps import Served
from awe_server.api.params import NoParameters
from awe_server.data.nodes import Usage
from awe_server.runtime.engine import Engine
from awe_server.scheduler.queue import queue_counts

router = APIRouter(tags=["server"])


class _Numbers(Collector):
    """What the engine knows of itself."""

    def __init__(self, engine: Engine, usage: Usage) -> None:
        self._engine = engine
        self._usage = usage

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One family for each thing that is counted."""
        for thing, counts in queue_counts(self._engine.state).items():
            family = GaugeMetricFamily(f"awe_{thing}", f"{thing} by state", labels=["state"])
            for state, count in counts.items():
                if state != "total":
                    family.add_metric([state], count)
            yield family
        clients, readers = self._engine.waiters.counts
        waits = GaugeMetricFamily("awe_waits", "requests that wait for something", labels=["who"])
        waits.add_metric(["client"], clients)
        waits.add_metric(["reader"], readers)
        yield waits
        batches, operations = self._engine.commits
        yield CounterMetricFamily("awe_commits", "batches made durable", batches)
        yield CounterMetricFamily("awe_committed_documents", "documents in them", operations)
        usage = self._usage
        yield GaugeMetricFamily("awe_nodes_used_bytes", "bytes of nodes, shared ones once", usage.used_bytes)
        yield GaugeMetricFamily("awe_nodes_quota_bytes", "bytes they may take, 0 = any", usage.quota_bytes)
        yield GaugeMetricFamily("awe_nodes_free_bytes", "free on their file system", usage.free_bytes)


@router.get("/metrics", summary="Numbers for Prometheus", response_class=Response)
async def metrics(services: Served, _: Annotated[NoParameters, Query()]) -> Response:
    """Jobs, tasks, workunits and clients by state, waiting requests, commits, the node store's bytes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(services.engine, await services.nodes.usage()))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
