"""Request bodies that are files: streamed, of known length, and readable again when a request is repeated."""

import errno
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from awe_client.sdk.threads import ThreadFile

CHUNK_BYTES = 1024 * 1024
#: Called with (bytes done, bytes in all or -1).
Progress = Callable[[int, int], None]


class CountedBody(Protocol):
    """A raw body of known length, readable again; `md5` is that of the bytes sent, after the last of them."""

    size: int

    @property
    def md5(self) -> str:
        """Of the bytes sent."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Read it from its beginning. Raises OSError if not all of it can be read."""

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about it."""


class FileBody:
    """A file as a raw body. After it was read to its end, `md5` is the digest of the bytes that were sent."""

    def __init__(
        self,
        path: Path | str,
        *,
        on_progress: Progress | None = None,
        offset: int = 0,
        max_bytes: int | None = None,
    ) -> None:
        """Describe a file as it is now; `offset` and `max_bytes` choose a piece of it."""
        self.path = Path(path)
        size = max(os.path.getsize(path) - offset, 0)
        self.size = size if max_bytes is None else min(size, max(max_bytes, 0))
        self.md5 = ""
        self._offset = offset
        self._on_progress = on_progress

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the file from its beginning. Reading and hashing happen in a thread.

        Raises OSError, also if the file has become shorter than it was described.
        """
        digest = hashlib.md5(usedforsecurity=False)
        sent = 0
        file = ThreadFile(self._open)
        try:
            # Never more than the length that was announced: the file may still grow.
            while sent < self.size:
                chunk = await file.use(_read, min(CHUNK_BYTES, self.size - sent), digest)
                if not chunk:
                    raise OSError(errno.ESTALE, "the file changed while being read", str(self.path))
                sent += len(chunk)
                yield chunk
                if self._on_progress is not None:
                    self._on_progress(sent, self.size)
        finally:
            file.close()
        self.md5 = digest.hexdigest()

    def _open(self) -> BinaryIO:
        file = self.path.open("rb", buffering=0)
        file.seek(self._offset)
        return file

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about this body."""
        return {"Content-Type": "application/octet-stream", "Content-Length": str(self.size)}


class Rest:
    """The bytes of a body from an offset on: what goes on where it was cut. `md5` is that of the whole."""

    def __init__(self, body: CountedBody, offset: int) -> None:
        self._body = body
        self._offset = offset
        self.size = body.size - offset
        self._begun: tuple[AsyncIterator[bytes], bytes] | None = None

    async def begin(self) -> None:
        """Read what is not sent: before the request, whose receiver would wait in vain. Raises OSError."""
        self._begun = await self._skip()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read it from its beginning, as the body is read."""
        chunks, first = self._begun or await self._skip()
        self._begun = None
        if first:
            yield first
        async for chunk in chunks:
            yield chunk

    async def _skip(self) -> tuple[AsyncIterator[bytes], bytes]:
        """What is left to be read, and the piece that comes before it."""
        chunks, left = aiter(self._body), self._offset
        while left:
            chunk = await anext(chunks)
            if len(chunk) > left:
                return chunks, chunk[left:]
            left -= len(chunk)
        return chunks, b""

    @property
    def md5(self) -> str:
        """Of the whole body."""
        return self._body.md5

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about it."""
        return {**self._body.headers, "Content-Length": str(self.size)}


class MultipartBody:
    """Text fields and then at most one file, as multipart/form-data, without holding the file in memory."""

    def __init__(
        self,
        fields: dict[str, str],
        *,
        file: FileBody | bytes | None = None,
        file_field: str = "upload",
        file_name: str = "",
    ) -> None:
        self._boundary = secrets.token_hex(16)
        self._file = file
        head = b"".join(self._part(name) + value.encode() + b"\r\n" for name, value in fields.items())
        if file is not None:
            head += self._part(file_field, file_name or "upload")
        self._head = head
        self._tail = (b"\r\n" if file is not None else b"") + f"--{self._boundary}--\r\n".encode()

    def _part(self, name: str, file_name: str = "") -> bytes:
        head = f'--{self._boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"'
        if file_name:
            head += f'; filename="{_quoted(file_name)}"\r\nContent-Type: application/octet-stream'
        return head.encode() + b"\r\n\r\n"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body; may be iterated again for a repeated request."""
        yield self._head
        if isinstance(self._file, bytes):
            yield self._file
        elif self._file is not None:
            async for chunk in self._file:
                yield chunk
        yield self._tail

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about this body."""
        if isinstance(self._file, bytes):
            size = len(self._file)
        else:
            size = self._file.size if self._file is not None else 0
        return {
            "Content-Type": f"multipart/form-data; boundary={self._boundary}",
            "Content-Length": str(len(self._head) + size + len(self._tail)),
        }


def attributes_field(attributes: Any | None) -> dict[str, str]:
    """Shock's text field for node attributes, if there are any."""
    return {} if attributes is None else {"attributes_str": json.dumps(attributes)}


def _read(file: BinaryIO, size: int, digest: Any) -> bytes:
    chunk = file.read(size)
    digest.update(chunk)
    return chunk


def _quoted(text: str) -> str:
    """As browsers do it (HTML's form encoding): the three characters that would end the header value."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
