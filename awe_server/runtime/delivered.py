"""Is what a report says of its outputs what was uploaded? If not, the attempt failed to deliver.

Found out before the report is settled: afterwards the result would be accepted, and only merging could tell.
Costs a report a look into memory, and many of them together one look into the folder of each output of which
memory does not know every part (after a restart, or because something is missing).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from awe_server.data.node_parts import PartKey
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import FileFact
from awe_server.scheduler.holder import may_report
from awe_server.scheduler.places import WITHOUT_UPLOAD, staging_node
from awe_server.scheduler.state import Document, State, Workunit
from shared_models.file_urls import is_file_url
from shared_models.ids import ClientId
from shared_models.messages import Report
from shared_models.states import FailureKind

#: The name of an output, what the report says of it, if anything, and where its bytes should be.
_Due = tuple[str, Document | None, PartKey]


async def as_delivered(
    state: State, nodes: NodeStore, client_id: ClientId, reports: Sequence[Report]
) -> list[Report]:
    """The reports; those of success whose outputs are not what was uploaded, as failures of kind output.

    Whatever is named must be there as it is said to be, and so must all that may not be missing. Reports of
    attempts that their sender may not report are left alone: they are refused, or repeats.
    """
    found = list(reports)
    due: list[tuple[int, list[_Due]]] = []
    for at, r in enumerate(reports):
        unit = state.workunits.get(r.work) if r.outcome == "done" else None
        if unit and unit.task.outputs and may_report(state, unit, client_id, r.attempt, r.token):
            due.append((at, list(_due(unit, r))))
    if not due:
        return found
    staged = await nodes.staged(key for _, files in due for _, _, key in files)
    for at, files in due:
        problem = next(filter(None, (_difference(*file, staged) for file in files)), "")
        if problem:
            message = "; ".join(filter(None, (problem, found[at].message)))
            found[at] = replace(found[at], outcome="failed", kind=FailureKind.OUTPUT, message=message)
    return found


def may_be_missing(io: Document) -> bool:
    """Whether a workunit is done without this output."""
    return bool(io["optional"] or io["nofile"])


def is_uploaded(io: Document) -> bool:
    """Whether clients send an output's bytes to this server."""
    return io["type"] not in WITHOUT_UPLOAD and not is_file_url(io["url"])


def _due(unit: Workunit, r: Report) -> Iterator[_Due]:
    said = {output["filename"]: output for output in r.outputs}
    for io in unit.task.outputs:
        name = io["filename"]
        if not is_uploaded(io):
            continue
        if name in said or not may_be_missing(io):
            yield name, said.get(name), (staging_node(io), unit.rank, unit.attempt)


def _difference(name: str, said: Document | None, key: PartKey, staged: dict[PartKey, FileFact]) -> str:
    part = staged.get(key)
    if part is None:
        return f"output {name}: nothing was uploaded"
    if said is None:
        return ""
    if part.size != said["size"]:
        return f"output {name}: {said['size']} bytes were reported, {part.size} were uploaded"
    if said["md5"] and part.md5 != said["md5"]:
        return f"output {name}: md5 {said['md5']} was reported, of the upload it is {part.md5}"
    return ""
