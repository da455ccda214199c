"""Outputs in another Shock: a node is made there, and the file uploaded into it, with its attributes.

A node that has a file never changes, so a delivery that is repeated looks first at what the one before it
did. Its node is noted before anything is uploaded; should even that note be missing, the node is found by
the name that it has until its file is there. So a file is delivered once, whatever died in between.
Source: AWE lib/shock/shock.go PutOrPostFile, lib/core/io.go; differs: AWE makes the node before the work is
done and leaves it there when that fails.
"""

import json
import secrets
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any
from urllib.parse import quote

import orjson

from awe_server.data.sinks.base import (
    About,
    Content,
    Memo,
    SinkBusy,
    SinkRefused,
    reason_of,
    shown,
    verified,
)
from awe_server.data.sinks.web import Answer, Web, problem
from shared_models.errors import NodeNotFound

#: What Shock says, with status 400, of trouble that passes: a file that is being joined, a full disk.
_PASSING = ("locked", "no space left on device")


class ShockSink:
    """Makes nodes and files in other Shocks."""

    def __init__(self, web: Web) -> None:
        self._web = web

    async def deliver(self, host: str, content: Content, about: About, memo: Memo) -> str:
        """Store the content as a new node; its id. Raises SinkBusy, SinkRefused."""
        shock = _Shock(self._web, host, about.token)
        node = await shock.made(memo)
        if node:
            found = await shock.look(node)
            if found is None:
                node = ""
            elif _has_file(found):
                if _holds(found, content):
                    return node
                await shock.delete(node)
                await memo.note({"begun": True})
                raise SinkBusy(f"{shown(host)} kept other bytes than it was given; they go there again")
        if not node:
            await memo.note({"begun": True})
            node = await shock.create(memo.marker)
        try:
            await memo.note({"node": node})
        except NodeNotFound:  # the output is not wanted any more, and nobody else knows of this node
            await shock.delete(node)
            raise
        stored = await shock.upload(node, content, about)
        if not _holds(stored, content):
            raise SinkBusy(f"{shown(host)} does not say that it has the whole file")
        return node

    async def take_back(self, host: str, token: str, memo: Memo) -> None:
        """Remove what a delivery that is not wanted any more has made. Raises SinkBusy, SinkRefused."""
        shock = _Shock(self._web, host, token)
        if node := await shock.made(memo):
            await shock.delete(node)

    async def build_index(self, host: str, node: str, kind: str, token: str) -> None:
        """Have an index built there. Raises SinkBusy, SinkRefused."""
        await _Shock(self._web, host, token).build_index(node, kind)

    async def delete(self, url: str, token: str) -> None:
        """Remove the node of an address `<host>/node/<id>`; fine if it has gone."""
        host, _, node = url.rpartition("/node/")
        await _Shock(self._web, host, token).delete(node)


class _Shock:
    def __init__(self, web: Web, host: str, token: str) -> None:
        self._web = web
        self._nodes = f"{host}/node"
        self._token = token
        self._headers = {"Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = token if " " in token else f"OAuth {token}"

    async def create(self, name: str) -> str:
        form = _Form({"file_name": name})
        created = await self._send("POST", self._nodes, form)
        node = created.get("id") if isinstance(created, dict) else None
        if not isinstance(node, str) or not node or "/" in node:
            raise SinkRefused(f"{shown(self._nodes)} is not a Shock: it answers without the id of a node")
        return node

    async def made(self, memo: Memo) -> str:
        """The node that the same delivery made before, as far as one can tell; "" if it made none."""
        noted = await memo.read()
        node = str(noted.get("node") or "")
        return node if node or not noted else await self.find(memo.marker)

    async def find(self, name: str) -> str:
        """The node without a file that has this name, "" if there is none."""
        found = await self._send("GET", f"{self._nodes}?querynode&file.name={quote(name)}")
        nodes = found if isinstance(found, list) else []
        return next((str(one["id"]) for one in nodes if isinstance(one, dict) and not _has_file(one)), "")

    async def look(self, node: str) -> dict[str, Any] | None:
        """A node's document; None if there is no such node."""
        url = f"{self._nodes}/{node}"
        answer = await self._web.send("GET", url, self._headers)
        if answer.status == 404:
            return None
        found = self._data(answer, url)
        return found if isinstance(found, dict) else None

    async def upload(self, node: str, content: Content, about: About) -> dict[str, Any]:
        """Give a node its file and attributes; the node's document."""
        fields = {} if about.attributes is None else {"attributes_str": json.dumps(about.attributes)}
        chunks = await content.chunks()
        try:
            form = _Form(fields, about.name, verified(chunks, content, self._web.require_lead), content.size)
            stored = await self._send("PUT", f"{self._nodes}/{node}", form)
        finally:
            await chunks.aclose()
        return stored if isinstance(stored, dict) else {}

    async def build_index(self, node: str, kind: str) -> None:
        await self._send("PUT", f"{self._nodes}/{node}/index/{kind}")

    async def delete(self, node: str) -> None:
        url = f"{self._nodes}/{node}"
        answer = await self._web.send("DELETE", url, self._headers)
        if answer.status != 404:
            self._data(answer, url)

    async def _send(self, method: str, url: str, form: "_Form | None" = None) -> Any:
        headers = {**self._headers, **(form.headers if form else {})}
        return self._data(await self._web.send(method, url, headers, form), url)

    def _data(self, answer: Answer, url: str) -> Any:
        """`data` of a reply. A list of errors is a failure whatever the status is."""
        try:
            envelope = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            envelope = None
        errors = envelope.get("error") if isinstance(envelope, dict) else None
        if answer.is_success and isinstance(envelope, dict) and not errors:
            return envelope.get("data")
        if answer.is_success and not errors:
            raise SinkRefused(f"{shown(url)} is not a Shock: it does not answer as one")
        said = reason_of("; ".join(map(str, errors)) if isinstance(errors, list) else "", self._token)
        raise problem(answer, url, said, passes=any(text in said for text in _PASSING))


class _Form:
    """Text fields and then at most one file, as multipart/form-data of known length."""

    def __init__(
        self,
        fields: dict[str, str],
        name: str = "",
        chunks: AsyncIterable[bytes] | None = None,
        size: int = 0,
    ) -> None:
        boundary = secrets.token_hex(16)
        self._chunks = chunks
        head = "".join(f"{_part(boundary, key)}{value}\r\n" for key, value in fields.items())
        tail = f"--{boundary}--\r\n"
        if chunks is not None:
            head += _part(boundary, "upload", name)
            tail = f"\r\n{tail}"
        self._head, self._tail = head.encode(), tail.encode()
        self.headers = {
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(self._head) + size + len(self._tail)),
        }

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._head
        if self._chunks is not None:
            async for chunk in self._chunks:
                yield chunk
        yield self._tail


def _part(boundary: str, name: str, file_name: str = "") -> str:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
    if file_name:
        quoted = file_name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head += f'; filename="{quoted}"\r\nContent-Type: application/octet-stream'
    return f"{head}\r\n\r\n"


def _file_of(document: dict[str, Any]) -> dict[str, Any]:
    file = document.get("file")
    return file if isinstance(file, dict) else {}


def _has_file(document: dict[str, Any]) -> bool:
    file = _file_of(document)
    return bool(file.get("size") or file.get("checksum"))


def _holds(document: dict[str, Any], content: Content) -> bool:
    """Whether a node has this content, as far as its document tells."""
    file = _file_of(document)
    checksum = file.get("checksum")
    md5 = checksum.get("md5") if isinstance(checksum, dict) else None
    return file.get("size") == content.size and md5 in (None, "", content.md5) and _has_file(document)
