"""Look at files that are not ours, within bounds: a host that is silent, slow or hostile costs little.

A look at a file has one deadline in all, whatever trickles in meanwhile; a host that did not answer is not
asked again for a while. An unknown size stops nobody who wants the whole file, so every doubt ends in one.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import httpx

from awe_server.data.hosts import host_of
from awe_server.data.objects import Objects
from awe_server.data.root_threads import RootThreads
from awe_server.data.sources import objects, shared, shock, web
from awe_server.data.sources.asking import Visit, text_of
from awe_server.data.sources.facts import Fact, Kind, Place, SourceRefused, SourceUnreachable
from awe_server.store.base import Document
from shared_models.errors import AweError
from shared_models.file_urls import is_file_url, path_of
from shared_models.object_urls import is_object_url

LOOK_S = 10.0  #: for one file, redirects included
DOWN_S = 30.0  #: how long a host that did not answer is left alone
MAX_AT_ONCE = 16  #: questions to one host at the same moment
MAX_DOWN = 1000  #: hosts that are left alone, the last ones


class Unknown(Exception):
    """Nothing could be found out about a file; the text says why."""


class Away(Unknown):
    """That may be otherwise a little later."""


def kind_of(io: Document) -> Kind:
    """What kind of source a file has that is not ours."""
    if is_file_url(io["url"]):
        return "file"
    if is_object_url(io["url"]):
        return "object"
    return "shock" if io["node"] else "web"


def node_url(io: Document) -> str:
    """The address of a foreign node's document."""
    return f"{io['host'].rstrip('/')}/node/{io['node']}"


class _Asked:
    """The hosts that one look asks, one after the other: a redirect may lead to another."""

    def __init__(self, host: str) -> None:
        self.host = host  #: that is asked now
        self._since_s = time.monotonic()
        self._spent_s: dict[str, float] = {}

    def next(self, host: str) -> None:
        """Another one is asked from now on, or the same once more."""
        now_s = time.monotonic()
        self._spent_s[self.host] = self._spent_s.get(self.host, 0.0) + now_s - self._since_s
        self.host, self._since_s = host, now_s

    def slowest(self) -> str:
        """Which one took most of the time."""
        self.next(self.host)
        return max(self._spent_s, key=lambda host: self._spent_s[host])


class ForeignFiles:
    """Asks other hosts."""

    def __init__(
        self, http: httpx.AsyncClient, monotonic: Callable[[], float], root_threads: RootThreads
    ) -> None:
        self._http = http
        self._monotonic = monotonic
        self._file_roots = root_threads.roots
        self._root_threads = root_threads
        self._objects = Objects()
        self._down: dict[str, tuple[float, str]] = {}  #: hosts that did not answer: until when, and why
        self._gates: dict[str, tuple[asyncio.Semaphore, int]] = {}  #: and how many hold or wait for each

    async def look(self, io: Document, *, token: str = "", to_cut: bool = False) -> Fact:
        """What there is to know of a file; `to_cut` if it matters whether pieces of it can be read.

        `token`: the job's data token, for Shocks that want one. Raises Unknown; SourceMissing if it is not
        there; Forbidden if it is not below a root.
        """
        host = host_of(io["url"])
        self._check_up(host)
        gate, users = self._gates.get(host) or (asyncio.Semaphore(MAX_AT_ONCE), 0)
        self._gates[host] = (gate, users + 1)
        try:
            async with gate:
                self._check_up(host)
                return await self._ask(io, host, token, to_cut=to_cut)
        finally:
            gate, users = self._gates.pop(host)
            if users > 1:
                self._gates[host] = (gate, users - 1)

    def place(self, io: Document, fact: Fact, token: str) -> Place:
        """Where pieces of a file that was looked at are read."""
        kind = kind_of(io)
        roots = self._file_roots if kind == "file" else ()
        token = token if kind == "shock" else ""
        return Place(kind, io["url"], fact.size_bytes, fact.version, roots, token)

    async def shock_units(self, io: Document, kind: str, token: str) -> int:
        """Have another Shock index a node of it; how many units. Raises shock.NotBuilt, SourceUnreachable."""
        return await shock.build_index(self._http, node_url(io), kind, token)

    def _check_up(self, host: str) -> None:
        until_s, reason = self._down.get(host, (0.0, ""))
        if self._monotonic() < until_s:
            raise Away(reason)
        self._down.pop(host, None)

    async def _ask(self, io: Document, host: str, token: str, *, to_cut: bool) -> Fact:
        asked = _Asked(host)

        def visit(url: str) -> None:
            asked.next(host_of(url))
            self._check_up(asked.host)

        try:
            async with asyncio.timeout(LOOK_S):
                return await self._look(io, token, visit, to_cut=to_cut)
        except (TimeoutError, httpx.TimeoutException):
            slowest = asked.slowest()
            raise self._is_down(slowest, f"no answer from {slowest} in {LOOK_S:g} s") from None
        except httpx.TransportError as exc:
            raise self._is_down(asked.host, f"{asked.host} cannot be reached: {text_of(exc)}") from exc
        except SourceUnreachable as exc:
            raise Away(f"{host}: {exc.message}") from exc
        except SourceRefused as exc:
            raise Unknown(f"{host}: {exc.message}") from exc
        except AweError:
            raise
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as exc:
            raise Unknown(f"{host} does not tell it ({text_of(exc)})") from exc

    async def _look(self, io: Document, token: str, visit: Visit, *, to_cut: bool) -> Fact:
        kind = kind_of(io)
        if kind == "file":
            return await self._root_threads.run(
                path_of(io["url"]), partial(shared.look, io["url"], self._file_roots)
            )
        if kind == "object":
            return await objects.look(self._objects, io["url"])
        if kind == "shock":
            return await shock.look(self._http, node_url(io), token, visit=visit)
        return await web.look(self._http, io["url"], to_cut=to_cut, visit=visit)

    def _is_down(self, host: str, reason: str) -> Away:
        now_s = self._monotonic()
        self._down.pop(host, None)
        self._down[host] = (now_s + DOWN_S, reason)
        while len(self._down) > MAX_DOWN or next(iter(self._down.values()))[0] <= now_s:
            del self._down[next(iter(self._down))]  # in the order in which they are asked again
        return Away(reason)
