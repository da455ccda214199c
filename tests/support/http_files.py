"""A file server such as nginx: ranges, validators, uploads — and servers that are less well behaved."""

import base64
import hashlib
import os
import tempfile
from email.utils import formatdate
from pathlib import Path
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tests.support.served import Served


class HttpFiles(Served):
    """Serves the files below a folder, and stores what is PUT.

    Switches for servers of other kinds: `ranges` (False: a Range is ignored), `lengths` (False: chunked, no
    Content-Length), `etags`, `dates` (False: no such header, and no precondition on it), `heads` (False: HEAD
    is refused, as signed URLs do), `stores` (False: PUT is refused), `full` (True: PUT is answered 507).
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ranges = self.lengths = self.etags = self.dates = self.heads = self.stores = True
        self.full = False
        self._redirects: dict[str, tuple[str, int]] = {}
        self._replacements: dict[str, tuple[int, bytes]] = {}

    def put(self, name: str, data: bytes) -> str:
        """Store a file, atomically and with a new ETag; returns its URL."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(data)
        Path(file.name).rename(target)
        return self.url_of(name)

    def url_of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def replace_after(self, name: str, downloads: int, data: bytes) -> None:
        """Replace a file as soon as so many more downloads of it have begun; those still get the old one."""
        self._replacements[name] = (downloads, data)

    def redirect(self, name: str, target: str, status: int = 302) -> str:
        """Answer requests for a name with a Location; returns its URL."""
        self._redirects[name] = (target, status)
        return self.url_of(name)

    def routes(self) -> list[BaseRoute]:
        path = "/{name:path}"
        return [
            Route(path, self.guarded(self._get), methods=["GET"]),
            Route(path, self.guarded(self._put), methods=["PUT"]),
            Route(path, self.guarded(self._delete), methods=["DELETE"]),
        ]

    async def _get(self, request: Request) -> ASGIApp:
        name = request.path_params["name"]
        if name in self._redirects:
            target, status = self._redirects[name]
            return Response(status_code=status, headers={"Location": target})
        if request.method == "HEAD" and not self.heads:
            return Response("no HEAD here", 403)
        if not self._path(name).is_file():
            return Response("not found", 404)
        file = self._path(name).open("rb")
        if request.method == "GET":
            self._count_download(name)
        reply = self._answer(request, file)
        if isinstance(reply, Response):
            file.close()
        return reply

    def _answer(self, request: Request, file: BinaryIO) -> ASGIApp:
        size, validators = self._validators(file)
        refused = _precondition(request, validators)
        if refused is not None:
            return refused
        headers = {"Content-Type": "application/octet-stream", **validators}
        headers |= {"Accept-Ranges": "bytes"} if self.ranges else {}
        offset, length, status = 0, size, 200
        wanted = self._wanted(request, size, validators)
        if wanted is not None:
            offset, length = wanted
            if length <= 0:
                return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
            status = 206
            headers["Content-Range"] = f"bytes {offset}-{offset + length - 1}/{size}"
        headers |= {"Content-Length": str(length)} if self.lengths else {}
        return self.file_reply(request, file, [(offset, length)], status, headers)

    def _validators(self, file: BinaryIO) -> tuple[int, dict[str, str]]:
        about = os.fstat(file.fileno())
        etag = {"ETag": f'"{about.st_ino:x}-{about.st_size:x}-{about.st_mtime_ns:x}"'} if self.etags else {}
        date = {"Last-Modified": formatdate(int(about.st_mtime), usegmt=True)} if self.dates else {}
        return about.st_size, etag | date

    def _wanted(self, request: Request, size: int, validators: dict[str, str]) -> tuple[int, int] | None:
        """Offset and length of the one range that is asked for; None for the whole file."""
        header = request.headers.get("range", "")
        unchanged = request.headers.get("if-range")
        if not self.ranges or not header.startswith("bytes=") or "," in header:
            return None
        if unchanged is not None and unchanged not in validators.values():
            return None
        first, _, last = header.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, size - int(last)), min(size, int(last))
        stop = min(size, int(last) + 1) if last else size
        return int(first), stop - int(first)

    async def _put(self, request: Request) -> ASGIApp:
        digest = hashlib.md5(usedforsecurity=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            async for piece in request.stream():
                digest.update(piece)
                file.write(piece)
        return self._stored(request, Path(file.name), digest.digest())

    def _stored(self, request: Request, temporary: Path, md5: bytes) -> Response:
        target = self._path(request.path_params["name"])
        stated = request.headers.get("content-md5")
        refused = self._refused_upload(request, target)
        if refused is None and stated not in (None, base64.b64encode(md5).decode()):
            refused = Response("Content-MD5 does not match", 400)
        if refused is not None:
            temporary.unlink()
            return refused
        is_new = not target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(target)
        with target.open("rb") as stored:
            return Response(status_code=201 if is_new else 204, headers=self._validators(stored)[1])

    def _refused_upload(self, request: Request, target: Path) -> Response | None:
        if not self.stores:
            return Response("no PUT here", 405)
        if self.full:
            return Response("no space left", 507)
        if request.headers.get("if-none-match") == "*" and target.exists():
            return Response("it exists", 412)
        return None

    async def _delete(self, request: Request) -> ASGIApp:
        target = self._path(request.path_params["name"])
        if not target.is_file():
            return Response("not found", 404)
        target.unlink()
        return Response(status_code=204)

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _count_download(self, name: str) -> None:
        left, data = self._replacements.pop(name, (0, b""))
        if left > 1:
            self._replacements[name] = (left - 1, data)
        elif left == 1:
            self.put(name, data)


def _precondition(request: Request, validators: dict[str, str]) -> Response | None:
    etag, wanted = validators.get("ETag"), request.headers.get("if-match")
    if etag is not None and wanted not in (None, "*", etag):
        return Response("it has changed", 412)
    date, unmodified = validators.get("Last-Modified"), request.headers.get("if-unmodified-since")
    if wanted is None and date is not None and unmodified not in (None, date):
        return Response("it has changed", 412)
    if etag is not None and request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=validators)
    return None
