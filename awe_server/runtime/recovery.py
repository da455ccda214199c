"""Read the state from the store: after a start, and after a bug made memory doubtful.

Only what can still change is read: unfinished jobs, their tasks and live workunits, the clients. Finished
workunits are counted by the store. A store that does not answer is waited for; a document that cannot be
read is skipped with one line, and its job is shown suspended with the reason, so that it is not lost
silently.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from awe_server.data.documents import is_whole
from awe_server.runtime import deletions
from awe_server.runtime.collector import no_garbage_collection
from awe_server.scheduler import invariants
from awe_server.scheduler.load import LoadInput, load, load_jobs
from awe_server.scheduler.state import ENDED_JOBS, Context, Rules, State
from awe_server.settings import Settings
from awe_server.store.base import Collection, Document, Match, Put, Query, Store
from awe_server.store.errors import StoreCorrupt
from shared_models.errors import StoreUnavailable, UnreadableJob
from shared_models.limits import MAX_NOTES_CHARS
from shared_models.states import JobState, WorkunitState

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 500  #: ids in one question to the store
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 5.0

ENDED = tuple(state.value for state in ENDED_JOBS)
LIVE = tuple(state.value for state in WorkunitState if state is not WorkunitState.COMPLETED)


@dataclass(slots=True)
class JobDocuments:
    """All that is needed of one job."""

    job: Document
    tasks: list[Document] = field(default_factory=list)
    workunits: list[Document] = field(default_factory=list)
    completed: dict[str, int] = field(default_factory=dict)  #: how many are, by task
    foreign: str = ""  #: of a document that was found as one of this job: it says that it is another one


def rules(settings: Settings) -> Rules:
    """The scheduler's part of the settings."""
    return Rules(
        lease_s=settings.lease_s,
        max_work_failure=settings.max_work_failure,
        max_client_failure=settings.max_client_failure,
        max_lost=settings.max_lost,
        retry_base_s=settings.retry_base_s,
        retry_cap_s=settings.retry_cap_s,
        policy=settings.policy,
        file_roots=settings.file_roots,
    )


async def patiently(action: Callable[[], Awaitable[T]], what: str) -> T:
    """Do it as soon as the store answers; every other error is the caller's."""
    delay_s = FIRST_RETRY_S
    while True:
        try:
            return await action()
        except StoreUnavailable as exc:
            log.warning("store_unavailable", extra={"during": what, "reason": exc.message})
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_S)


async def server_document(store: Store) -> Document:
    """Says by which `uuid` this server goes on this store; made at its first start. Raises StoreCorrupt."""
    known = await known_server(store)
    if known is None:
        known = {"id": "server", "uuid": str(uuid.uuid4())}
        await store.commit([Put("meta", known)])
        log.info("new_store", extra={"store": store.name})
    return known


async def known_server(store: Store) -> Document | None:
    """The same; None in a new store. Raises StoreCorrupt if it is gone, which says whose the files are."""
    known = await meta_document(store, "server", "uuid", str)
    if known is None and (await store.find("nodes", Query(limit=1))).total:
        raise StoreCorrupt(
            f"{store.name} is damaged (it has nodes and no document 'server' in meta): it was left as it is: "
            'restore a backup, or put {"id": "server", "uuid": "…"} there, with the text of the file '
            "nodes/server in the data directory"
        )
    return known


async def read_state(store: Store, settings: Settings, context: Callable[[], Context]) -> State:
    """The live state; jobs that cannot be read are marked suspended in the store.

    Raises StoreUnavailable, StoreCorrupt.
    """
    with no_garbage_collection():
        state, unreadable = await _read(store, settings, context)
    for skipped in unreadable:
        log.error(
            "document_skipped",
            extra={"collection": skipped.collection, "id": skipped.id, "error": skipped.error},
        )
    marks = [_suspended(skipped) for skipped in unreadable if skipped.collection == "jobs"]
    if marks:
        await store.commit(marks)
    for effect in await deletions.left_over(store):
        state.emit(effect)
    await _raise_job_numbers(store, state)
    log.info(
        "state_read",
        extra={"jobs": len(state.jobs), "tasks": len(state.tasks), "workunits": len(state.workunits)},
    )
    return state


async def _raise_job_numbers(store: Store, state: State) -> None:
    """See that no job gets the number of one that is stored: the counter may be lost, or be an older one."""
    given = await store.highest_number("jobs", "jid")  # also of jobs that have ended
    state.last_jid = max(state.last_jid, given)
    stored = await meta_document(store, "counters", "jid", int)
    if given > (stored["jid"] if stored else 0):
        log.warning("job_numbers_raised", extra={"jid": given})
        state.changes.counters = True


async def survey(store: Store, settings: Settings, context: Callable[[], Context]) -> list[str]:
    """What a server would stumble over at its start; changes nothing."""
    state, unreadable = await _read(store, settings, context)
    return [f"{s.collection} {s.id}: {s.error}" for s in unreadable] + invariants.check(state)


async def _read(
    store: Store, settings: Settings, context: Callable[[], Context]
) -> tuple[State, list["_Unreadable"]]:
    clients = [document async for document in store.scan("clients")]
    unfinished = await _unfinished_jobs(store)
    counters = await meta_document(store, "counters", "jid", int)
    queue = await meta_document(store, "queue", "suspended", bool)
    found: list[JobDocuments] = []
    for jobs in _batches(unfinished):
        found += await read_jobs(store, jobs)
    base = LoadInput(clients=clients, counters=counters, queue=queue, rules=rules(settings))
    if any(documents.foreign for documents in found):
        return _load_what_is_sound(base, found, context())
    try:
        return load(_joined(base, found), context()), []
    except Exception as exc:  # noqa: BLE001 - an odd document may break anything; find it
        log.error("documents_unreadable", extra={"error": f"{type(exc).__name__}: {exc}"})
        return _load_what_is_sound(base, found, context())


async def meta_document(store: Store, id: str, key: str, kind: type) -> Document | None:
    """A document of the whole server. Raises StoreCorrupt: there is no going on without it."""
    document = await store.get("meta", id)
    found = None if document is None else document.get(key)
    if document is not None and not (is_whole(found) if kind is int else isinstance(found, kind)):
        raise StoreCorrupt(
            f"{store.name} is damaged (meta document '{id}' has no {key} that makes sense): "
            "it was left as it is: restore a backup, or put that document right"
        )
    return document


async def _unfinished_jobs(store: Store) -> list[Document]:
    """Every job that has not ended, also one in a state that nobody knows."""
    counts = await store.count_by("jobs", "state")
    wanted = {state: count for state, count in counts.items() if state not in ENDED}
    where = [Match("state", tuple(wanted))]
    found = [document async for document in store.scan("jobs", where)] if wanted else []
    if len(found) == sum(wanted.values()):
        return found
    # A state that is missing or no text at all: look at each.
    return [document async for document in store.scan("jobs") if document.get("state") not in ENDED]


async def read_jobs(store: Store, jobs: Sequence[Document]) -> list[JobDocuments]:
    """Some jobs with their tasks and workunits."""
    try:
        return await _read_together(store, jobs)
    except _Stray:  # what is found when only one job is asked for is that one's
        return [documents for job in jobs for documents in await _read_together(store, [job])]


class _Stray(Exception):
    """A document does not say which of those that were asked for it belongs to: somebody has edited it."""


async def _read_together(store: Store, jobs: Sequence[Document]) -> list[JobDocuments]:
    """Raises _Stray, but never for a single job."""
    found = {document["id"]: JobDocuments(document) for document in jobs}
    owners: dict[str, JobDocuments] = {}
    async for task in store.scan("tasks", [Match("jobid", tuple(found))]):
        documents = _owner(task.get("jobid"), found)
        documents.tasks.append(task)
        documents.foreign = documents.foreign or _foreign_task(task, documents.job["id"])
        owners[task["id"]] = documents
    tasks = [task for documents in found.values() for task in documents.tasks]
    for some in _batches(tasks):
        await _add_workunits(store, some, owners)
    return list(found.values())


def _owner(said: object, known: Mapping[str, JobDocuments]) -> JobDocuments:
    """Whose a document is that says so. Raises _Stray, unless it can only be one job's."""
    if isinstance(said, str) and said in known:
        return known[said]
    one, *others = {id(documents): documents for documents in known.values()}.values()
    if others:
        raise _Stray
    return one


def _foreign_task(task: Document, job_id: str) -> str:
    """What is wrong with the id of a task that was found as one of this job, "" if nothing is."""
    said, name = task.get("jobid"), task.get("task_name")
    if said == job_id and task["id"] == f"{job_id}_{name}":
        return ""
    return f"task {task['id']} says that it is task {name} of job {said}"


def _foreign_unit(unit: Document, known: Mapping[str, JobDocuments]) -> str:
    """The same of a workunit that was found as one of these tasks."""
    said, rank = unit.get("taskid"), unit.get("rank")
    if isinstance(said, str) and said in known and unit["id"] == f"{said}_{rank}":
        return ""
    return f"workunit {unit['id']} says that it is rank {rank} of task {said}"


async def read_job(store: Store, job_id: str) -> JobDocuments | None:
    """One job, whatever its state; None if there is no such job."""
    document = await store.get("jobs", job_id)
    return None if document is None else (await read_jobs(store, [document]))[0]


def revive(state: State, ctx: Context, documents: JobDocuments) -> None:
    """Bring a job that had ended back into the live state.

    Raises UnreadableJob, and then nothing changed, if its documents do not make sense.
    """
    problem = _problem(documents, state.rules, ctx)
    if problem:
        raise UnreadableJob(job_id=documents.job["id"], problem=problem)
    _add(state, ctx, documents)


def _problem(documents: JobDocuments, rules: Rules, ctx: Context) -> str:
    """Why a job cannot be loaded, found out beside the live state; "" if it can."""
    if documents.foreign:
        return documents.foreign
    try:
        _add(State(rules), ctx, documents)
    except Exception as exc:  # noqa: BLE001 - an odd document may break anything
        return f"{type(exc).__name__}: {exc}"
    return ""


def _add(state: State, ctx: Context, documents: JobDocuments) -> None:
    load_jobs(state, ctx, [documents.job], documents.tasks, documents.workunits, documents.completed)


async def _add_workunits(store: Store, tasks: Sequence[Document], owners: Mapping[str, JobDocuments]) -> None:
    """Live workunits as documents, completed ones as counts; as documents only if a batch was torn.

    `owners`: of these tasks, and maybe of others. Raises _Stray as _read_together does.
    """
    ids = Match("taskid", tuple(task["id"] for task in tasks))
    completed = Match("state", (WorkunitState.COMPLETED.value,))
    counts = await store.count_by("workunits", "taskid", [ids, completed])
    seen = Counter(counts)

    async def add(where: Sequence[Match]) -> None:
        async for unit in store.scan("workunits", where):
            documents = _owner(unit.get("taskid"), owners)
            documents.workunits.append(unit)
            documents.foreign = documents.foreign or _foreign_unit(unit, owners)
            seen[str(unit.get("taskid"))] += 1

    await add([ids, Match("state", LIVE)])
    for task in tasks:
        if seen[task["id"]] == _handed_out(task):
            owners[task["id"]].completed[task["id"]] = counts.get(task["id"], 0)
        else:
            await add([Match("taskid", (task["id"],)), completed])


def _handed_out(task: Document) -> int | None:
    """How many ranks were; None if the document makes no sense, which loading it will find as well."""
    if not task.get("_is_cut"):
        return 0
    try:
        return int(task["fresh_rank"]) - int(task["totalwork"] > 1)
    except (KeyError, TypeError, ValueError):
        return None


def _joined(base: LoadInput, found: Iterable[JobDocuments]) -> LoadInput:
    jobs: list[Document] = []
    tasks: list[Document] = []
    workunits: list[Document] = []
    completed: dict[str, int] = {}
    for documents in found:
        jobs.append(documents.job)
        tasks += documents.tasks
        workunits += documents.workunits
        completed.update(documents.completed)
    return replace(base, jobs=jobs, tasks=tasks, workunits=workunits, completed=completed)


@dataclass(slots=True, frozen=True)
class _Unreadable:
    """A document, or a job with its documents, that does not make sense."""

    collection: Collection
    document: Document
    error: str

    @property
    def id(self) -> str:
        return str(self.document.get("id"))


def _load_what_is_sound(
    base: LoadInput, found: Sequence[JobDocuments], ctx: Context
) -> tuple[State, list[_Unreadable]]:
    """Load each document alone first; leave out those that break."""
    unreadable: list[_Unreadable] = []
    clients = []
    for document in base.clients:
        try:
            load(LoadInput(clients=[document], rules=base.rules), ctx)
        except Exception as exc:  # noqa: BLE001 - see above
            unreadable.append(_Unreadable("clients", document, f"{type(exc).__name__}: {exc}"))
        else:
            clients.append(document)
    sound: list[JobDocuments] = []
    for documents in found:
        problem = _problem(documents, base.rules, ctx)
        if problem:
            unreadable.append(_Unreadable("jobs", documents.job, problem))
        else:
            sound.append(documents)
    return load(_joined(replace(base, clients=clients), sound), ctx), unreadable


def _suspended(skipped: _Unreadable) -> Put:
    """The job as people see it while its documents cannot be read."""
    job = skipped.document
    revision = job.get("revision")
    reason = f"this server cannot read this job's documents ({skipped.error})"[:MAX_NOTES_CHARS]
    changed = {
        "state": JobState.SUSPEND.value,
        "notes": reason,
        "error": {"servernotes": reason, "status": JobState.SUSPEND.value},
        "revision": revision + 1 if isinstance(revision, int) else 1,
    }
    return Put("jobs", {**job, **changed})


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
