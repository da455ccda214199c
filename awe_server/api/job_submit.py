"""`POST /job`: a document becomes a job, once.

An Idempotency-Key makes a repeated submission harmless: the same key with the same body gives the same job,
for as long as the job is kept, also after a restart. Key and body are kept only as hashes.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
from starlette.requests import Request

from awe_server.api.bodies import media_type, whole
from awe_server.api.deps import INLINE
from awe_server.api.multipart import Part, is_multipart, parts
from awe_server.data.root_threads import NoAnswer, RootThreads
from awe_server.data.roots import allowed
from awe_server.runtime.collector import undisturbed
from awe_server.runtime.engine import Engine
from awe_server.runtime.services import Services
from awe_server.scheduler.state import Context, Job
from awe_server.scheduler.submit import admit_job, build_job
from awe_server.store.base import Document, Match, Query
from shared_models.errors import (
    AlreadyExists,
    BadRequest,
    Forbidden,
    InvalidDocument,
    NotConfirmed,
    ShuttingDown,
    StoreUnavailable,
    Unavailable,
)
from shared_models.ids import JobId
from shared_models.limits import MAX_DOCUMENT_BYTES, MAX_NAME_CHARS
from shared_models.parse import parse_job_document
from shared_models.roots import root_of

#: Room for the form around the document.
_MAX_FORM_BYTES = MAX_DOCUMENT_BYTES + 1024 * 1024
#: Documents that are read at once; larger ones in a thread.
INLINE_BYTES = 8 * 1024
PATHS_AT_ONCE = 500  #: looked up by one call of a thread
#: For which its file system has so long, the wait for a thread included; less than a server takes to end.
ANSWER_S = 4.0
_NOT_OURS = {"awf": "AWF documents", "cwl": "CWL workflows", "import": "importing finished jobs"}

JobAndTasks = tuple[Document, list[Document]]


async def read_document(request: Request) -> bytes:
    """The job document of a request: part `upload` of a form, or the body itself.

    Raises BadRequest with AWE's texts, TooLarge.
    """
    if not is_multipart(request):
        raw = await whole(request, MAX_DOCUMENT_BYTES)
        if (
            not raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
            and media_type(request) != "application/json"
        ):
            raise BadRequest(
                "No job file is submitted: send a form with a file 'upload' (curl -F upload=@job.json), "
                "or the JSON document itself as application/json"
            )
        return raw
    document: bytes | None = None
    seen: list[str] = []
    async for part in parts(request, _MAX_FORM_BYTES):
        seen.append(part.name)
        if part.name == "upload":
            if document is not None:
                raise BadRequest("the form has more than one part 'upload'")
            document = await part.whole(MAX_DOCUMENT_BYTES)
        else:
            _refuse_foreign(part)
    if document is None:
        raise BadRequest(f"No job script or awf is submitted: the form has {_listed(seen)}, but no 'upload'")
    return document


def _refuse_foreign(part: Part) -> None:
    if part.name in _NOT_OURS:
        raise BadRequest(f"part '{part.name}': {_NOT_OURS[part.name]} are not supported by this server")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name[:50]}'" for name in list(names)[:5]) or "no part"


async def build(
    raw: bytes,
    own_hosts: Iterable[str],
    root_threads: RootThreads,
    ctx: Context,
    job_id: JobId,
    owner: str,
    key: str,
    datatoken: str,
) -> Job:
    """Check a document and make the job of it, in a thread if that takes time: others are served meanwhile.

    Nothing of the server's state is looked at. Raises InvalidDocument with every problem's path, TooLarge;
    Unavailable if the file system of a path that the document names gives no answer.
    """
    hosts = tuple(own_hosts)
    paths: dict[str, _Path] = {}  #: that the document names

    def work() -> Job | InvalidDocument:
        try:
            document = parse_job_document(
                raw,
                own_hosts=hosts,
                closed=lambda path: paths.setdefault(path, _Path(path)).refusal,
                leads_to=lambda path: paths.get(path, _Path(path)).leads_to,
            )
        except InvalidDocument as exc:
            return exc
        return build_job(ctx, document, job_id=job_id, owner=owner, idempotency_key=key, datatoken=datatoken)

    async def carry_out() -> Job | InvalidDocument:
        return work() if len(raw) <= INLINE_BYTES else await anyio.to_thread.run_sync(undisturbed, work)

    found = await carry_out()
    await _look_up(paths, root_threads)
    places = {path.leads_to for path in paths.values()}
    if len(places) < len(paths) or any(path.refusal for path in paths.values()):
        found = await carry_out()
    if isinstance(found, InvalidDocument):
        raise found
    return found


@dataclass(slots=True, frozen=True)
class _Path:
    """Where a path leads, or why jobs may not use it; as it is written, until it was looked up."""

    leads_to: str
    refusal: str | None = None


async def _look_up(paths: dict[str, _Path], threads: RootThreads) -> None:
    """Find out where the paths lead, and which of them jobs may not use, and why. Raises Unavailable."""
    of_root: dict[str, list[str]] = {}
    for path in paths:
        of_root.setdefault(root_of(path, threads.roots) or "", []).append(path)
    for texts in of_root.values():
        for start in range(0, len(texts), PATHS_AT_ONCE):
            look = partial(_looked_up, texts[start : start + PATHS_AT_ONCE], threads.roots)
            try:
                paths.update(await threads.run(texts[start], look, ANSWER_S))
            except NoAnswer as exc:
                raise Unavailable(f"{exc}: nothing was submitted, try again") from exc


def _looked_up(paths: Iterable[str], roots: Sequence[str]) -> dict[str, _Path]:
    return {path: _follow(path, roots) for path in paths}


def _follow(path: str, roots: Sequence[str]) -> _Path:
    """Look at the file system."""
    try:
        return _Path(str(allowed(path, roots)))
    except Forbidden as exc:
        return _Path(path, exc.message)


async def admit(engine: Engine, job: Job) -> JobAndTasks:
    """Submit a job that was built, and give its documents when they are durable.

    Raises StoreUnavailable before, NotConfirmed after it was taken in.
    """
    await engine.answering()
    if len(job.tasks) <= INLINE:
        admitted = engine.run(admit_job, job)
    else:
        admitted = undisturbed(lambda: engine.run(admit_job, job))
    return await _confirmed(engine, admitted.id)


async def _confirmed(engine: Engine, job_id: JobId) -> JobAndTasks:
    try:
        return await engine.job_documents(job_id)
    except (StoreUnavailable, ShuttingDown) as exc:
        reason = exc.fields.get("reason", exc.message)
        raise NotConfirmed(
            f"job {job_id} was accepted, but the store has not confirmed it ({reason}): it may still be "
            f"carried out. Look for it with GET /job/{job_id}, or repeat this with the same Idempotency-Key "
            f"and no other"
        ) from exc


class OnceOnly:
    """Submissions with a key: at most one job for each.

    Two posts of the same key at the same moment wait for each other here; this process is the only writer.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._busy: dict[str, tuple[anyio.Lock, int]] = {}

    async def earlier(self, owner: str, stored_key: str) -> JobAndTasks | None:
        """The job of an earlier post with this key.

        Raises AlreadyExists if that had another body, NotConfirmed if it is not durable yet.
        """
        live = self._services.engine.state.idempotency.get((owner, stored_key))
        if live is not None:
            return await _confirmed(self._services.engine, live.id)
        key_hash, _, _ = stored_key.partition(":")
        where = (
            Match("_idempotency", (key_hash + ":",), "ge"),
            Match("_idempotency", (key_hash + ";",), "lt"),
        )
        page = await self._services.engine.find("jobs", Query(where=where, limit=1))
        for job in page.documents:
            if job["_idempotency"] != stored_key:
                raise AlreadyExists(
                    f"this Idempotency-Key was used for job {job['id']}, which had another document"
                )
            return await self._services.engine.job_documents(JobId(job["id"]))
        return None

    def lock(self, stored_key: str) -> "_KeyLock":
        """Hold this while looking for and making the job of a key."""
        return _KeyLock(self._busy, stored_key.partition(":")[0])


class _KeyLock:
    """An entry of `busy` that lives while somebody holds or waits for it."""

    def __init__(self, busy: dict[str, tuple[anyio.Lock, int]], key: str) -> None:
        self._busy = busy
        self._key = key

    async def __aenter__(self) -> None:
        lock, users = self._busy.get(self._key) or (anyio.Lock(), 0)
        self._busy[self._key] = (lock, users + 1)
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._busy[self._key][0].release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._busy[self._key]
        if users == 1:
            del self._busy[self._key]
        else:
            self._busy[self._key] = (lock, users - 1)


def stored_key(owner: str, key: str, raw: bytes) -> str:
    """What is kept of a key and its body: `<hash of owner and key>:<hash of body>`.

    Raises BadRequest if the key is too long.
    """
    if len(key) > MAX_NAME_CHARS:
        raise BadRequest(f"Idempotency-Key is longer than {MAX_NAME_CHARS} characters")
    whose = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()[:32]
    return f"{whose}:{hashlib.sha256(raw).hexdigest()[:32]}"
