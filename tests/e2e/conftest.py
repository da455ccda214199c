"""Fixtures of end-to-end tests: a real server, real clients, real commands."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.env import AweEnv
from tests.support.mongo import MongoServer, mongo_server

__all__ = ["mongo_server"]


@pytest.fixture(scope="session", params=["sqlite", "mongodb"])
def new_store(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Gives a fresh store each time: SQLite, or a database on a server that speaks MongoDB's protocol."""
    if request.param == "sqlite":
        return str
    server: MongoServer = request.getfixturevalue("mongo_server")
    return server.url


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    """A started server; AWE_TEST_STORE makes it use another store than SQLite."""
    with AweEnv(tmp_path, store=os.environ.get("AWE_TEST_STORE", "")) as env:
        env.server.start()
        yield env
