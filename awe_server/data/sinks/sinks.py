"""Where outputs go besides our own node store, by address."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx

from awe_server.data.objects import Objects
from awe_server.data.ports import FileFact
from awe_server.data.root_threads import NoAnswer, RootThreads
from awe_server.data.sinks.base import (
    About,
    Content,
    Memo,
    RequireLead,
    SinkBusy,
    SinkSilent,
    shown,
)
from awe_server.data.sinks.files import FileSink, Wanted
from awe_server.data.sinks.http import HttpSink
from awe_server.data.sinks.objects import ObjectSink
from awe_server.data.sinks.shock import ShockSink
from awe_server.data.sinks.web import Web
from shared_models.file_urls import is_file_url, path_of, url_of
from shared_models.object_urls import is_object_url

ANSWER_S = 60.0  #: for a removal below a root, or the look at what is staged there


class Sinks:
    """Delivers. Raises SinkBusy for what may pass, SinkRefused for what will not.

    And what `require_lead` raises, before anything is changed elsewhere, and before a file is whole there.
    """

    def __init__(self, http: httpx.AsyncClient, root_threads: RootThreads, require_lead: RequireLead) -> None:
        self._require_lead = require_lead
        web = Web(http, require_lead)
        self._shock = ShockSink(web)
        self._http = HttpSink(web)
        self._objects = ObjectSink(Objects(), require_lead)
        self._files = FileSink(root_threads.roots, require_lead)
        self._root_threads = root_threads
        self._going: Counter[str] = Counter()  #: addresses of which something is being removed
        self._removals: dict[str, asyncio.Task[None]] = {}  #: of files, by path, until they have ended

    async def to_shock(self, host: str, content: Content, about: About, memo: Memo) -> str:
        """Make a node in another Shock; its id."""
        return await self._shock.deliver(host, content, about, memo)

    async def take_back(self, host: str, token: str, memo: Memo) -> None:
        """Remove the node that `to_shock` made with this memo, if it made one."""
        await self._shock.take_back(host, token, memo)

    async def index_in_shock(self, host: str, node: str, kind: str, token: str) -> None:
        """Index a node there."""
        await self._shock.build_index(host, node, kind, token)

    async def to_url(self, url: str, content: Content) -> None:
        """Store a file at an address of a web server or an object store."""
        self._check_stays(url)
        sink: HttpSink | ObjectSink = self._objects if is_object_url(url) else self._http
        await sink.deliver(url, content)

    async def missing_parts(self, wanted: Wanted) -> list[tuple[int, int]]:
        """Which parts of a shared file are not staged."""
        try:
            return await self._root_threads.run(wanted.path, partial(self._files.missing, wanted), ANSWER_S)
        except NoAnswer as exc:
            raise SinkBusy(str(exc)) from exc

    async def to_file(self, wanted: Wanted) -> FileFact:
        """Make a shared file of what was staged."""
        self._check_stays(url_of(wanted.path))
        return await self._root_threads.run(wanted.path, partial(self._files.place, wanted))

    async def remove(self, url: str, token: str) -> None:
        """Remove what was delivered: a Shock's node, an object, a file; or a stage folder."""
        self._require_lead()
        if is_file_url(url):
            await self._remove_file(path_of(url))
            return
        with self._removing(url):
            if is_object_url(url):
                await self._objects.delete(url)
            else:
                await self._shock.delete(url, token)

    async def _remove_file(self, path: str) -> None:
        """Wait a while for its removal, which goes on to its end. Raises SinkSilent."""
        removal = self._removals.get(path)
        if removal is None:
            removal = self._removals[path] = asyncio.create_task(self._let_go(path))
            removal.add_done_callback(lambda _: self._removals.pop(path))
        done, _ = await asyncio.wait([removal], timeout=ANSWER_S)
        if not done:
            raise SinkSilent(str(self._root_threads.no_answer(path, ANSWER_S)))
        removal.result()

    async def _let_go(self, path: str) -> None:
        with self._removing(url_of(path)):
            await self._root_threads.run(path, partial(self._files.remove, path))

    @contextmanager
    def _removing(self, url: str) -> Iterator[None]:
        self._going[url] += 1
        try:
            yield
        finally:
            self._going[url] -= 1
            if not self._going[url]:
                del self._going[url]

    def _check_stays(self, url: str) -> None:
        """What is put now where something is still being removed would go with it."""
        if url in self._going:
            raise SinkBusy(f"what was at {shown(url)} is still being removed")
