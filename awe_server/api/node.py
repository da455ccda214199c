"""`/node`: the data store, on Shock's wire, so that AWE's workers and Shock's clients can use it."""

from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api import node_upload, views
from awe_server.api.bodies import stream
from awe_server.api.deps import Asking, Served
from awe_server.api.downloads import etag, node_response
from awe_server.api.envelope import Envelope, Listing, ok, paged, refusals
from awe_server.api.multipart import is_multipart
from awe_server.api.node_query import attribute_is, is_range
from awe_server.api.params import Flag, NoParameters, Paging, Parameters, split_list
from awe_server.auth import policy
from awe_server.auth.caller import Caller
from awe_server.auth.policy import Right
from awe_server.data.nodes import NodeStore
from awe_server.runtime.services import Services
from awe_server.scheduler.readers import check_unneeded
from awe_server.store.base import AnyOf, Document, Match
from awe_server.store.base import Query as StoreQuery
from shared_models.errors import BadRequest
from shared_models.ids import decode_workunit_id, split_workunit_id
from shared_models.limits import MAX_NAME_CHARS
from shared_models.views import NodeView, Stored, Unfinished

router = APIRouter(prefix="/node", tags=["node"])

Bad = refusals(400, 507)
Missing = refusals(400, 404, 507)

_FILE_FORM: dict[str, Any] = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "upload": {"type": "string", "format": "binary"},
                        "file_name": {"type": "string"},
                        "attributes_str": {"type": "string", "description": "JSON"},
                        "attributes": {"type": "string", "format": "binary", "description": "JSON"},
                        "parts": {"type": "integer"},
                        "copy_data": {"type": "string", "description": "id of another node"},
                        "copy_indexes": {"type": "string", "description": "1: with its indexes"},
                        "dedup": {"type": "string", "description": "1: share equal bytes"},
                        "expiration": {"type": "string", "description": "30M, 12H, 3D from now"},
                        "remove_expiration": {"type": "string", "description": "1: it stays"},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        }
    }
}


class CreateParameters(Parameters):
    """Of POST /node."""

    work: str = Query("", description="what a failed attempt left: its workunit, with attempt and Awe-Lease")
    attempt: int | None = Query(None, ge=1)
    file_name: str = Query("", max_length=4 * MAX_NAME_CHARS, description="of a raw body")
    dedup: Flag = Query(False, description="share the bytes of another node, if one has the same")
    expiration: str = Query("", examples=["3D"], description="minutes, hours or days from now; then it goes")


@router.post(
    "", summary="Create a node", response_model=Envelope[NodeView], responses=Bad, openapi_extra=_FILE_FORM
)
async def create(
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[CreateParameters, Query()],
    awe_lease: Annotated[str, Header(description="the attempt's token")] = "",
) -> Response:
    """With a file (form field `upload`, or the body itself), or empty. Streamed: any size.

    `curl -F upload=@reads.fastq URL/node`, `curl -T reads.fastq -X POST URL/node?file_name=reads.fastq`
    With `work`, `attempt` and Awe-Lease: what a failed attempt left, a tar as raw body; may be repeated.
    """
    if query.work:
        policy.allow(caller, Right.WORK)
        return await _keep_failed(services, request, query, awe_lease)
    policy.allow(caller, Right.WRITE)
    await services.engine.answering()
    nodes = services.nodes
    if is_multipart(request):
        form = node_upload.Form(expiration=query.expiration, dedup=query.dedup)
        return ok(views.node_view(await node_upload.create_from_form(nodes, request, caller.user, form)))
    first, body = await node_upload.first_bytes(request)
    has_file = bool(first) or "content-type" in request.headers
    node = await nodes.create(
        body if has_file else None,
        name=query.file_name,
        owner=caller.user,
        expected_bytes=node_upload.announced(request),
        expiration=query.expiration,
        dedup=query.dedup,
    )
    return ok(views.node_view(node))


async def _keep_failed(
    services: Services, request: Request, query: CreateParameters, awe_lease: str
) -> Response:
    if query.attempt is None or not awe_lease or is_multipart(request):
        raise BadRequest("what an attempt left needs attempt=, the header Awe-Lease, and the bytes as body")
    work = decode_workunit_id(query.work)
    who = node_upload.Attempt(work, split_workunit_id(work)[1], query.attempt, None, awe_lease)
    size = node_upload.announced(request)
    node = await node_upload.keep_failed(services.nodes, services.engine, who, stream(request), size)
    return ok(views.node_view(node))


class NodeListParameters(Paging):
    """Of GET /node."""

    open_prefixes: ClassVar[tuple[str, ...]] = ("attributes.",)
    #: Parameters that are no keys of attributes even with `query`.
    own: ClassVar[frozenset[str]] = frozenset({"limit", "offset", "order", "direction", "query", "querynode"})

    order: Literal["created_on", "last_modified", "id", "file.name", "file.size", "name"] = "created_on"
    query: Flag = Field(
        False, description="Shock: every other parameter but those of paging is a key of the attributes"
    )
    querynode: Flag = Field(False, description="Shock: fields of the node; accepted, filters work without it")
    job: str = Field("", description="outputs of this job")
    task: str = Field("", description="outputs of this task")
    owner: str = ""
    name: str = Field("", description="file name")
    file_name: str = Field("", alias="file.name")
    md5: str = Field("", alias="file.checksum.md5")

    @classmethod
    def is_open(cls, name: str, given: dict[str, Any]) -> bool:
        """With `?query` the keys of attributes stand alone."""
        return "query" in given or super().is_open(name, given)


@router.get("", summary="List nodes", response_model=Listing[NodeView], responses=Bad)
async def list_nodes(
    request: Request, services: Served, caller: Asking, query: Annotated[NodeListParameters, Query()]
) -> Response:
    """Newest first. `?query&KEY=VALUE` or `attributes.KEY=VALUE` filters by attributes.

    KEY may be a path (`sample.site`). VALUE `[1;5)` means from 1 to below 5, either may be left out; an empty
    one means that there is any.
    """
    policy.allow(caller, Right.READ)
    order = {"name": "file.name"}.get(query.order, query.order)
    page = await services.nodes.list(
        StoreQuery(
            tuple(_conditions(query, request.query_params)),
            order,
            query.direction == "desc",
            query.rows,
            query.offset,
        )
    )
    rows = [views.node_view(node) for node in page.documents]
    return paged(rows, page, limit=query.rows, offset=query.offset)


def _conditions(query: NodeListParameters, given: QueryParams) -> list[Match | AnyOf]:
    if query.query:
        keys = dict.fromkeys(key for key in given if key not in NodeListParameters.own)
        return [condition for key in keys for condition in attribute_is(key, given.getlist(key))]
    known = {
        "job": query.job,
        "task": query.task,
        "owner": query.owner,
        "file.name": query.name or query.file_name,
        "file.checksum.md5": query.md5,
    }
    found: list[Match | AnyOf] = [Match(field, (value,)) for field, value in known.items() if value]
    for key in query.model_extra or {}:
        texts = given.getlist(key)
        plain = all(texts) and not any(map(is_range, texts))
        found += attribute_is(key, split_list(texts) if plain else texts)
    return found


class NodeParameters(Parameters):
    """Of GET /node/{id}."""

    download: Flag = Query(False, description="the bytes instead of the document")
    download_raw: Flag = Query(False, description="the same")
    index: str = Query(
        "", max_length=60, examples=["chunkrecord"], description="with part: units of this index"
    )
    part: str = Query("", max_length=60, examples=["3-4"], description="which units")
    seek: int | None = Query(None, ge=0, le=2**63 - 1, description="bytes from here")
    length: int | None = Query(None, ge=0, le=2**63 - 1, description="so many bytes")
    unfinished: Flag = Query(
        False, description="how far an upload that was cut came, instead of the document"
    )
    work: str = Query("", description="with unfinished: id of the workunit, with attempt and Awe-Lease")
    attempt: int | None = Query(None, ge=1)


@router.get(
    "/{node_id}",
    summary="One node, or its bytes",
    response_model=Envelope[NodeView | Unfinished],
    responses={
        **refusals(400, 404, 409, 416, 507),
        206: {"description": "the range that was asked for", "content": {"application/octet-stream": {}}},
    },
)
async def get_node(
    node_id: str,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[NodeParameters, Query()],
    awe_lease: Annotated[str, Header(description="the attempt's token")] = "",
    awe_upload_length: Annotated[
        int, Header(ge=0, le=2**63 - 1, description="with unfinished: bytes of the whole file; must fit")
    ] = 0,
) -> Response:
    """`?download` gives the bytes; Range and If-Range are honoured, also within a part.

    `?unfinished`: `offset`, how many bytes are here of a file that is uploaded with `PUT ?offset=`; there it
    goes on, and a former request for it is ended. With Awe-Upload-Length it is refused as the rest of the
    upload would be, so its sender knows before it sends. With `work`, `attempt` and Awe-Lease: an attempt's
    output.
    """
    nodes = services.nodes
    if query.unfinished:
        offset = await _unfinished(services, caller, node_id, query, awe_lease)
        await nodes.require_room(awe_upload_length - offset)
        return ok({"offset": offset})
    if query.work or query.attempt is not None:
        raise BadRequest("work and attempt belong to unfinished")
    if not (query.download or query.download_raw):
        node = await nodes.get(node_id)
        policy.allow(caller, Right.READ, node)
        return ok(views.node_view(node))
    policy.allow(caller, Right.READ)
    return await _download(nodes, request, node_id, query)


async def _unfinished(
    services: Services, caller: Caller, node_id: str, query: NodeParameters, awe_lease: str
) -> int:
    nodes = services.nodes
    node = await nodes.get(node_id)
    if query.work or node["task"]:
        policy.allow(caller, Right.WORK)
        who = _holder(node, query.work, query.attempt, awe_lease)
        return await node_upload.unfinished_output(nodes, services.engine, node_id, who)
    policy.allow(caller, Right.WRITE, node)
    return await nodes.unfinished_content(node_id)


async def _download(nodes: NodeStore, request: Request, node_id: str, query: NodeParameters) -> Response:
    found = await nodes.open_range(
        node_id, index=query.index, part=query.part, seek=query.seek, length=query.length
    )
    # One reader for both: what If-Range is compared with is what is sent, whatever replaces it meanwhile.
    if request.headers.get("if-range") in (None, "", etag(found)):
        found = found.cut(request.headers.get("range", ""))
    return node_response(request, found)


class ChangeParameters(Parameters):
    """Of PUT /node/{id}."""

    work: str = Query("", description="an attempt's output: id of the workunit, with attempt and Awe-Lease")
    attempt: int | None = Query(None, ge=1)
    offset: int | None = Query(
        None,
        ge=0,
        le=2**63 - 1,
        description="the raw body is the file from here on, and kept if it is cut: see unfinished",
    )
    file_name: str = Query("", max_length=4 * MAX_NAME_CHARS, description="of a raw body")
    dedup: Flag = Query(False, description="share the bytes of another node, if one has the same")
    expiration: str = Query("", examples=["3D"], description="minutes, hours or days from now; then it goes")
    remove_expiration: Flag = Query(False, description="it stays until somebody deletes it")


@router.put(
    "/{node_id}",
    summary="Give a node bytes or attributes",
    response_model=Envelope[NodeView | Stored],
    responses=refusals(400, 404, 409, 507),
    openapi_extra=_FILE_FORM,
)
async def change(
    node_id: str,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[ChangeParameters, Query()],
    awe_lease: Annotated[str, Header(description="the attempt's token")] = "",
) -> Response:
    """A form (`upload`, `<rank>` for a part, `parts`, `file_name`, `attributes_str`, …), a raw body, or no
    body and `expiration` or `remove_expiration`.

    With `work`, `attempt` and Awe-Lease: the output of an attempt, staged until its report is accepted;
    `data` of a raw body is what was counted: size, md5, sha256, of the whole file even if `offset` says that
    the body is only the rest of it. A form may bring attributes, too, or alone.
    """
    nodes = services.nodes
    node = await nodes.get(node_id)
    form = node_upload.Form(
        expiration=query.expiration, remove_expiration=query.remove_expiration, dedup=query.dedup
    )
    form.check()
    if query.offset is not None and is_multipart(request):
        raise BadRequest("offset is for raw bytes: a form is sent anew")
    if query.work:
        policy.allow(caller, Right.WORK)
        return await _change_as_holder(services, request, node, query, awe_lease)
    policy.allow(caller, Right.WRITE, node)
    if is_multipart(request):
        if node["task"]:
            changed = await node_upload.change_output_by_form(
                nodes, services.engine, request, node, None, form
            )
        else:
            changed = await node_upload.change_by_form(nodes, request, node, form)
        return ok(views.node_view(changed))
    await node_upload.change_by_body(nodes, request, node, form, query.file_name, query.offset)
    return ok(views.node_view(await nodes.get(node_id)))


async def _change_as_holder(
    services: Services, request: Request, node: Document, query: ChangeParameters, awe_lease: str
) -> Response:
    who = _holder(node, query.work, query.attempt, awe_lease)
    if query.expiration or query.remove_expiration or query.dedup:
        raise BadRequest("an attempt brings its output's bytes and attributes, nothing else")
    nodes, engine = services.nodes, services.engine
    if is_multipart(request):
        changed = await node_upload.change_output_by_form(
            nodes, engine, request, node, who, node_upload.Form()
        )
        return ok(views.node_view(changed))
    size = node_upload.announced(request)
    fact = await node_upload.receive_output(
        nodes, engine, node["id"], who, stream(request), size, query.offset or 0
    )
    return ok({"size": fact.size, "md5": fact.md5, "sha256": fact.sha256})


def _holder(node: Document, work: str, attempt: int | None, awe_lease: str) -> node_upload.Attempt:
    if not work or attempt is None or not awe_lease:
        raise BadRequest("an attempt's output needs work=, attempt= and the header Awe-Lease")
    return node_upload.named_attempt(node, decode_workunit_id(work), attempt, awe_lease)


IndexKind = Literal["size", "line", "record", "chunkrecord"]


@router.put(
    "/{node_id}/index/{kind}",
    summary="Index a node's file",
    response_model=Envelope[dict[str, Any]],
    responses=Missing,
)
async def build_index(
    node_id: str, kind: IndexKind, services: Served, caller: Asking, _: Annotated[NoParameters, Query()]
) -> Response:
    """size: pieces of 1 MiB; line; record: of FASTA, FASTQ, SAM; chunkrecord: whole records, about 1 MiB.

    Answers when the index is there; once built it is kept.
    """
    policy.allow(caller, Right.WRITE)
    fact = await services.nodes.build_index(node_id, kind)
    return ok(asdict(fact))


@router.delete(
    "/{node_id}",
    summary="Delete a node",
    response_model=Envelope[None],
    responses=refusals(400, 404, 409, 507),
)
async def delete(
    node_id: str, services: Served, caller: Asking, _: Annotated[NoParameters, Query()]
) -> Response:
    """Its file goes too; downloads that run go on to their end. Refused while a job needs it."""
    policy.allow(caller, Right.DELETE)
    await services.nodes.delete(node_id, lambda _: check_unneeded(services.engine.state, node_id))
    return ok(None)
