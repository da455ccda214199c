"""MongoDB for tests: a mock in the process, and a real server of the wire protocol in a process of its own.

Met so far, and why the product does not care:
* mongomock 4.3 does not know the `sort` keyword that pymongo ≥ 4.11 gives its bulk writer: dropped here.
* mongomock has no `hello` and no sessions, and takes `$$NOW` for null: here it is a standalone server.
* mongomock takes True for 1 in a filter, and a write costs it time in proportion to the collection.
* SecantusDB speaks transactions, but `$expr` with `$$NOW` in a filter never matches, so the lease reads the
  server's clock from `hello`.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mongomock.collection
import pytest
from mongomock_motor import AsyncMongoMockClient

from tests.support.eventually import eventually_sync
from tests.support.ports import HeldPort

_START = "import sys; from secantus.cli import main; sys.exit(main())"
_LISTENING = re.compile(r"listening on [\d.]+:\d+")


class MongoServer:
    """A SecantusDB process on a free loopback port; its data and its port outlive a restart."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._held = HeldPort()
        self._address = f"127.0.0.1:{self._held.number}"

    def start(self) -> None:
        """Start and wait until it listens."""
        host, port = self._address.split(":")
        log = self._folder / f"log-{uuid.uuid4().hex}"
        command = [sys.executable, "-c", _START, "--host", host, "--port", port]
        command += ["--storage-path", str(self._folder / "data"), "--log-level", "INFO", *self._flags]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)

        def listens() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, log.read_text()
            return _LISTENING.search(log.read_text()) is not None

        eventually_sync(listens, show=log.read_text)

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        self._held.close()

    def pause(self) -> None:
        """Let it hang: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def url(self, database: str | None = None) -> str:
        """The address of a database, a fresh one unless named."""
        return f"mongodb://{self._address}/{database or f'test_{uuid.uuid4().hex}'}"


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """One server for the whole run; nobody may stop it."""
    server = MongoServer(tmp_path_factory.mktemp("mongo"))
    server.start()
    yield server
    server.close()


@pytest.fixture
def mongo_url(mongo_server: MongoServer) -> str:
    """A database of its own on the wire-protocol server."""
    return mongo_server.url()


def real_mongo_url() -> str:
    """A database of its own on the server of AWE_TEST_MONGODB_URL; empty if there is none."""
    url = os.environ.get("AWE_TEST_MONGODB_URL", "")
    if not url:
        return ""
    head, question, options = url.partition("?")
    scheme, _, rest = head.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/test_{uuid.uuid4().hex}{question}{options}"


class _MockAdmin:
    async def command(self, name: str) -> dict[str, Any]:
        return {"ok": 1.0, "isWritablePrimary": True} if name in ("hello", "ping") else {}


class MockClient:
    """mongomock-motor as a standalone server; clients that share `data` see the same documents."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.admin = _MockAdmin()

    def __call__(self, url: str, **_: Any) -> "MockClient":
        """Stand in for the class of clients, too."""
        self._database = url.rpartition("/")[2]
        return self

    def get_default_database(self, default: str, **_: Any) -> Any:
        return self._data[self._database or default]

    def close(self) -> None:
        """Nothing to disconnect."""


@contextlib.contextmanager
def mock_client() -> Iterator[MockClient]:
    """A mock whose bulk writer takes what pymongo gives it."""
    builder = mongomock.collection.BulkOperationBuilder
    with pytest.MonkeyPatch.context() as patch:
        for name in ("add_replace", "add_update"):
            patch.setattr(builder, name, _without_sort(getattr(builder, name)))
        yield MockClient(AsyncMongoMockClient())


def _without_sort(method: Any) -> Any:
    def call(self: Any, *args: Any, sort: Any = None, **kwargs: Any) -> Any:
        assert sort is None
        return method(self, *args, **kwargs)

    return call
