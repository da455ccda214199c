"""Fixtures of crash tests: a server that is killed, and a client that outlives it.

On SQLite, and for a test that asks for it (stores.py) also on a server that speaks MongoDB's protocol.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient
from tests.support.mongo import MongoServer
from tests.support.warm_server import WarmServers


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """What `serve --store` is given; "" is SQLite."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return ""
    server: MongoServer = request.getfixturevalue("mongo_server")
    return server.url()


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmServers]:
    """Starts that are paid for once; tests of the start itself have an `env` of their own."""
    with WarmServers() as warm:
        yield warm


@pytest.fixture
def env(tmp_path: Path, store: str, warm: WarmServers) -> Iterator[AweEnv]:
    with AweEnv(tmp_path, store=store) as env:
        env.server.spawn = warm.spawn
        env.server.start()
        yield env


@pytest.fixture
def client(env: AweEnv) -> Iterator[FakeClient]:
    client = FakeClient(env.server.url)
    client.register()
    yield client
    client.close()
