"""A site with a shared file system, and another Shock; modules that need another site name its type."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.shock import ShockServer
from tests.unit.runtime.site import SharedSite, Site


@pytest.fixture
def site_type() -> type[Site]:
    """A server that lets jobs use a shared folder."""
    return SharedSite


@pytest.fixture
async def site(tmp_path: Path, anyio_backend: str, site_type: type[Site]) -> AsyncIterator[Site]:
    """A server and one client."""
    site = site_type(tmp_path)
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
