"""Read a source in pieces: what the process does that indexes it. Blocking.

A piece that fails for a passing reason is asked for again. A scan that reads on and on gets more at a time;
one that jumps gets what it wants and no more. A host that is too slow for the scan to end is given up.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import httpx

from awe_server.data.sources import shock, web
from awe_server.data.sources.asking import PLAIN, leads_nowhere, text_of
from awe_server.data.sources.facts import NoRanges, Place, SourceRefused, SourceUnreachable
from awe_server.data.sources.objects import StoredObject
from awe_server.data.sources.shared import SharedFile
from shared_models.data_tokens import WANTS_LOGIN, authorization
from shared_models.limits import MIB

AHEAD_BYTES = 8 * MIB  #: what is read at once when one read follows the other
TRIES = 4  #: for a piece
FIRST_PAUSE_S = 0.5
GRACE_S = 300.0  #: the time a scan may take, besides what its bytes take at the lowest rate
MIN_RATE_BYTES_S = 64 * 1024
_TIMEOUT = httpx.Timeout(30.0, connect=15.0)
_CHUNK_BYTES = 64 * 1024


class Pieces(Protocol):
    """One source of one version."""

    def fetch(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, which lie within the file."""

    def check(self) -> None:
        """Raise SourceChanged unless all that was fetched is of the one version."""

    def close(self) -> None:
        """Let go of it."""


class WebFile:
    """Reads pieces of a file of a web server, or of a node of another Shock."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._http = httpx.Client(timeout=_TIMEOUT, follow_redirects=True, headers=PLAIN)
        self._login: dict[str, str] = {}  #: shown once its Shock wants one

    def fetch(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises NoRanges, SourceChanged, SourceRefused, SourceUnreachable, …"""
        place = self._place
        url, headers = httpx.URL(place.url), web.piece_headers(place.version, offset, length)
        if place.kind == "shock":
            url, headers = url.copy_merge_params({"seek": str(offset), "length": str(length)}), {}
        try:
            with self._reply(url, headers) as reply:
                if place.kind == "shock":
                    _check_stretch(reply, length, place.token)
                else:
                    web.check_piece(reply, place.version, offset, length, place.size_bytes)
                return _body(reply, length)
        except httpx.TransportError as exc:
            error = SourceRefused if leads_nowhere(exc) else SourceUnreachable
            raise error(reason=text_of(exc)) from exc
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise SourceRefused(reason=text_of(exc)) from exc

    @contextmanager
    def _reply(self, url: httpx.URL, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """The answer to anybody, or else to who shows the token."""
        while True:
            with self._http.stream("GET", url, headers={**headers, **self._login}) as reply:
                if self._login or not self._place.token or reply.status_code not in WANTS_LOGIN:
                    yield reply
                    return
            self._login = {"Authorization": authorization(self._place.token)}

    def check(self) -> None:
        """Each piece was of the one version."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _check_stretch(reply: httpx.Response, length: int, token: str) -> None:
    if not reply.is_success:
        raise shock.refused(reply.status_code, token)
    if reply.headers.get("content-length", str(length)) != str(length):
        raise NoRanges(reason="its Shock sends other pieces than it is asked for")


def _body(reply: httpx.Response, length: int) -> bytes:
    until_s = time.monotonic() + GRACE_S / 10 + length / MIN_RATE_BYTES_S
    data = bytearray()
    for chunk in reply.iter_raw(_CHUNK_BYTES):
        data += chunk
        if len(data) > length:
            raise NoRanges(reason="its host sends more than it is asked for")
        if time.monotonic() > until_s:
            raise SourceUnreachable(reason="its host is too slow")
    if len(data) < length:
        raise SourceUnreachable(reason="its host broke off")
    return bytes(data)


_KINDS: dict[str, Callable[[Place], Pieces]] = {
    "web": WebFile,
    "shock": WebFile,
    "file": SharedFile,
    "object": StoredObject,
}


class ForeignSource:
    """A source to read anywhere in (see records.Source)."""

    def __init__(self, place: Place, pieces: Pieces) -> None:
        self.size = place.size_bytes
        self._pieces = pieces
        self._ahead = b""
        self._ahead_at = 0
        self._next = -1  #: where a read would begin that follows the last one
        self._began_s = time.monotonic()
        self._fetched_bytes = 0

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on: `length` of them, or fewer only at the end."""
        length = max(0, min(length, self.size - offset))
        skip = offset - self._ahead_at
        if not 0 <= skip <= len(self._ahead) - length:
            wanted = max(length, AHEAD_BYTES) if offset == self._next else length
            self._ahead = self._insist(offset, min(wanted, self.size - offset)) if length else b""
            self._ahead_at, skip = offset, 0
        self._next = offset + length
        return self._ahead[skip : skip + length]

    def _insist(self, offset: int, length: int) -> bytes:
        self._check_pace()
        for failures in range(TRIES):
            try:
                data = self._pieces.fetch(offset, length)
            except SourceUnreachable:
                if failures + 1 == TRIES:
                    raise
                time.sleep(FIRST_PAUSE_S * 2**failures)
            else:
                self._fetched_bytes += length
                return data
        raise AssertionError("the last try returns or raises")

    def _check_pace(self) -> None:
        spent_s = time.monotonic() - self._began_s
        if spent_s > GRACE_S + self._fetched_bytes / MIN_RATE_BYTES_S:
            raise SourceUnreachable(reason=f"in {spent_s:.0f} s only {self._fetched_bytes} bytes came")


@contextmanager
def open_source(place: Place) -> Iterator[ForeignSource]:
    """The source; when what is done with it is over, it is made sure that it did not change meanwhile."""
    pieces = _KINDS[place.kind](place)
    try:
        try:
            yield ForeignSource(place, pieces)
        finally:
            pieces.check()  # what looks broken may just have been changed
    finally:
        pieces.close()
