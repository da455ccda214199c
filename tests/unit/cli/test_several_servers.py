"""`awe` with the addresses of a standby pair: the one that leads is asked."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from awe_client.cli import leader
from tests.support.ports import HeldPort

EMPTY_PAGE = {"status": 200, "data": [], "error": None, "total_count": 0, "limit": 25, "offset": 0}


class _Handler(BaseHTTPRequestHandler):
    health: int
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        raw = json.dumps(EMPTY_PAGE).encode()
        self.send_response(self.health if path == "/health" else 200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Sites:
    """Servers that say of themselves what they are told to; `asked` are the paths that each was asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.asked: dict[str, list[str]] = {}

    def serving(self, health: int) -> str:
        """One whose /health has this status; its address."""
        asked: list[str] = []
        handler = type("Handler", (_Handler,), {"health": health, "asked": asked})
        httpd = self._stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(httpd.shutdown)
        url = f"http://127.0.0.1:{httpd.server_port}"
        self.asked[url] = asked
        return url

    def hanging(self) -> str:
        """One that takes connections and never answers, as a stopped one does."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def gone(self) -> str:
        """The address of nobody."""
        held = HeldPort()
        self._stack.callback(held.close)
        return f"http://127.0.0.1:{held.number}"


@pytest.fixture
def sites() -> Iterator[Sites]:
    """Servers on loopback, gone at the end."""
    with ExitStack() as stack:
        yield Sites(stack)


@pytest.fixture
def several(awe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run `awe jobs` with these addresses in AWE_SERVER."""

    def call(*urls: str) -> tuple[int, str, str]:
        monkeypatch.setenv("AWE_SERVER", " ".join(urls))
        code, out, err = awe("jobs")
        return code, out, err

    return call


@pytest.mark.parametrize("other", ["standby", "gone", "hanging"])
def test_the_first_server_that_is_ready_is_asked(
    sites: Sites, several: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(leader, "HEALTH_S", 0.5)
    first = sites.serving(503) if other == "standby" else getattr(sites, other)()
    leads = sites.serving(200)
    assert several(first, leads)[0] == 0
    assert sites.asked[leads] == ["/health", "/job"]
    assert sites.asked.get(first, ["/health"]) == ["/health"]
    sites.asked[leads].clear()
    assert several(leads, first)[0] == 0
    assert sites.asked[leads] == ["/health", "/job"]


def test_the_first_is_asked_if_none_is_ready(sites: Sites, several: Callable[..., Any]) -> None:
    first, second = sites.gone(), sites.gone()
    code, _, err = several(first, second)
    assert code == 3
    assert f"cannot reach {first}:" in err


def test_a_list_may_also_be_given_as_an_option(sites: Sites, awe: Callable[..., Any]) -> None:
    first, leads = sites.serving(503), sites.serving(200)
    for words in (("--server", f"{first} {leads}", "jobs"), ("jobs", "--server", f"{first} {leads}")):
        assert awe(*words)[0] == 0
    assert sites.asked[leads] == 2 * ["/health", "/job"]


def test_one_address_is_not_looked_at_first(sites: Sites, several: Callable[..., Any]) -> None:
    only = sites.serving(200)
    assert several(only)[0] == 0
    assert sites.asked[only] == ["/job"]


def test_each_address_has_to_be_one(several: Callable[..., Any]) -> None:
    code, out, err = several("http://127.0.0.1:9", "awe2:8001")
    assert (code, out) == (2, "")
    assert "'awe2:8001' is not the address of a server: it has to begin with http://" in err
