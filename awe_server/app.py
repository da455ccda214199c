"""Composition root: the only file that knows all rooms. Builds a server from settings and runs it.

The socket is bound first (a taken port is found before the data is touched) and answers `/health` while the
store is opened and the state recovered; everything else is refused as not ready until then.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn
import uvloop
from fastapi import FastAPI

from awe_server.api import build_api
from awe_server.api.connection import Connection
from awe_server.data.nodes import NodeStore
from awe_server.runtime.clock import Clock
from awe_server.runtime.collector import spare_collector
from awe_server.runtime.data_dir import CannotStart, claim, keep_apart
from awe_server.runtime.duties import BackgroundDuties
from awe_server.runtime.engine import Engine
from awe_server.runtime.random_ids import Uuids
from awe_server.runtime.services import Services
from awe_server.scheduler.readers import check_unread
from awe_server.settings import Settings
from awe_server.store.errors import LeaseGone, StoreCorrupt
from awe_server.store.open import open_store
from shared_models.errors import AweError

log = logging.getLogger(__name__)

GRACE_S = 5  #: how long requests in progress may take to end at shutdown
KEEP_ALIVE_S = 75  #: an idle connection; longer than a client's pause between two exchanges
STATE_LOST = 70  #: exit code when memory could not be brought to disk (EX_SOFTWARE)


def build_services(settings: Settings, *, clock: Clock, fatal: Callable[[BaseException], None]) -> Services:
    """Put the rooms together; nothing is opened yet."""
    store = open_store(settings.store_url, settings.data_dir)
    claim(settings.data_dir)
    keep_apart(settings.data_dir, settings.file_roots)
    # What belongs to documents that are forgotten at exit is kept apart from what is not.
    folder = settings.data_dir / "memory" if settings.store_url == "memory:" else settings.data_dir
    if folder != settings.data_dir:
        shutil.rmtree(folder, ignore_errors=True)
    engine = Engine(store, settings, clock, fatal)
    new_id = Uuids()
    nodes = NodeStore(
        folder / "nodes", engine, new_id, clock.wall, settings.free_floor_bytes,
        quota_bytes=settings.quota_bytes, dedup=settings.dedup_nodes,
    )  # fmt: skip
    nodes.protect(lambda node_id: check_unread(engine.state, node_id))
    logs_dir = folder / "logs"
    duties = BackgroundDuties(engine, nodes, folder / "nodes", logs_dir, new_id, fatal)
    engine.attach(duties)
    return Services(
        engine=engine, nodes=nodes, cuts=duties.cuts, root_threads=duties.root_threads, settings=settings,
        logs_dir=logs_dir, new_id=new_id, wall=clock.wall,
    )  # fmt: skip


def _die(exc: BaseException) -> None:
    """Stop at once: what is on disk is right, what is in memory may not be."""
    expected = isinstance(exc, LeaseGone | StoreCorrupt)
    log.critical(
        "server_stops",
        exc_info=None if expected else exc,
        extra={"reason": str(exc) or type(exc).__name__},
    )
    logging.shutdown()
    os._exit(STATE_LOST)


class _Uvicorn(uvicorn.Server):
    """Uvicorn that lets us end long-polls first and does not kill the process when it is done."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._services.engine.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(4096)
    except OSError as exc:
        raise CannotStart(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
    sock.setblocking(False)
    return sock


def _address(settings: Settings, sock: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{sock.getsockname()[1]}"


async def _serve(settings: Settings) -> None:
    sock = _bind(settings.host, settings.port)
    services = build_services(settings, clock=Clock(), fatal=_die)
    app: FastAPI = build_api(services)
    config = uvicorn.Config(
        app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S, backlog=4096,
    )  # fmt: skip
    server = _Uvicorn(config, services)
    spare_collector()
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        starting = asyncio.create_task(services.engine.start())
        await asyncio.wait({starting, serving}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            print(f"awe-server listening on {_address(settings, sock)}", flush=True)
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await serving
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        await services.engine.stop()
        log.info("server_stopped")


def run(settings: Settings) -> int:
    """Serve until told to stop. Returns the exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except AweError as exc:
        print(f"awe-server: {exc.message}", file=sys.stderr)
        return 1
    return 0
