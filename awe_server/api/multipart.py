"""Multipart bodies, part by part as they come: memory holds one network chunk, whatever the size.

AWE: a part with a file name is a file, one without is a text.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from awe_server.api.bodies import media_type, stream
from shared_models.errors import BadRequest, TooLarge

MAX_PARTS = 1_000

#: A piece of what the parser saw: the headers of a new part, some of its bytes, or its end (None).
_Piece = dict[str, str] | bytes | None


def is_multipart(request: Request) -> bool:
    """Whether the body says it is a form with files."""
    return media_type(request) == "multipart/form-data"


@dataclass(slots=True)
class Part:
    """One part; read or skip it before asking for the next one."""

    name: str
    filename: str | None
    content_type: str
    _reader: "_Reader"

    async def chunks(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """Yield the part's bytes as they come. Raises TooLarge past `limit`."""
        seen = 0
        while isinstance(piece := await self._reader.next_piece(), bytes):
            seen += len(piece)
            if limit is not None and seen > limit:
                raise TooLarge(f"part '{self.name}' is larger than {limit} bytes")
            yield piece

    async def whole(self, limit: int) -> bytes:
        """Read the part into memory. Raises TooLarge past `limit`."""
        return b"".join([chunk async for chunk in self.chunks(limit)])


async def parts(request: Request, limit: int | None = None) -> AsyncIterator[Part]:
    """Yield the parts of a multipart body in order; what of a part was not read is skipped.

    Raises BadRequest if the body is not multipart, or damaged, or ends before its closing line; TooLarge
    past `limit` bytes in all.
    """
    reader = _Reader(request, limit)
    count = 0
    while (headers := await reader.next_headers()) is not None:
        count += 1
        if count > MAX_PARTS:
            raise TooLarge(f"the form has more than {MAX_PARTS} parts")
        yield _part(headers, reader)


def _part(headers: dict[str, str], reader: "_Reader") -> Part:
    _, options = parse_options_header(headers.get("content-disposition", ""))
    name = options.get(b"name")
    if name is None:
        raise BadRequest("a part of the form has no name")
    filename = options.get(b"filename")
    return Part(
        name=_name(name),
        filename=None if filename is None else _name(filename),
        content_type=headers.get("content-type", ""),
        _reader=reader,
    )


def _name(raw: bytes) -> str:
    """A name as browsers, curl and httpx send it: UTF-8, and the three characters that HTML escapes."""
    text = raw.decode("utf-8", "replace")
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


class _Reader:
    """Turns the push parser's callbacks into a stream of pieces."""

    def __init__(self, request: Request, limit: int | None) -> None:
        _, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if not is_multipart(request) or not boundary:
            raise BadRequest("request Content-Type isn't multipart/form-data")
        self._chunks = stream(request, limit)
        self._pieces: deque[_Piece] = deque()
        self._done = False
        self._field = b""
        self._value = b""
        self._headers: dict[str, str] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._on_field,
                    "on_header_value": self._on_value,
                    "on_header_end": self._on_header,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": lambda data, start, end: self._pieces.append(bytes(data[start:end])),
                    "on_part_end": lambda: self._pieces.append(None),
                    "on_end": self._end,
                },
            )
        except FormParserError as exc:
            raise BadRequest(f"the form's boundary cannot be used: {exc}") from exc

    async def next_piece(self) -> bytes | None:
        """The next bytes of the present part, or None at its end."""
        piece = await self._next()
        assert not isinstance(piece, dict)
        return piece

    async def next_headers(self) -> dict[str, str] | None:
        """The headers of the next part, or None after the last; skips what is left of the present one."""
        while not self._done or self._pieces:
            if isinstance(piece := await self._next(), dict):
                return piece
        return None

    async def _next(self) -> _Piece:
        while not self._pieces and not self._done:
            await self._feed()
        return self._pieces.popleft() if self._pieces else None

    async def _feed(self) -> None:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            raise BadRequest("the multipart body is not whole: its closing line is missing") from None
        try:
            self._parser.write(chunk)
        except FormParserError as exc:
            raise BadRequest(f"the multipart body is damaged: {exc}") from exc

    def _begin(self) -> None:
        self._headers = {}

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field = self._value = b""

    def _on_headers(self) -> None:
        self._pieces.append(self._headers)

    def _end(self) -> None:
        self._done = True
