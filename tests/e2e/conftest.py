"""The stores on which every end-to-end test runs."""

from collections.abc import Callable

import pytest

from tests.support.mongo import MongoServer


@pytest.fixture(scope="session", params=["sqlite", "mongodb"])
def new_store(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Gives a fresh store each time: SQLite, or a database on a server that speaks MongoDB's protocol."""
    if request.param == "sqlite":
        return str
    server: MongoServer = request.getfixturevalue("mongo_server")
    return server.url
