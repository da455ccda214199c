"""A world with two clients, checked after each test."""

from collections.abc import Iterator

import pytest

from awe_server.scheduler.invariants import check
from tests.builders import Stored, World


@pytest.fixture
def world() -> Iterator[World]:
    """An empty state; whatever a test does to it, the invariants hold at its end."""
    world = World()
    yield world
    assert check(world.state) == []


@pytest.fixture
def stored() -> Stored:
    """An empty store."""
    return Stored()
