"""What goes on beside requests: effects, ticks, the sweep for expired jobs, the collection of orphans."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from awe_server.data.nodes import NodeStore
from awe_server.data.root_threads import RootThreads
from awe_server.data.sinks.sinks import Sinks
from awe_server.data.source_indexes import SourceIndexes
from awe_server.runtime import recovery
from awe_server.runtime.cuts import Cuts
from awe_server.runtime.deletions import Deleter, PlaceDeleter
from awe_server.runtime.delivery import Delivery
from awe_server.runtime.effects import Effects
from awe_server.runtime.engine import Engine
from awe_server.runtime.expiry import Expiry
from awe_server.runtime.finish import Finisher
from awe_server.runtime.folder_mark import HAS_FOLDER, has_mark, make_mark
from awe_server.runtime.foreign import LOOK_S, ForeignFiles
from awe_server.runtime.foreign_inputs import ForeignInputs
from awe_server.runtime.index_sweep import IndexSweep
from awe_server.runtime.node_expiry import NodeExpiry
from awe_server.runtime.node_removal import NodeRemover
from awe_server.runtime.parts_removal import PartsRemover
from awe_server.runtime.prepare import Preparer
from awe_server.runtime.ticker import Ticker
from awe_server.scheduler.state import Effect
from awe_server.store.base import Put
from shared_models.cookies import no_cookies
from shared_models.errors import AweError

log = logging.getLogger(__name__)

ORPHANS_EVERY_S = 3600.0
ORPHAN_AGE_S = 3600.0  #: what is younger may be of an upload whose node is not stored yet
UNFINISHED_EVERY_S = 30.0


class BackgroundDuties:
    """Starts and stops all of them together."""

    def __init__(
        self,
        engine: Engine,
        nodes: NodeStore,
        folder: Path,
        logs_dir: Path,
        new_id: Callable[[], str],
        fatal: Callable[[BaseException], None],
        http: httpx.AsyncClient | None = None,
    ) -> None:
        settings = engine.settings
        self._engine = engine
        self._folder = folder
        self._fatal = fatal
        self._nodes = nodes
        # How many questions are asked at once is bounded for each host; one host must not use up all.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = http or httpx.AsyncClient(timeout=LOOK_S, limits=limits, cookies=no_cookies())
        monotonic = engine.clock.monotonic
        #: one for the whole server: each root has only a few
        self.root_threads = RootThreads(settings.file_roots)
        foreign = ForeignFiles(self._http, monotonic, self.root_threads)
        self.indexes = SourceIndexes(folder.with_name("indexes"), settings.free_floor_bytes)
        self.cuts = Cuts(engine, nodes, foreign, self.indexes)
        inputs = ForeignInputs(foreign, self.indexes, engine.clock, settings.source_wait_s)
        prepare = Preparer(engine, nodes, inputs, new_id)
        sinks = Sinks(self._http, self.root_threads, engine.require_lead)
        delivery = Delivery(nodes, sinks)
        finish = Finisher(engine, nodes, delivery)
        delete_places = PlaceDeleter(engine, sinks, delivery)
        remover = NodeRemover(engine, nodes, lambda: engine.state, engine.clock.wall)
        parts = PartsRemover(engine)
        self.effects = Effects(prepare, finish, Deleter(engine, remover, parts), delete_places)
        self.ticker = Ticker(engine, settings.tick_s)
        self.expiry = Expiry(engine, remover, parts, logs_dir, settings.expire_wait_s)
        self.node_expiry = NodeExpiry(engine, nodes, settings.expire_wait_s)
        self.index_sweep = IndexSweep(engine, self.indexes, settings.expire_wait_s)
        self._running: list[asyncio.Task[None]] = []

    @property
    def troubles(self) -> dict[str, str]:
        """What keeps a task's effect from being done, by task id."""
        return self.effects.troubles

    async def start(self) -> None:
        """Begin; the state has been read, nobody is served yet. Raises WrongFolder, FilesMissing."""
        await self._claim()
        await self._nodes.start()
        self.effects.start()
        sweeps = (
            self.expiry.run(),
            self.node_expiry.run(),
            self.index_sweep.run(),
            self._collect_orphans(),
            self._drop_unfinished(),
        )
        self._running = [asyncio.create_task(self._guard(duty)) for duty in (self.ticker.run(), *sweeps)]

    async def stop(self) -> None:
        """End them; safe to call twice and before start."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.effects.stop()
        await self.cuts.stop()
        await self.indexes.close()
        await self._nodes.stop()
        await self._http.aclose()

    def begin(self, effects: Iterable[Effect]) -> None:
        """Carry these out."""
        self.effects.begin(effects)

    def abandon(self) -> None:
        """Forget what was asked for: the state is read anew."""
        self.effects.abandon()

    async def _claim(self) -> None:
        """See that the folder holds this store's files; a store that never had one makes it its own."""
        engine = self._engine
        if not await has_mark(self._folder, engine.server, engine):
            await asyncio.to_thread(make_mark, self._folder, engine.server_uuid)
        if not engine.server.get(HAS_FOLDER):
            engine.server = {**engine.server, HAS_FOLDER: True}
            await recovery.patiently(lambda: engine.put(Put("meta", engine.server)), "claim")

    async def _guard(self, duty: Coroutine[Any, Any, None]) -> None:
        try:
            await duty
        except Exception as exc:  # noqa: BLE001 - a server whose clock or sweeps stand still must not go on
            self._fatal(exc)

    async def _collect_orphans(self) -> None:
        """At the start all that a dead process left, whose uploads are over; then what is old."""
        collect: Callable[[], Awaitable[int]] = self._nodes.collect_left
        while True:
            try:
                removed = await collect()
                if removed:
                    log.info("orphans_removed", extra={"files": removed})
            except (AweError, OSError) as exc:
                log.warning("orphans_not_collected", extra={"reason": str(exc)})
            collect = partial(self._nodes.collect_orphans, ORPHAN_AGE_S)
            await asyncio.sleep(ORPHANS_EVERY_S)

    async def _drop_unfinished(self) -> None:
        while True:
            await asyncio.sleep(UNFINISHED_EVERY_S)
            try:
                if dropped := await self._nodes.drop_unfinished():
                    log.info("unfinished_uploads_dropped", extra={"uploads": dropped})
            except OSError as exc:
                log.warning("unfinished_uploads_not_dropped", extra={"reason": str(exc)})
