"""A site with a shared file system, and another Shock; modules that need another site have their own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.shock import ShockServer
from tests.unit.runtime.site import SharedSite


@pytest.fixture
async def site(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SharedSite]:
    """A server that lets jobs use a shared folder, and one client."""
    site = SharedSite(tmp_path)
    await site.start()
    await site.register()
    yield site
    await site.engine.stop()
    assert site.fatal == []


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    """Another Shock."""
    with ShockServer(tmp_path / "shock") as server:
        yield server
