"""Fixtures that every test may use."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only: it is what the server runs on."""
    return "asyncio"
