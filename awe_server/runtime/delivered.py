"""Is what a report says of its outputs what was uploaded? If not, the attempt failed to deliver.

Found out before the report is settled: afterwards the result would be accepted, and only merging could tell.
"""

from collections.abc import Sequence
from dataclasses import replace

from awe_server.data.nodes import NodeStore
from awe_server.scheduler.holder import may_report
from awe_server.scheduler.state import State
from shared_models.ids import ClientId
from shared_models.messages import Report
from shared_models.states import FailureKind


async def as_delivered(
    state: State, nodes: NodeStore, client_id: ClientId, reports: Sequence[Report]
) -> list[Report]:
    """The reports; those of success whose outputs are not what was uploaded, as failures of kind output.

    What was not uploaded at all is found when the parts are put together. Reports of attempts that their
    sender may not report are left alone: they are refused, or repeats.
    """
    found: list[Report] = []
    for r in reports:
        problem = await _difference(state, nodes, client_id, r) if r.outcome == "done" and r.outputs else ""
        if problem:
            r = replace(r, outcome="failed", kind=FailureKind.OUTPUT, message=problem)
        found.append(r)
    return found


async def _difference(state: State, nodes: NodeStore, client_id: ClientId, r: Report) -> str:
    unit = state.workunits.get(r.work)
    if unit is None or not may_report(state, unit, client_id, r.attempt, r.token):
        return ""
    node_of = {io["filename"]: io.get("node") for io in unit.task.outputs}
    for said in r.outputs:
        node_id = node_of.get(said["filename"])
        part = await nodes.staged_part(node_id, unit.rank, unit.attempt) if node_id else None
        if part is None:
            continue
        if part.size != said["size"]:
            return f"output {said['filename']}: {said['size']} bytes were reported, {part.size} were uploaded"
        if said["md5"] and part.md5 != said["md5"]:
            return (
                f"output {said['filename']}: md5 {said['md5']} was reported, of the upload it is {part.md5}"
            )
    return ""
