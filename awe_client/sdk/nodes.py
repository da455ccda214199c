"""Calls about data nodes (Shock's wire)."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx

from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.bodies import CountedBody, FileBody, MultipartBody, Progress, attributes_field
from awe_client.sdk.download import Download, Downloaded, Opener, known_of
from awe_client.sdk.download_errors import DownloadCorrupt
from awe_client.sdk.http_source import http_opener
from awe_client.sdk.large_files import ABANDONED_AFTER, LargeFile, is_large
from awe_client.sdk.replies import Page, view
from awe_client.sdk.resuming import LENGTH_HEADER
from awe_client.sdk.transport import Params, Transport, path_segment, raise_for_error
from shared_models.errors import AweError, ServerUnreachable
from shared_models.views import IndexView, NodeView, Stored, Unfinished

DOWNLOAD_ATTEMPTS = 6
TIDY_S = 3.0  #: for the removal of a node that nobody wants; it expires in a day anyway


class NodeCalls:
    """Create, fill, read and delete nodes. Files are streamed both ways."""

    _transport: Transport

    async def create_node(
        self,
        source: Path | str | bytes | None = None,
        *,
        name: str | None = None,
        attributes: Any | None = None,
        dedup: bool = False,
        expiration: str = "",
        on_progress: Progress | None = None,
    ) -> NodeView:
        """Create a node from a file (streamed), from bytes, or empty; return it.

        `dedup`: keep its bytes once with those of other nodes, if they are the same. `expiration`: `30M`,
        `12H` or `3D` from now, then it goes, unless an unfinished job uses it.
        Creating is not repeatable on the wire, so it is repeated only if the request was never sent. A large
        file is put into an empty node instead, and goes on where it was cut; should it fail, the node goes.
        """
        if isinstance(source, Path | str) and await is_large(source):
            return await self._create_large(source, name, attributes, dedup, expiration, on_progress)
        more = {**_flags(dedup=dedup), **_text("expiration", expiration)}
        body = _upload_body(source, name, attributes, on_progress, more)
        node = await self._transport.call("POST", "/node", content=body, headers=body.headers)
        return view(NodeView, node)

    async def _create_large(
        self,
        source: Path | str,
        name: str | None,
        attributes: Any | None,
        dedup: bool,
        expiration: str,
        on_progress: Progress | None,
    ) -> NodeView:
        node = await self.create_node(attributes=attributes, expiration=ABANDONED_AFTER)
        params: Params = {
            "file_name": name or Path(source).name,
            "dedup": dedup,
            "expiration": expiration or None,
            "remove_expiration": not expiration,
        }
        file = LargeFile(self._transport, _path(node.id), source, params, on_progress)
        try:
            return await file.send()
        except BaseException:
            with anyio.move_on_after(TIDY_S, shield=True), suppress(AweError):
                await self.delete_node(node.id)
            raise

    async def copy_node(
        self, source_id: str, *, name: str = "", indexes: bool = False, expiration: str = ""
    ) -> NodeView:
        """Create a node with the content of another one, without moving bytes; with its indexes, if asked."""
        fields = {"copy_data": source_id, **_flags(copy_indexes=indexes)}
        body = MultipartBody({**fields, **_text("file_name", name), **_text("expiration", expiration)})
        node = await self._transport.call("POST", "/node", content=body, headers=body.headers)
        return view(NodeView, node)

    async def upload_node(
        self,
        node_id: str,
        source: Path | str | bytes,
        *,
        name: str | None = None,
        dedup: bool = False,
        on_progress: Progress | None = None,
    ) -> NodeView:
        """Give an empty node its file."""
        body = _upload_body(source, name, None, on_progress, _flags(dedup=dedup))
        node = await self._transport.call(
            "PUT", _path(node_id), content=body, headers=body.headers, repeatable=True
        )
        return view(NodeView, node)

    async def upload_output(
        self,
        node_id: str,
        body: CountedBody,
        *,
        workunit_id: str,
        attempt: int,
        token: str,
        offset: int = 0,
    ) -> Stored:
        """Upload an attempt's output; returns size, md5, sha256 of the whole as the server counted them.

        It becomes visible when the attempt's report is accepted. `offset`: what `unfinished_output` said, and
        the body is a `Rest` from there on. Raises LeaseLost unless the caller holds the attempt,
        Conflict for another offset. Not repeated here: the caller knows how long its patience is.
        """
        params: Params = {"work": workunit_id, "attempt": attempt, "offset": offset or None}
        headers = {**body.headers, "Awe-Lease": token}
        fact = await self._transport.call("PUT", _path(node_id), params=params, content=body, headers=headers)
        return view(Stored, fact)

    async def unfinished_output(
        self, node_id: str, *, workunit_id: str, attempt: int, token: str, size: int = 0
    ) -> int:
        """How many bytes the server has of an attempt's upload that was cut; it waits for no more of it.

        `size`: of the whole file. Raises LeaseLost unless the caller holds the attempt, and NoSpace,
        QuotaExceeded, TooLarge if the rest of it does not fit.
        """
        params: Params = {"unfinished": True, "work": workunit_id, "attempt": attempt}
        headers = {"Awe-Lease": token, LENGTH_HEADER: str(size)}
        found = await self._transport.call("GET", _path(node_id), params=params, headers=headers)
        return view(Unfinished, found).offset

    async def keep_failed(self, body: CountedBody, *, workunit_id: str, attempt: int, token: str) -> NodeView:
        """Upload what a failed attempt left of its outputs, a tar; it may be repeated.

        Raises LeaseLost unless the caller holds the attempt, Forbidden if its task does not ask for it.
        """
        params: Params = {"work": workunit_id, "attempt": attempt}
        headers = {**body.headers, "Awe-Lease": token}
        node = await self._transport.call("POST", "/node", params=params, content=body, headers=headers)
        return view(NodeView, node)

    async def set_output_attributes(
        self, node_id: str, attributes: Any, *, workunit_id: str, attempt: int, token: str
    ) -> None:
        """Replace the attributes of an attempt's output. Raises LeaseLost unless the caller holds it."""
        body = MultipartBody(attributes_field(attributes))
        params: Params = {"work": workunit_id, "attempt": attempt}
        headers = {**body.headers, "Awe-Lease": token}
        await self._transport.call("PUT", _path(node_id), params=params, content=body, headers=headers)

    async def get_node(self, node_id: str) -> NodeView:
        """Return a node: name, size and checksums of its file, attributes, indexes. Raises NodeNotFound."""
        return view(NodeView, await self._transport.call("GET", _path(node_id)))

    async def list_nodes(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        order: str | None = None,
        direction: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> Page[NodeView]:
        """List nodes, the newest first unless told otherwise; `where` filters by attributes.

        A key may be a path (`sample.site`); a value `[1;5)` is a range, an empty one asks for any.
        """
        params: dict[str, Any] = {"limit": limit, "offset": offset, "order": order, "direction": direction}
        if where:
            params |= {"query": True, **where}
        return await self._transport.page(NodeView, "/node", params)

    async def download_node(
        self,
        node_id: str,
        target: Path | str,
        *,
        on_progress: Progress | None = None,
    ) -> Downloaded:
        """Download a node's file: whole and with the right checksum, or not there.

        A cut connection is resumed. Raises DownloadCorrupt, NodeNotFound, ServerUnreachable.
        """
        wanted = known_of((await self.get_node(node_id)).file)
        download = Download(Path(target), wanted, on_progress)
        try:
            return await self._patiently(download, _path(node_id) + "?download")
        finally:
            await download.close()

    async def _patiently(self, download: Download, path: str) -> Downloaded:
        attempt = most = 0
        while True:
            attempt += 1
            try:
                return await download.attempt(self.opener(path))
            except AweError as exc:
                if download.most > most:
                    most, attempt = download.most, 1
                if not exc.retryable or attempt >= DOWNLOAD_ATTEMPTS:
                    raise
                asked_s = float(exc.fields.get("retry_after_s", 0.0))
            await anyio.sleep(jittered_delay_s(attempt, base_s=0.2, cap_s=5.0, asked_s=asked_s))

    async def read_node(self, node_id: str, *, max_bytes: int = 16 * 1024 * 1024) -> bytes:
        """Return a small node's bytes. Raises DownloadCorrupt if it is larger than `max_bytes`."""
        pieces: list[bytes] = []
        count = 0
        try:
            async with self._transport.stream("GET", _path(node_id) + "?download") as reply:
                if reply.status_code >= 400:
                    await reply.aread()
                    raise_for_error(reply)
                async for chunk in reply.aiter_bytes():
                    count += len(chunk)
                    if count > max_bytes:
                        raise DownloadCorrupt(
                            f"node {node_id} is larger than {max_bytes} bytes: download it to a file"
                        )
                    pieces.append(chunk)
        except httpx.RequestError as exc:
            error: ServerUnreachable = self._transport.unreachable(exc)
            raise error from exc
        return b"".join(pieces)

    async def set_node_attributes(self, node_id: str, attributes: Any) -> NodeView:
        """Replace a node's attributes."""
        body = MultipartBody(attributes_field(attributes))
        node = await self._transport.call(
            "PUT", _path(node_id), content=body, headers=body.headers, repeatable=True
        )
        return view(NodeView, node)

    def opener(self, path: str) -> Opener:
        """Give what is at a path of this server as a source for a Download."""

        def get(headers: Mapping[str, str]) -> AbstractAsyncContextManager[httpx.Response]:
            return self._transport.stream("GET", path, headers=headers)

        return http_opener(get, self._transport.unreachable, is_own=True)

    async def set_node_expiration(self, node_id: str, expiration: str) -> NodeView:
        """Let a node go `30M`, `12H` or `3D` from now, or never (an empty text)."""
        params: Params = {"expiration": expiration} if expiration else {"remove_expiration": True}
        node = await self._transport.call("PUT", _path(node_id), params=params, repeatable=True)
        return view(NodeView, node)

    async def build_index(self, node_id: str, kind: str) -> IndexView:
        """Build an index (size, line, record, chunkrecord) on a node."""
        index = await self._transport.call(
            "PUT", f"{_path(node_id)}/index/{path_segment(kind)}", repeatable=True, timeout_s=3600.0
        )
        return view(IndexView, index)

    async def delete_node(self, node_id: str) -> None:
        """Delete a node. Raises NodeNotFound."""
        await self._transport.call("DELETE", _path(node_id))


def _upload_body(
    source: Path | str | bytes | None,
    name: str | None,
    attributes: Any | None,
    on_progress: Progress | None,
    more: Mapping[str, str],
) -> MultipartBody:
    fields = {**attributes_field(attributes), **more}
    if source is None or isinstance(source, bytes):
        return MultipartBody(fields, file=source, file_name=name or "upload")
    body = FileBody(source, on_progress=on_progress)
    return MultipartBody(fields, file=body, file_name=name or Path(source).name)


def _flags(**given: bool) -> dict[str, str]:
    return {name: "1" for name, is_set in given.items() if is_set}


def _text(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _path(node_id: str) -> str:
    return "/node/" + path_segment(node_id)
