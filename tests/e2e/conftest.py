"""Fixtures of end-to-end tests: a real server, real clients, real commands."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.env import AweEnv


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    """A started server; AWE_TEST_STORE makes it use another store than SQLite."""
    with AweEnv(tmp_path, store=os.environ.get("AWE_TEST_STORE", "")) as env:
        env.server.start()
        yield env
