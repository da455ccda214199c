"""A Shock for tests, written from recorded exchanges of the original and from what its source says.

What callers met there and meet here: an error is a list of texts in the envelope; Range is ignored; a node's
file is immutable; parts are joined when the last one is in, and an index is built, while the document says
that it is locked; an index that exists cannot be built again; a Shock without users refuses every token.
Left out: users and ACLs, virtual nodes, compression, BAM.
"""

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tests.support.faults import Fault
from tests.support.served import Handler, Served
from tests.support.shock_form import expiration_ns, parts_count, refuse_contradictions
from tests.support.shock_node import File, Index, Node, ShockError, Span, cut

_NOT_A_FILTER = {"query", "querynode", "limit", "offset"}


class ShockServer(Served):
    """A Shock on a free port, as long as the with statement lasts; its nodes outlive a `stop` and `start`.

    `token`: who does not send it (`OAuth <token>`, or both words of a token of two words) is refused; reading
    is free for all if `anonymous_read`. Without a token everybody may do everything, but not with a token.
    `ranges`: honour Range, which the original does not. `full`: refuse to store anything.
    `index_s`, `join_s`: how long an index or a joined file is locked, if not until `unlock`; if
    `answers_late`, who asks for an index is answered when it is built, and it is not there before.
    `no_index`: kinds it refuses to build; `index_errors`: by kind, with what error a build ends that began
    well.
    """

    def __init__(self, folder: Path, *, token: str = "", anonymous_read: bool = False) -> None:
        super().__init__()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.token, self.anonymous_read = token, anonymous_read
        self.ranges = self.full = self.answers_late = False
        self.index_s = self.join_s = 0.0
        self.no_index: set[str] = set()
        self.index_errors: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}

    # --- for tests -------------------------------------------------------------------------------

    def add(self, data: bytes, name: str = "in.txt", attributes: Any = None) -> str:
        """Store a file; returns the node's id."""
        node = self._new_node()
        node.name, node.attributes = name, attributes
        node.set_file(self._store(data))
        node.modified_ns = 0
        return node.id

    def content(self, node_id: str) -> bytes | None:
        """What a node holds; None if it has no file."""
        file = self.nodes[node_id].file
        return None if file is None else file.path.read_bytes()

    def unlock(self) -> None:
        """End all building and joining now."""
        for node in self.nodes.values():
            for locked in (node.file, *node.indexes.values()):
                if locked is not None:
                    locked.ready_at = 0.0

    def node_url(self, node_id: str) -> str:
        """The URL that a job document has for a node."""
        return f"{self.url}/node/{node_id}?download"

    @property
    def authorization(self) -> str:
        """The header that it wants; empty if it wants none."""
        if " " in self.token:
            return self.token
        return f"OAuth {self.token}" if self.token else ""

    # --- wire ------------------------------------------------------------------------------------

    def refusal(self, fault: Fault) -> JSONResponse:
        reply = _error(fault.status, fault.text)
        reply.headers.update(fault.headers)
        return reply

    def routes(self) -> list[BaseRoute]:
        def route(path: str, handler: Handler, method: str) -> Route:
            return Route(path, self.guarded(self._answering(handler)), methods=[method])

        index = "/node/{node}/index/{kind}"
        return [
            route("/", self._about, "GET"),
            route("/node", self._list, "GET"),
            route("/node", self._create, "POST"),
            route("/node/{node}", self._get, "GET"),
            route("/node/{node}", self._update, "PUT"),
            route("/node/{node}", self._delete, "DELETE"),
            route(index, self._get_index, "GET"),
            route(index, self._build_index, "PUT"),
            route(index, self._delete_index, "DELETE"),
        ]

    def _answering(self, handler: Handler) -> Handler:
        async def answering(request: Request) -> ASGIApp:
            try:
                self._authorize(request)
                return await handler(request)
            except ShockError as problem:
                return _error(problem.status, problem.text)

        return answering

    def _authorize(self, request: Request) -> None:
        header = request.headers.get("authorization")
        if header is None:
            if self.token and not (self.anonymous_read and request.method in ("GET", "HEAD")):
                raise ShockError(401, "No Authorization")
        elif header != self.authorization:
            raise ShockError(400, "Invalid authorization header or content")

    async def _about(self, request: Request) -> ASGIApp:
        return JSONResponse({"type": "Shock", "id": "Shock", "url": f"{self.url}/", "resources": ["node"]})

    async def _list(self, request: Request) -> ASGIApp:
        query = request.query_params
        filters = {k: v for k, v in query.items() if k not in _NOT_A_FILTER}
        prefix = "attributes." if "query" in query else ""
        documents = [node.document() for node in self.nodes.values()]
        if "query" in query or "querynode" in query:
            documents = [
                document
                for document in documents
                if all(_matches(_dig(document, prefix + key), value) for key, value in filters.items())
            ]
        limit, offset = int(query.get("limit", 25)), int(query.get("offset", 0))
        more = {"limit": limit, "offset": offset, "total_count": len(documents)}
        return _reply(documents[offset : offset + limit], **more)

    async def _create(self, request: Request) -> ASGIApp:
        self._refuse_if_full("err@node_Create: unable to parse form")
        node = self._new_node()
        try:
            if request.headers.get("content-type", "").startswith("multipart/form-data"):
                await self._apply(node, request)
            elif body := await request.body():
                node.name = node.id
                node.set_file(self._store(body))
        except ShockError as problem:
            del self.nodes[node.id]
            problem.text = f"err@node_Create: (node.CreateNodeUpload) {problem.text}"
            raise
        node.modified_ns = 0
        return _reply(node.document("created"))

    async def _update(self, request: Request) -> ASGIApp:
        node = self._node(request)
        self._refuse_if_full("err@node_ParseMultipartForm")
        try:
            await self._apply(node, request)
        except ShockError as problem:
            problem.text = f"err@node_Update: {node.id}: {problem.text}"
            raise
        node.touch()
        return _reply(node.document("updated"))

    async def _delete(self, request: Request) -> ASGIApp:
        del self.nodes[self._node(request).id]
        return _reply(None)

    async def _get(self, request: Request) -> ASGIApp:
        node, query = self._node(request), request.query_params
        if "download" not in query and "download_raw" not in query:
            return _reply(node.document())
        file = node.readable()
        spans, status = _spans(node, file, request), 200
        length = sum(length for _, length in spans)
        name = query.get("file_name", node.name or node.id)
        headers = {
            "Content-Disposition": f"attachment; filename={name}",
            "Content-Type": "application/octet-stream",
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if self.ranges and asked and len(spans) == 1:
            skip, end = int(asked[1]), min(length, int(asked[2] or length) + 1)
            headers["Content-Range"] = f"bytes {skip}-{end - 1}/{length}"
            spans, length, status = [(spans[0][0] + skip, end - skip)], end - skip, 206
        return self.file_reply(
            request, file.path.open("rb"), spans, status, {**headers, "Content-Length": str(length)}
        )

    async def _get_index(self, request: Request) -> ASGIApp:
        index = self._index(request)
        return _reply({index.kind: index.document(3)})

    async def _delete_index(self, request: Request) -> ASGIApp:
        del self._node(request).indexes[self._index(request).kind]
        return _reply(None)

    async def _build_index(self, request: Request) -> ASGIApp:
        node, kind = self._node(request), request.path_params["kind"]
        if kind == "size" and "size" in node.indexes:
            return _reply(None)
        if kind in node.indexes and "force_rebuild" not in request.query_params:
            raise ShockError(
                400,
                "This index already exists, please add the parameter 'force_rebuild=1' to force a rebuild of "
                "the existing index.",
            )
        file = node.readable()
        if kind in self.no_index:
            raise ShockError(400, "Invalid index type")
        spans = [] if kind in self.index_errors else cut(file.path, kind)
        if not spans and kind not in self.index_errors:
            raise ShockError(400, "Index empty.")
        ready_at, error = time.monotonic() + self.index_s, self.index_errors.get(kind, "")
        if self.answers_late:
            await asyncio.sleep(self.index_s)
        node.indexes[kind] = Index(kind, spans, file.size, time.time_ns(), ready_at, error)
        node.touch()
        return _reply(None)

    def _index(self, request: Request) -> Index:
        node, kind = self._node(request), request.path_params["kind"]
        if kind not in node.indexes:
            raise ShockError(400, f"Node {node.id} does not have index of type {kind}.")
        return node.indexes[kind]

    def _node(self, request: Request) -> Node:
        node = self.nodes.get(request.path_params["node"])
        if node is None:
            raise ShockError(404, "Node not found")
        return node

    def _refuse_if_full(self, where: str) -> None:
        if self.full:
            raise ShockError(400, f"{where}: write {self.folder}/temp/1: no space left on device")

    # --- what a form asks for --------------------------------------------------------------------

    async def _apply(self, node: Node, request: Request) -> None:
        texts: dict[str, str] = {}
        files: dict[str, UploadFile] = {}
        async with request.form(max_part_size=64 * 1024 * 1024) as form:
            for key, value in form.items():
                if isinstance(value, UploadFile):
                    files[key] = value
                else:
                    texts[key] = value
            refuse_contradictions(node, texts, files)
            await self._apply_attributes(node, texts, files)
            await self._apply_data(node, texts, files)
        node.name = texts.get("file_name", node.name)
        if "tags" in texts:
            node.tags = texts["tags"].split(",")
        if "expiration" in texts:
            node.expiration_ns = expiration_ns(texts["expiration"])

    async def _apply_attributes(
        self, node: Node, texts: Mapping[str, str], files: dict[str, UploadFile]
    ) -> None:
        text: str | bytes | None = texts.get("attributes_str")
        if "attributes" in files:
            text = await files.pop("attributes").read()
        if text is not None:
            try:
                node.attributes = json.loads(text)
            except ValueError as problem:
                raise ShockError(400, f"invalid attributes: {problem}") from None

    async def _apply_data(
        self, node: Node, texts: Mapping[str, str], files: Mapping[str, UploadFile]
    ) -> None:
        if "upload" in files:
            node.name = files["upload"].filename or ""
            node.set_file(await self._receive(files["upload"]))
        elif "parts" in texts:
            node.parts_count, node.type = parts_count(texts["parts"]), "parts"
        elif "copy_data" in texts:
            self._copy(node, self._named(texts["copy_data"]), texts)
        elif "parent_node" in texts:
            await self._subset(node, texts, files)
        else:
            await self._take_parts(node, files)

    async def _take_parts(self, node: Node, files: Mapping[str, UploadFile]) -> None:
        for key, upload in files.items():
            if not key.isdecimal() or not 1 <= int(key) <= node.parts_count:
                raise ShockError(400, "invalid file parameter")
            node.parts[int(key)] = (upload.filename or "", await self._receive(upload))
        if files and len(node.parts) == node.parts_count:
            joined = b"".join(node.parts[rank][1].path.read_bytes() for rank in sorted(node.parts))
            file = self._store(joined)
            file.ready_at = time.monotonic() + self.join_s
            node.set_file(file)

    def _copy(self, node: Node, source: Node, texts: Mapping[str, str]) -> None:
        file = source.readable()
        node.type, node.name = "copy", source.name
        node.set_file(file)
        if texts.get("copy_indexes"):
            node.indexes |= source.indexes
        if texts.get("copy_attributes"):
            node.attributes = source.attributes

    async def _subset(self, node: Node, texts: Mapping[str, str], files: Mapping[str, UploadFile]) -> None:
        if "parent_index" not in texts or "subset_indices" not in files:
            raise ShockError(400, "subset nodes require parent_node, parent_index and file subset_indices.")
        parent, kind = self._named(texts["parent_node"]), texts["parent_index"]
        data, before, pieces = parent.readable().path.read_bytes(), 0, []
        for line in (await files["subset_indices"].read()).split():
            number = int(line)
            if number <= before:
                raise ShockError(
                    400,
                    "Subset indices must be numerically sorted and non-redundant, found value "
                    f"{number} after value {before}",
                )
            if number > len(parent.indexes[kind].spans):
                raise ShockError(400, f"Subset index: {number} does not exist in parent index file.")
            offset, length = parent.units(kind, str(number))
            pieces.append(data[offset : offset + length])
            before = number
        node.type, node.name = "subset", parent.name
        node.set_file(self._store(b"".join(pieces)))

    def _named(self, node_id: str) -> Node:
        if node_id not in self.nodes:
            raise ShockError(400, "Node not found")
        return self.nodes[node_id]

    def _new_node(self) -> Node:
        node = Node(str(uuid.uuid4()), time.time_ns())
        self.nodes[node.id] = node
        return node

    async def _receive(self, upload: UploadFile) -> File:
        path = self.folder / uuid.uuid4().hex
        digest = hashlib.md5(usedforsecurity=False)
        size = 0
        with path.open("wb") as file:
            while piece := await upload.read(1048576):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
        return File(path, size, digest.hexdigest(), time.time_ns())

    def _store(self, data: bytes) -> File:
        path = self.folder / uuid.uuid4().hex
        path.write_bytes(data)
        return File(path, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest(), time.time_ns())


def _spans(node: Node, file: File, request: Request) -> list[Span]:
    query = request.query_params
    if "seek" in query or "length" in query:
        try:
            seek = int(query.get("seek", 0))
            length = int(query.get("length", file.size))
        except ValueError:
            raise ShockError(400, "seek must be an integer value") from None
        return [(seek, max(0, min(length, file.size - seek)))]
    if "index" not in query:
        return [(0, file.size)]
    if "part" not in query:
        raise ShockError(400, "Index parameter requires part parameter")
    return [node.units(query["index"], part) for part in query.getlist("part")]


def _dig(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _matches(value: Any, wanted: str) -> bool:
    if not wanted:
        return value is not None
    return wanted == "null" if value is None else str(value) == wanted


def _reply(data: Any, **more: Any) -> JSONResponse:
    return JSONResponse({"status": 200, "data": data, "error": None, **more})


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"status": status, "data": None, "error": [text]}, status)
