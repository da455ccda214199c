"""Fixtures that every test may use, and which tests have to stay together when the suite runs in parallel."""

import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support import tally
from tests.support.mongo import mongo_server, mongo_url
from tests.support.s3 import s3_bucket, s3_server

#: Here, once: each module that imported them would start servers of its own.
__all__ = ["mongo_server", "mongo_url", "s3_bucket", "s3_server"]

#: Their tests share servers that take seconds to start.
SHARING = ("tests/e2e/", "tests/contract/test_mongo")


# A busy machine is no failure; what has to be quick is measured by `cpu_below`.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


class Together(LoadScopeScheduling):
    """Gives the tests of a file that shares servers to one worker, a worker for each store; any other test to
    whoever has time. (`--dist loadgroup` would do, but it changes the names that `--last-failed` looks for.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if not nodeid.startswith(SHARING):
            return nodeid
        return nodeid.partition("::")[0] + ("[mongodb]" if "[mongodb" in nodeid else "")


def pytest_configure() -> None:
    """Let tests send signals: under nohup, and in a shell's background, they are ignored by all children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    config.option.loadscopereorder = False
    return Together(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In parallel, what takes longest begins first, so that nobody waits for it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: (item.get_closest_marker("slow") is None, not item.nodeid.startswith(SHARING))
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker gives what it counted to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tally"] = tally.totals()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    tally.add(getattr(node, "workeroutput", {}).get("tally", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := tally.summary(tally.totals()):
        terminalreporter.section("kills, faults and promises")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only: it is what the server runs on."""
    return "asyncio"
