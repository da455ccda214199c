"""Bytes that come in: Shock's forms, raw bodies, and outputs of attempts.

An output node belongs to a task, and only who holds an attempt may write to it. Our client names the
workunit, its attempt and its lease; a stock worker names nothing but the node and (of a split) the rank, so
the attempt that holds that rank at the moment is taken to be its own. Both are checked before the bytes
come, when the whole file takes its place, and before the reply: what comes from an attempt that lost its
lease meanwhile is not kept. Attributes of an output are the holder's, too, and wait like its bytes until its
report is accepted and the task is finished; from then on everybody may set them who may write.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from starlette.requests import Request

from awe_server.api.bodies import MAX_SMALL_BYTES, parse_json, stream
from awe_server.api.holding import holder
from awe_server.api.multipart import Part, is_multipart, parts
from awe_server.api.params import plain_count
from awe_server.data.documents import check_attributes, clean_name, expires_at
from awe_server.data.node_contents import Received
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import FileFact
from awe_server.runtime.engine import Engine
from awe_server.scheduler.holder import check_holder, is_native
from awe_server.scheduler.state import State
from awe_server.store.base import Document
from shared_models.archives import ARCHIVE_TAG
from shared_models.errors import AweError, BadRequest, Forbidden, LeaseLost, WorkunitNotFound
from shared_models.ids import TaskId, WorkunitId, kept_node_id, make_workunit_id, split_workunit_id
from shared_models.limits import MAX_NAME_CHARS, MAX_TOTALWORK
from shared_models.nearest import did_you_mean
from shared_models.states import TaskState, WorkunitState

T = TypeVar("T")

_FIELDS = (
    "upload", "file_name", "attributes", "attributes_str", "parts", "copy_data", "copy_indexes", "dedup",
    "expiration", "remove_expiration",
)  # fmt: skip
#: What a form may hold beside its file: so much of its length may be no byte of the file.
_AROUND_BYTES = 64 * 1024


@dataclass(slots=True, frozen=True)
class Attempt:
    """Who uploads: one attempt of one workunit."""

    work: WorkunitId
    rank: int
    attempt: int
    client_id: str | None
    token: str | None

    async def check(self, engine: Engine) -> None:
        """Raises LeaseLost, WorkunitNotFound."""
        await holder(engine, self.work, client_id=self.client_id, attempt=self.attempt, token=self.token)

    def check_now(self, state: State) -> None:
        """As `check`, from memory alone."""
        check_holder(state, self.work, client_id=self.client_id, attempt=self.attempt, token=self.token)


def named_attempt(node: Document, work: WorkunitId, attempt: int, token: str) -> Attempt:
    """The attempt that an uploader says it is. Raises Forbidden if the node is no output of its task."""
    task_id, rank = split_workunit_id(work)
    if node["task"] != task_id:
        raise Forbidden(f"node {node['id']} is not an output of task {task_id}")
    return Attempt(work, rank, attempt, None, token)


def present_attempt(state: State, node: Document, rank: int) -> Attempt:
    """The attempt by which a stock worker holds a rank of the node's task now. Raises LeaseLost."""
    work = make_workunit_id(TaskId(node["task"]), rank)
    unit = state.workunits.get(work)
    if unit is None or unit.state is not WorkunitState.CHECKOUT or is_native(state, unit):
        raise LeaseLost(workunit_id=work)
    return Attempt(work, rank, unit.attempt, unit.client, None)


async def receive_output(
    nodes: NodeStore,
    engine: Engine,
    node_id: str,
    who: Attempt,
    chunks: AsyncIterator[bytes],
    size: int = 0,
    offset: int | None = None,
) -> FileFact:
    """Stage an attempt's output. Raises LeaseLost before or after, NoSpace.

    `offset`: as for `put_part`; Conflict for another one than `unfinished_output` says.
    """
    rank, attempt = who.rank, who.attempt
    return await _as_holder(
        engine, who, lambda check: nodes.put_part(node_id, rank, attempt, chunks, size, check, offset)
    )


async def unfinished_output(nodes: NodeStore, engine: Engine, node_id: str, who: Attempt) -> int:
    """How many bytes are here of an attempt's output. Raises LeaseLost."""
    await who.check(engine)
    return await nodes.unfinished(node_id, who.rank, who.attempt)


async def _as_holder(
    engine: Engine, who: Attempt, stage: Callable[[Callable[[], object]], Awaitable[T]]
) -> T:
    """Stage something of an attempt. Raises LeaseLost before, when it takes its place, or after."""
    await who.check(engine)
    try:
        staged = await stage(lambda: who.check_now(engine.state))
    except WorkunitNotFound:  # finished and left memory meanwhile
        await who.check(engine)
        raise
    await who.check(engine)
    return staged


async def keep_failed(
    nodes: NodeStore, engine: Engine, who: Attempt, chunks: AsyncIterator[bytes], size: int
) -> Document:
    """Keep what a failed attempt left of its outputs, a tar, as a node of the job.

    The same attempt may send it again. Raises LeaseLost before or after, Forbidden, NoSpace.
    """
    await who.check(engine)
    task = engine.state.tasks[split_workunit_id(who.work)[0]]
    if not task.keep_failed:
        raise Forbidden(f"task {task.id} does not ask for what failed attempts leave (keep_failed)")
    about = {"type": "failed-attempt", "work": who.work, "attempt": who.attempt}
    content = await nodes.receive(chunks, kept_node_id(who.work, who.attempt), size)
    try:
        await who.check(engine)
    except AweError:
        await nodes.discard(content)
        raise
    return await nodes.keep(
        content,
        job=task.job.id,
        name=f"{who.work}.{who.attempt}.tar"[-MAX_NAME_CHARS:],
        attributes=about,
        tags=(ARCHIVE_TAG,),
        owner=str(task.job.acl.get("owner") or ""),
    )


def announced(request: Request) -> int:
    """How many bytes of a file the request says it carries, at least; 0 if it does not say."""
    length = plain_count(request.headers.get("content-length", "")) or 0
    return max(0, length - _AROUND_BYTES) if is_multipart(request) else length


@dataclass(slots=True)
class Form:
    """What a form said: a file that was taken in and not given to a node yet, and the fields around it."""

    file_name: str = ""
    upload: Received | None = None
    upload_name: str = ""
    attributes: dict[str, Any] | None = None
    has_attributes: bool = False
    parts: int = 0
    copy_data: str = ""
    copy_indexes: bool = False
    dedup: bool = False
    expiration: str = ""
    remove_expiration: bool = False

    @property
    def has_expiration(self) -> bool:
        """Whether it says when the node goes, or that it stays."""
        return bool(self.expiration or self.remove_expiration)

    def check(self) -> None:
        """Raises BadRequest for what makes no sense whatever the node is."""
        if self.expiration and self.remove_expiration:
            raise BadRequest("either expiration or remove_expiration")
        expires_at(self.expiration, 0.0)

    async def set_expiration(self, nodes: NodeStore, node_id: str) -> None:
        """Let the node go or stay as the form says, if it says anything."""
        if self.has_expiration:
            await nodes.set_expiration(node_id, self.expiration)

    @property
    def name(self) -> str:
        """What the file is to be called."""
        return self.file_name or self.upload_name

    async def receive(self, nodes: NodeStore, part: Part, size: int, node_id: str = "") -> None:
        """Take in the file of the form. Raises BadRequest, NoSpace."""
        if self.upload is not None:
            raise BadRequest("the form has more than one file 'upload'")
        self.upload_name = part.filename or ""
        clean_name(self.name)  # refuse before the bytes come
        self.upload = await nodes.receive(part.chunks(), node_id, size)

    async def copy(self, nodes: NodeStore, node_id: str = "") -> None:
        """Take the content of the node that `copy_data` names. Raises BadRequest, NodeNotFound, NoFile."""
        if sum(map(bool, (self.upload, self.parts, self.copy_data))) > 1:
            raise BadRequest("a node gets its bytes from one of: upload, parts, copy_data")
        if self.copy_data:
            self.upload = await nodes.receive_copy(self.copy_data, node_id, indexes=self.copy_indexes)
            self.upload_name = self.upload.name

    async def read(self, part: Part) -> None:
        """Read one field that is no file of the node. Raises BadRequest, TooLarge."""
        name = part.name
        raw = await part.whole(MAX_SMALL_BYTES)
        if name in ("attributes", "attributes_str"):
            self.attributes = check_attributes(parse_json(raw, name) if raw.strip() else None)
            self.has_attributes = True
        elif name == "file_name":
            self.file_name = raw.decode("utf-8", "replace")[: 4 * MAX_NAME_CHARS]
        elif name == "copy_data":
            self.copy_data = raw.decode("utf-8", "replace")[:MAX_NAME_CHARS]
        elif name == "expiration":
            self.expiration = raw.decode("utf-8", "replace")[:MAX_NAME_CHARS]
        elif name in ("copy_indexes", "dedup", "remove_expiration"):
            setattr(self, name, _yes(raw, name))
        elif name == "parts":
            self.parts = _count(raw)
        else:
            raise BadRequest(f"form field '{name[:100]}' is not known here{did_you_mean(name, _FIELDS)}")


def _count(raw: bytes) -> int:
    text = raw.strip()
    if not text.isdigit() or not 1 <= len(text) <= len(str(MAX_TOTALWORK)):
        raise BadRequest(f"parts: must be a whole number up to {MAX_TOTALWORK}")
    return int(text)


def _yes(raw: bytes, name: str) -> bool:
    text = raw.strip()
    if text not in (b"", b"0", b"1", b"false", b"true"):
        raise BadRequest(f"{name}: must be 1 or 0")
    return text in (b"1", b"true")


def rank_of(part: Part) -> int | None:
    """The rank that a form field names: `upload` 0, `3` 3; None if it is no file of the node."""
    if part.name == "upload":
        return 0
    name = part.name
    return int(name) if name.isascii() and name.isdigit() and len(name) <= len(str(MAX_TOTALWORK)) else None


@asynccontextmanager
async def _letting_go(nodes: NodeStore, form: Form) -> AsyncIterator[None]:
    """Read a form; when it turns out to be damaged, what was taken in is let go."""
    try:
        yield
    except BaseException:
        with anyio.CancelScope(shield=True):
            await nodes.discard(form.upload)
        raise


async def create_from_form(nodes: NodeStore, request: Request, owner: str, form: Form) -> Document:
    """`POST /node` with a form; `form` holds what the URL said. No node is made before the form was read to
    its end and makes sense.
    """
    async with _letting_go(nodes, form):
        async for part in parts(request):
            if rank_of(part) == 0:
                await form.receive(nodes, part, announced(request))
            else:
                await form.read(part)
        form.check()
        await form.copy(nodes)
    return await nodes.add(
        form.upload,
        name=form.name,
        attributes=form.attributes,
        owner=owner,
        parts=form.parts,
        expiration=form.expiration,
        dedup=form.dedup,
    )


async def change_by_form(nodes: NodeStore, request: Request, node: Document, form: Form) -> Document:
    """`PUT /node/{id}` with a form, for a node that is no task's output. It changes when the form was read to
    its end and makes sense; parts are staged as they come.
    """
    node_id = node["id"]
    async with _letting_go(nodes, form):
        async for part in parts(request):
            rank = rank_of(part)
            if rank is None:
                await form.read(part)
            elif rank:
                await nodes.put_part(node_id, rank, 0, part.chunks(), announced(request))
            else:
                await form.receive(nodes, part, announced(request), node_id)
        form.check()
        await form.copy(nodes, node_id)
    if form.upload:
        await nodes.replace(form.upload, form.name, dedup=form.dedup)
    if form.parts:
        await nodes.declare_parts(node_id, form.parts, form.file_name)
    if form.has_attributes:
        await nodes.set_attributes(node_id, form.attributes)
    await form.set_expiration(nodes, node_id)
    return await nodes.get(node_id)


async def change_output_by_form(
    nodes: NodeStore, engine: Engine, request: Request, node: Document, who: Attempt | None, form: Form
) -> Document:
    """`PUT /node/{id}` with a form, for a task's output: files and attributes of an attempt, both staged.

    `who` is the attempt that the request names; a stock worker names none. Raises LeaseLost for an output of
    work that nobody holds so, Forbidden for what only the server may say.
    """
    node_id = node["id"]
    if who is not None:
        await who.check(engine)
    async for part in parts(request):
        rank = rank_of(part)
        if rank is None:
            await form.read(part)
            continue
        if who is None:
            who = present_attempt(engine.state, node, rank)
        if rank not in (0, who.rank):
            raise Forbidden(f"part {rank} of node {node_id} is not this attempt's")
        await receive_output(nodes, engine, node_id, who, part.chunks(), announced(request))
    form.check()
    if form.parts or form.copy_data:
        raise Forbidden(f"node {node_id} belongs to task {node['task']}: the server knows its parts")
    if form.has_attributes:
        await _describe_output(nodes, engine, node_id, who, form.attributes)
    await form.set_expiration(nodes, node_id)
    return await nodes.get(node_id)


async def _describe_output(
    nodes: NodeStore, engine: Engine, node_id: str, who: Attempt | None, attributes: dict[str, Any] | None
) -> None:
    if who is None:
        await nodes.set_attributes(node_id, attributes, lambda now: _check_is_finished(engine.state, now))
    else:
        rank, attempt = who.rank, who.attempt
        await _as_holder(
            engine, who, lambda check: nodes.put_attributes(node_id, rank, attempt, attributes, check)
        )


def _check_is_finished(state: State, node: Document) -> None:
    """Raises Forbidden for an output that its holder may still write."""
    task = state.tasks.get(TaskId(node["task"]))
    if task is not None and task.state not in (TaskState.COMPLETED, TaskState.SKIPPED):
        raise Forbidden(f"node {node['id']} is an output of task {task.id}: only its holder may write it")


async def change_by_body(
    nodes: NodeStore, request: Request, node: Document, form: Form, name: str, offset: int | None
) -> None:
    """Raw bytes are a node's new content; without any, only its expiration changes."""
    first, body = await first_bytes(request)
    if not (form.has_expiration and not first and "content-type" not in request.headers):
        if node["task"]:
            raise Forbidden(
                f"node {node['id']} is an output of task {node['task']}: only its holder may write it"
            )
        size = announced(request)
        await nodes.upload(node["id"], body, name, size, dedup=form.dedup, offset=offset)
    await form.set_expiration(nodes, node["id"])


async def first_bytes(request: Request) -> tuple[bytes, AsyncIterator[bytes]]:
    """The beginning of a raw body, and all of it; the beginning is empty only if the body is."""
    body = stream(request)
    return await body.first(), body
