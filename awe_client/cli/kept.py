"""What failed attempts left of their outputs, where a task wants that kept (`keep_failed`)."""

from dataclasses import dataclass

from awe_client.api import AweClient
from awe_client.cli.output import note
from shared_models.views import NodeFile, NodeView

MAX_KEPT = 20  #: of a job; so many are named


@dataclass(slots=True, frozen=True)
class Kept:
    """The node of what one attempt left."""

    workunit: str
    attempt: str
    node: str
    size_bytes: int


def kept_of(awe: AweClient, job_id: str, workunit_id: str = "") -> list[Kept]:
    """What is kept of a job's failed attempts, or of one workunit's, the newest first."""
    next_job = job_id + chr(ord("_") + 1)
    where = {"type": "failed-attempt", "work": workunit_id or f"[{job_id}_;{next_job})"}
    return [_kept(node) for node in awe.list_nodes(where=where, limit=MAX_KEPT).items]


def _kept(node: NodeView) -> Kept:
    told = node.attributes if isinstance(node.attributes, dict) else {}
    file = node.file or NodeFile()
    return Kept(str(told.get("work", "")), str(told.get("attempt", "")), node.id, file.size)


def tell_kept(rows: list[Kept]) -> None:
    """Say how to get it."""
    for kept in rows:
        what = f"what attempt {kept.attempt} of {kept.workunit} left of its outputs is kept, as a tar"
        note(f"{what}: awe node get {kept.node}")
