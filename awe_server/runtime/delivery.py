"""Bring an output that is whole here, in its staging node, to where the document says.

How far a delivery is stands in the node's document, so after a crash nothing is delivered twice. When the
task is completed the node goes.
"""

import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from awe_server.data.downloads import ByteReader
from awe_server.data.hosts import host_of
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import FileFact
from awe_server.data.sinks.base import About, SinkBusy, SinkRefused
from awe_server.data.sinks.files import Wanted
from awe_server.data.sinks.sinks import Sinks
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.state import Task
from awe_server.store.base import Document
from shared_models.archives import is_archive
from shared_models.errors import NodeNotFound, UnreadableNode
from shared_models.file_urls import is_file_url, path_of

log = logging.getLogger(__name__)


def sink_host(io: Document) -> str:
    """Whom an output is delivered to, "" if it stays here."""
    return "" if io["type"] == "update" else host_of(io["host"] or io["url"])


class Delivery:
    """Delivers outputs. Raises SinkBusy for what may pass, SinkRefused for what will not."""

    def __init__(self, nodes: NodeStore, sinks: Sinks) -> None:
        self._nodes = nodes
        self._sinks = sinks

    async def deliver(self, task: Task, io: Document, fact: FileFact, notes: list[str]) -> OutputFact:
        """Deliver what is whole in the staging node of an output."""
        staging, name = io["_staging"], io["filename"]
        memo = _Memo(self._nodes, staging)
        done = await memo.read()
        if done.get("sha256") != fact.sha256:
            done = await self._send(task, io, fact, memo, notes)
            log.info("output_delivered", extra={"task_id": task.id, "file": name, "sink": sink_host(io)})
        node = str(done.get("node") or "")
        url = f"{io['host']}/node/{node}?download" if node else io["url"]
        return OutputFact(name, node, fact.size, fact.md5, url=url)

    async def _send(
        self, task: Task, io: Document, fact: FileFact, memo: "_Memo", notes: list[str]
    ) -> dict[str, Any]:
        document = await self._nodes.get(io["_staging"])
        content = _Content(self._nodes, document["id"], fact.size, fact.md5)
        done: dict[str, Any] = {"sha256": fact.sha256}
        if io["host"]:
            token = task.job.datatoken
            about = About(document["file"]["name"], document["attributes"], token)
            done["node"] = await self._sinks.to_shock(io["host"], content, about, memo)
            if io["shockindex"]:
                await self._index(io, done["node"], token, notes)
        else:
            await self._sinks.to_url(io["url"], content)
        await memo.note(done)
        return done

    async def _index(self, io: Document, node: str, token: str, notes: list[str]) -> None:
        """Source: AWE lib/worker; an index that cannot be built fails nobody."""
        try:
            await self._sinks.index_in_shock(io["host"], node, io["shockindex"], token)
        except (SinkBusy, SinkRefused) as exc:
            notes.append(f"no index '{io['shockindex']}' for output {io['filename']}: {exc.message}")

    async def take_back(self, host: str, staging: str, token: str) -> None:
        """Remove the node that a delivery to a Shock has made, if any, then the one here that knows of it.

        Raises SinkBusy; SinkRefused if what was made stays there, also because nobody knows what it is.
        """
        with contextlib.suppress(NodeNotFound):
            try:
                await self._sinks.take_back(host, token, _Memo(self._nodes, staging))
            except SinkRefused:
                await self._nodes.delete(staging)
                raise
            except UnreadableNode as exc:
                await self._nodes.delete(staging)
                raise SinkRefused(exc.message) from exc
            await self._nodes.delete(staging)

    async def forget(self, staging: str) -> None:
        """Remove a staging node; what its delivery has made stays where it is."""
        with contextlib.suppress(NodeNotFound):
            await self._nodes.delete(staging)

    async def missing_parts(self, wanted: Wanted) -> list[tuple[int, int]]:
        """Which parts of an output on a shared file system are not staged beside it."""
        return await self._sinks.missing_parts(wanted)

    async def place(self, io: Document, wanted: Wanted) -> OutputFact:
        """Make an output on a shared file system of what was staged beside it."""
        fact = await self._sinks.to_file(wanted)
        return OutputFact(io["filename"], "", fact.size, fact.md5, url=io["url"])


def wanted_file(
    task: Task, io: Document, parts: list[tuple[int, int]], sizes: dict[tuple[str, int], int]
) -> Wanted:
    """The file of an output on a shared file system; `sizes` are those reported, by name and rank."""
    name, url = io["filename"], io["url"]
    files = (other["url"] for other in (*task.inputs, *task.predata, *task.outputs))
    return Wanted(
        path_of(url),
        task.id,
        task.generation,
        sorted(parts),
        {rank: sizes[name, rank] for rank, _ in parts if (name, rank) in sizes},
        io["header_lines"],
        is_archive(name),
        [path_of(other) for other in files if is_file_url(other) and other != url],
    )


@dataclass(slots=True, frozen=True)
class _Content:
    nodes: NodeStore
    node_id: str
    size: int
    md5: str

    async def chunks(self) -> ByteReader:
        return (await self.nodes.open_range(self.node_id)).chunks


@dataclass(slots=True, frozen=True)
class _Memo:
    nodes: NodeStore
    node_id: str

    @property
    def marker(self) -> str:
        return f"awe-output-{self.node_id}"

    async def read(self) -> dict[str, Any]:
        return await self.nodes.delivery(self.node_id)

    async def note(self, what: dict[str, Any]) -> None:
        await self.nodes.note_delivery(self.node_id, what)
