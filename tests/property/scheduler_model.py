"""What the state machine of test_machine.py stands on: a store fed by every batch, clients with a memory of
their own, and a history that remembers what must never happen."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import orjson

from awe_server.scheduler import views
from awe_server.scheduler.checkout import Grant
from awe_server.scheduler.invariants import check
from awe_server.scheduler.load import LoadInput, load
from awe_server.scheduler.state import (
    ENDED_JOBS,
    Changes,
    Context,
    DeleteNodes,
    Document,
    FinishTask,
    ForgetJob,
    PrepareTask,
    State,
)
from awe_server.scheduler.transitions import JOB_MOVES, TASK_MOVES, Moves
from shared_models.ids import ClientId, JobId, TaskId, WorkunitId
from shared_models.messages import Report
from shared_models.states import JobState, TaskState, WorkunitState
from tests.builders import snapshot

#: What ends `completed`.
_REOPENING = {"recompute", "resubmit", "delete"}

Operations = list[tuple[str, str, Document | None, str]]


class MemoryStore:
    """Documents as bytes, so that a document changed in place after its batch was taken is noticed."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._last: list[tuple[str, Document]] = []

    def copy(self) -> "MemoryStore":
        """Another store with the same documents."""
        other = MemoryStore()
        for collection, held in self.documents.items():
            other.documents[collection] = dict(held)
        return other

    def apply(self, operations: Operations) -> None:
        """Apply what `operations` listed, in order."""
        self.check_last()
        self._last = []
        for collection, field_name, document, value in operations:
            held = self.documents[collection]
            if document is None:
                for id in [id for id, raw in held.items() if orjson.loads(raw)[field_name] == value]:
                    del held[id]
            else:
                held[document["id"]] = orjson.dumps(document)
                self._last.append((collection, document))

    def check_last(self) -> None:
        """The documents of the last batch are still what they were when it was taken."""
        for collection, document in self._last:
            raw = self.documents[collection].get(document["id"])
            assert raw is None or orjson.dumps(document) == raw, (
                f"{collection} changed in place: {document['id']}"
            )

    def all(self, collection: str) -> list[Document]:
        """Every document of a collection."""
        return [orjson.loads(raw) for raw in self.documents[collection].values()]

    def get(self, collection: str, id: str) -> Document | None:
        """One document."""
        raw = self.documents[collection].get(id)
        return None if raw is None else dict(orjson.loads(raw))

    def load_input(self, state: State) -> LoadInput:
        """What recovery reads."""
        ended = {job_state.value for job_state in ENDED_JOBS}
        jobs = {d["id"]: d for d in self.all("jobs") if d["state"] not in ended}
        return LoadInput(
            jobs=list(jobs.values()),
            tasks=[d for d in self.all("tasks") if d["jobid"] in jobs],
            workunits=[d for d in self.all("workunits") if d["jobid"] in jobs],
            clients=self.all("clients"),
            counters=self.get("meta", "counters"),
            queue=self.get("meta", "queue"),
            rules=state.rules,
        )


def operations(state: State, changes: Changes) -> Operations:
    """A batch as the engine writes it: removals, then documents, jobs last; then parts of removed jobs."""
    found: Operations = [(r.collection, r.field, None, r.value) for r in changes.removals]
    found += [(name, "id", document, "") for name, document in views.documents(state, changes)]
    gone = [effect.job for effect in changes.effects if isinstance(effect, DeleteNodes) and effect.job]
    found += [(name, "jobid", None, job_id) for job_id in gone for name in ("workunits", "tasks")]
    return found


def picture(state: State, now_s: float) -> dict[str, Any]:
    """What people are shown of a state, from the documents of the API; Reference.picture gives the same."""
    documents = [views.client_document(client) for client in state.clients.values()]
    return {
        "queue": state.queue_suspended,
        "jid": state.last_jid,
        "jobs": {
            job.id: (
                shown["state"], job.priority, shown["lastfailed"], shown["remaintasks"], shown["resumed"]
            )
            for job in state.jobs.values()
            if (shown := views.job_document(job))
        },
        "tasks": {
            task.id: (
                shown["state"], shown["generation"], shown["totalwork"], shown["remainwork"],
                task.preparing, task.finishing,
            )
            for task in state.tasks.values()
            if (shown := views.task_document(task))
        },
        "work": {
            unit.id: (
                shown["state"], shown["attempt"], shown["client"], shown["failed"], shown["lost"],
                max(unit.due_s - now_s, 0.0), (shown["exit"] or {}).get("kind", ""),
            )
            for unit in state.workunits.values()
            if (shown := views.unit_document(unit))
        },
        "clients": {
            shown["id"]: (
                shown["Status"], sorted(state.clients[shown["id"]].holds), sorted(shown["skip_work"]),
                shown["suspended"], shown["suspend_reason"].partition(":")[0],
                shown["total_checkout"], shown["total_completed"], shown["total_failed"],
                shown["consecutive_failures"],
            )
            for shown in documents
        },
    }  # fmt: skip


@dataclass
class FakeClient:
    """What a client remembers, whether or not the server agrees."""

    id: ClientId
    native: bool
    profile: dict[str, Any]
    incarnation: int = 1
    request_id: int = 0
    last_request: Any = None  #: an exchange whose reply was lost
    running: dict[WorkunitId, tuple[int, str]] = field(default_factory=dict)
    spool: list[Report] = field(default_factory=list)  #: reports that were not acknowledged

    def restart(self, loses_spool: bool) -> None:
        """Come up again as another incarnation; what ran is gone."""
        self.running.clear()
        if loses_spool:
            self.spool.clear()
        self.incarnation += 1
        self.request_id = 0
        self.last_request = None

    def take(self, grants: list[Grant]) -> None:
        """Begin with granted work."""
        for grant in grants:
            self.running[grant.workunit_id] = (grant.attempt, grant.token)

    def drop(self, id: WorkunitId, attempt: int | None = None) -> None:
        """Stop work, as told."""
        if attempt is None or self.running.get(id, (None,))[0] == attempt:
            self.running.pop(id, None)


class History:
    """Remembers what was granted and accepted, and how things moved."""

    def __init__(self) -> None:
        self.accepted: set[tuple[WorkunitId, int]] = set()
        self.highest_attempt: dict[WorkunitId, int] = {}
        self.jobs: dict[JobId, JobState] = {}
        self.tasks: dict[TaskId, tuple[TaskState, int]] = {}
        self.finished: dict[str, bytes] = {}  #: documents of completed workunits
        self.max_jid = 0

    def granted(self, state: State, grants: list[Grant]) -> None:
        """Look at what was just handed out."""
        for grant in grants:
            task, id = grant.task, grant.workunit_id
            assert grant.attempt > self.highest_attempt.get(id, 0), f"{id}: attempt {grant.attempt} twice"
            self.highest_attempt[id] = grant.attempt
            assert all(state.tasks[parent].is_done for parent in task.depends_on), f"{id} before its parents"
            assert not state.queue_suspended
            holder = state.clients[grant.unit.client]
            assert not holder.suspended, f"{id} was given to a suspended client"

    def result(self, id: WorkunitId, generation: int) -> None:
        """A result was accepted."""
        assert (id, generation) not in self.accepted, f"{id}: two results in generation {generation}"
        self.accepted.add((id, generation))

    def moved(self, state: State, verbs: Collection[str], store: MemoryStore) -> None:
        """Compare with the step before; `verbs` is what people just did."""
        for job in state.jobs.values():
            before = self.jobs.get(job.id)
            if before is not None:
                _check_path(JOB_MOVES, before, job.state, f"{job!r}")
                if before is JobState.COMPLETED and job.state is not before:
                    assert _REOPENING & set(verbs), f"{job!r} was completed"
            else:
                assert job.jid > self.max_jid, f"{job!r}: jid {job.jid} was used before"
                self.max_jid = job.jid
            self.jobs[job.id] = job.state
            for task in job.tasks:
                self._task_moved(task.id, task.state, task.generation, verbs)
        self._finished_stay(verbs, store)

    def _task_moved(self, id: TaskId, now: TaskState, generation: int, verbs: Collection[str]) -> None:
        before, old_generation = self.tasks.get(id, (now, generation))
        if generation != old_generation:
            unusable = (
                "resume" in verbs and before is not TaskState.COMPLETED
            )  # its inputs are looked at again
            assert unusable or _REOPENING & set(verbs), f"{id} was set back by {verbs}"
        else:
            _check_path(TASK_MOVES, before, now, id)
            assert before is not TaskState.COMPLETED or now is before, f"{id} was completed"
        self.tasks[id] = (now, generation)

    def _finished_stay(self, verbs: Collection[str], store: MemoryStore) -> None:
        now = {
            id: raw
            for id, raw in store.documents["workunits"].items()
            if orjson.loads(raw)["state"] == WorkunitState.COMPLETED
        }
        if not _REOPENING & set(verbs):
            for id, raw in self.finished.items():
                assert now.get(id) == raw, f"{id} was completed and is {now.get(id)!r}"
        self.finished = now


def _check_path(moves: Moves[Any], source: Any, target: Any, what: str) -> None:
    """Some legal moves lead from one to the other."""
    reached, stack = {source}, [source]
    while stack:
        new = set(moves[stack.pop()]) - reached
        reached |= new
        stack += new
    assert target in reached, f"{what} went from {source} to {target}"


class Server:
    """The state, its store, and the effects on their way."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.store = MemoryStore()
        self.history = History()
        self.effects: list[PrepareTask | FinishTask] = []
        self.done_effects: list[PrepareTask | FinishTask] = []  #: carried out before; may be once more
        self.nodes: set[str] = set()
        self.to_forget: list[JobId] = []

    def check(self) -> None:
        """Every invariant holds, also between two batches."""
        broken = check(self.state)
        assert not broken, "\n".join(broken)

    def commit(self, verbs: Collection[str], torn_at: int | None, ctx: Context) -> None:
        """Write what was marked as one batch, then look whether all is as it must be."""
        changes = self.state.take()
        batch = operations(self.state, changes)
        if torn_at is not None and len(batch) > 1:
            self._check_torn(batch[: 1 + torn_at % (len(batch) - 1)], ctx)
        self.store.apply(batch)
        for effect in changes.effects:
            if isinstance(effect, PrepareTask | FinishTask):
                self.effects.append(effect)
            elif isinstance(effect, DeleteNodes):
                self.nodes.difference_update(effect.node_ids)
            elif isinstance(effect, ForgetJob):
                self.to_forget.append(effect.job_id)
        self.check()
        self.history.moved(self.state, verbs, self.store)
        self._check_ranks()
        self._check_documents()

    def _check_torn(self, part: Operations, ctx: Context) -> None:
        """A store without transactions may keep only the beginning of a batch: all is well after a start."""
        store = self.store.copy()
        store.apply(part)
        loaded = load(store.load_input(self.state), ctx)
        broken = check(loaded)
        assert not broken, "after a torn batch:\n" + "\n".join(broken)

    def check_reload(self, ctx: Context) -> None:
        """A restart now would give this very state, and would have nothing to put right."""
        loaded = load(self.store.load_input(self.state), ctx)
        changes = loaded.take()
        put_right = [*changes.jobs, *changes.tasks, *changes.workunits, *changes.clients]
        assert not put_right, f"load changed {put_right}"
        live, again = snapshot(self.state), snapshot(loaded)
        assert again == live, f"a restart changes {_differences(live, again)}"
        broken = check(loaded)
        assert not broken, "after a restart:\n" + "\n".join(broken)
        wanted = {e for e in changes.effects if isinstance(e, PrepareTask | FinishTask)}
        pending = {e for e in self.effects if self.is_current(e)}
        assert wanted == pending, f"a restart asks for {wanted}, on their way are {pending}"

    def restart(self, ctx: Context) -> None:
        """Kill the server and start it again."""
        self.state = load(self.store.load_input(self.state), ctx)
        self.effects = []
        self.to_forget = []

    def is_current(self, effect: PrepareTask | FinishTask) -> bool:
        """Whether the scheduler still waits for it."""
        task = self.state.tasks.get(effect.task_id)
        if task is None or task.generation != effect.generation:
            return False
        return task.preparing if isinstance(effect, PrepareTask) else task.finishing

    def finished(self, *ids: WorkunitId) -> dict[WorkunitId, Document]:
        """Stored documents of workunits that are not live."""
        found = {id: self.store.get("workunits", id) for id in ids if id not in self.state.workunits}
        return {id: document for id, document in found.items() if document is not None}

    def _check_ranks(self) -> None:
        """No workunit is lost: each rank is completed, live, or was never handed out."""
        ranks: dict[str, set[int]] = defaultdict(set)
        for document in self.store.all("workunits"):
            if document["state"] == WorkunitState.COMPLETED:
                task = self.state.tasks.get(document["taskid"])
                if task is not None and task.generation == document["generation"]:
                    ranks[task.id].add(document["rank"])
        for task in self.state.tasks.values():
            if not task.is_cut:
                assert not ranks[task.id], f"{task!r} was not cut and has results"
                continue
            pristine = set(range(task.fresh_rank, task.end_rank))
            parts = [ranks[task.id], set(task.units), pristine]
            assert sum(map(len, parts)) == task.totalwork, f"{task!r} lost ranks: {parts}"
            assert set().union(*parts) == set(range(task.end_rank - task.totalwork, task.end_rank))

    def _check_documents(self) -> None:
        """Everything live is stored as it is: nothing was changed without being marked."""
        for job in self.state.jobs.values():
            self._same("jobs", {**views.job_document(job), "revision": 0})
            for task in job.tasks:
                self._same("tasks", views.task_document(task))
        for unit in self.state.workunits.values():
            self._same("workunits", views.unit_document(unit))
        for client in self.state.clients.values():
            self._same("clients", views.client_document(client))
        for document in self.store.all("clients"):
            assert document["id"] in self.state.clients, f"client {document['id']} is stored only"
        for document in self.store.all("workunits"):
            owner = self.state.tasks.get(document["taskid"])
            stale = owner is not None and owner.generation != document["generation"]
            assert not stale, f"{document['id']} of an earlier generation is still stored"
        ended = {job_state.value for job_state in ENDED_JOBS}
        for document in self.store.all("jobs"):
            assert document["id"] in self.state.jobs or document["state"] in ended, (
                f"{document['id']} is stored only"
            )

    def _same(self, collection: str, document: Document) -> None:
        stored = self.store.get(collection, document["id"])
        assert stored is not None, f"{collection} {document['id']} was never stored"
        if collection == "jobs":
            stored = {**stored, "revision": 0}
        wrong = {key: (stored.get(key), value) for key, value in document.items() if stored.get(key) != value}
        assert not wrong, f"{collection} {document['id']} is not stored as it is: {wrong}"


def _differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two snapshots differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            line for key in keys for line in _differences(before.get(key), after.get(key), f"{path}.{key}")
        ]
    return [] if before == after else [f"{path}: {before!r} -> {after!r}"]
