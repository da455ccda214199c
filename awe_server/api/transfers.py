"""How far clients are with moving files. Kept in memory only: it is old in a moment, and told again."""

from collections.abc import Mapping, Sequence
from typing import Any

from awe_server.scheduler.state import State
from awe_server.store.base import Document
from shared_models.ids import ClientId, JobId, WorkunitId
from shared_models.states import WorkunitState
from shared_models.times import rfc3339

Row = tuple[WorkunitId, str, int, int]


class Transfers:
    """What each client said in its last exchange."""

    def __init__(self) -> None:
        self._by_client: dict[ClientId, dict[WorkunitId, Document]] = {}

    def told(
        self,
        state: State,
        client_id: ClientId,
        rows: Sequence[Row],
        waits: Mapping[WorkunitId, str],
        wall_s: float,
    ) -> None:
        """Replace what a client said before; only what it holds counts.

        `waits` says of some of the rows why nothing moves.
        """
        self._by_client.pop(client_id, None)
        client = state.clients.get(client_id)
        if not rows or client is None:
            return
        for gone in [id for id in self._by_client if id not in state.clients]:
            del self._by_client[gone]
        at = rfc3339(wall_s)
        self._by_client[client_id] = {
            work: {
                "attempt": client.holds[work].attempt,
                "progress": {"stage": stage, "bytes": done, "total_bytes": total, "at": at},
            }
            for work, stage, done, total in rows
            if work in client.holds
        }
        for work in waits.keys() & self._by_client[client_id].keys():
            self._by_client[client_id][work]["progress"]["waits"] = waits[work]

    def of(self, unit: Document) -> Document:
        """What to add to the document of a workunit: `progress`, or nothing."""
        told: dict[WorkunitId, Any] = self._by_client.get(unit["client"], {})
        row = told.get(unit["id"])
        if row is None or unit["state"] != WorkunitState.CHECKOUT or row["attempt"] != unit["attempt"]:
            return {}
        return {"progress": row["progress"]}

    def of_job(self, state: State, job_id: JobId, most: int) -> list[tuple[WorkunitId, Document]]:
        """Workunits of a job that move files, `most` of them, with their progress: first those that do not
        get on."""
        found = [
            (work, row["progress"])
            for rows in self._by_client.values()
            for work, row in rows.items()
            if _is_held(state, work, job_id, row["attempt"])
        ]
        return sorted(found, key=lambda item: "waits" not in item[1])[:most]


def _is_held(state: State, work: WorkunitId, job_id: JobId, attempt: int) -> bool:
    unit = state.workunits.get(work)
    is_held = unit is not None and unit.state is WorkunitState.CHECKOUT and unit.attempt == attempt
    return unit is not None and is_held and unit.task.job.id == job_id


def in_words(progress: Document) -> str:
    """As in `fetching files: 12 of 300 MB`, and why it waits."""
    done, total = progress["bytes"], progress["total_bytes"]
    of = f" of {total / 1e6:,.0f}" if total >= 0 else ""
    waits = f": {progress['waits']}" if "waits" in progress else ""
    return f"{progress['stage']} files: {done / 1e6:,.0f}{of} MB{waits}"
