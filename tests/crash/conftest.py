"""Fixtures of crash tests: a server that is killed, and a client that outlives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    with AweEnv(tmp_path) as env:
        env.server.start()
        yield env


@pytest.fixture
def client(env: AweEnv) -> Iterator[FakeClient]:
    client = FakeClient(env.server.url)
    client.register()
    yield client
    client.close()
