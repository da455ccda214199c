"""Fixtures that every test may use, and which tests have to stay together when the suite runs in parallel."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support import tally
from tests.support.lines import close_lines
from tests.support.mongo import mongo_server, mongo_url
from tests.support.s3 import s3_bucket, s3_server

#: Here, once: each module that imported them would start servers of its own.
__all__ = ["mongo_server", "mongo_url", "s3_bucket", "s3_server"]

#: Where it is kept how many promises a run has broken, and where.
BROKEN = "awe/broken-promises"
#: ... and whether it killed too seldom.
WEAK = "awe/too-few-kills"

#: Options of pytest with which not every test runs.
_CHOOSING = (
    "keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob", "stepwise", "collectonly", "setuponly",
    "setupplan", "cacheshow",
)  # fmt: skip

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
    """A worker gives what it counted to the controller; a run that lost or doubled something fails.

    So does every `--last-failed` run after it: a broken promise is no mood of the machine. And so do a run
    of the whole suite that killed too seldom to say anything about promises, and what repeats its failures.
    """
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["tally"] = tally.totals()
        return
    goes_on = config.getoption("lf", False)
    broken, places = _kept(config) if goes_on else (0, {})
    broken += tally.broken(tally.totals())
    is_weak = _is_whole(config) and tally.kills(tally.totals()) < tally.LEAST_KILLS
    if cache := getattr(config, "cache", None):  # which can be switched off
        is_weak = is_weak or bool(goes_on and cache.get(WEAK, False))
        cache.set(WEAK, is_weak)
        cache.set(BROKEN, [broken, {**places, **tally.places(tally.totals())}])
    if (broken or is_weak) and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    tally.add(getattr(node, "workeroutput", {}).get("tally", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = tally.summary(tally.totals(), is_whole=_is_whole(config))
    broken, places = _kept(config)
    if broken:
        lines.append(f"{broken:7,} promises broken, in this run or the one of which it repeats the failures")
        earlier = places.keys() - tally.places(tally.totals()).keys()
        lines += [f"{places[place]:7,} {place}, in the run before" for place in sorted(earlier)]
    if config.getoption("lf", False) and (cache := getattr(config, "cache", None)) and cache.get(WEAK, False):
        lines.append("too few kills in the run of which this one repeats the failures")
    if lines:
        terminalreporter.section("kills, faults and promises")
        for line in lines:
            terminalreporter.write_line(line)


def _kept(config: pytest.Config) -> tuple[int, dict[str, int]]:
    """How many promises were broken, in this run and those that it goes on with; in which tests how many."""
    cache = getattr(config, "cache", None)
    broken, places = cache.get(BROKEN, [0, {}]) if cache else (0, {})
    return broken, places


def _is_whole(config: pytest.Config) -> bool:
    """Whether every test there is was to run."""
    chosen = any(config.getoption(option, False) for option in _CHOOSING)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only: it is what the server runs on."""
    return "asyncio"


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    """What a test opened to servers, and did not come to close, is closed after it."""
    yield
    close_lines()
