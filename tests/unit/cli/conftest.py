"""`awe` in this process, and a server that keeps nodes and does with jobs as it is told."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from awe_client.cli.main import run

Ran = tuple[int, str, str]
Awe = Callable[..., Ran]


@pytest.fixture
def awe(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Awe:
    """Run `awe` in here; gives its exit code, stdout and stderr."""
    monkeypatch.setenv("AWE_SERVER", "")  # put back afterwards: `--server` in front of a command sets it

    def call(*words: str) -> Ran:
        code = run(list(words))
        return code, *capfd.readouterr()

    return call


class Desk:
    """What the server has and does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.uploads = 0  #: nodes that were made
        self.nodes: list[str] = []  #: those that are still there
        self.jobs: list[dict[str, Any]] = []  #: documents that were accepted
        self.job_refusal: tuple[int, str] | None = None  #: status and code
        self.unconfirmed = 0  #: so many jobs are taken in first and answered with `not_confirmed`
        self.bytes = b"content"  #: of every node
        self.asked = threading.Event()  #: a job has arrived, or an upload that waits
        self.gate: threading.Event | None = None  #: jobs, and uploads that wait, are answered when it is set
        self.refused_after = 10**9  #: uploads that are taken
        self.waiting_after = 10**9  #: uploads that are answered at once


class _Handler(BaseHTTPRequestHandler):
    desk: Desk

    def do_POST(self) -> None:
        desk, body = self.desk, self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/node":
            if desk.uploads == desk.refused_after:
                return self._refuse(507, "no_space")
            if desk.uploads == desk.waiting_after:
                self._wait()
            desk.uploads += 1
            desk.nodes.append(f"node-{desk.uploads}")
            return self._answer({"id": desk.nodes[-1]})
        if desk.unconfirmed or desk.job_refusal is None:
            desk.jobs.append(json.loads(body.split(b"\r\n\r\n", 1)[1].rpartition(b"\r\n--")[0]))
        self._wait()
        if desk.unconfirmed:
            desk.unconfirmed -= 1
            return self._refuse(503, "not_confirmed")
        if desk.job_refusal is not None:
            return self._refuse(*desk.job_refusal)
        return self._answer({"id": "j", "jid": "1"})

    def do_GET(self) -> None:
        if self.path.endswith("?download"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.desk.bytes)))
            self.end_headers()
            self.wfile.write(self.desk.bytes)
        elif self.path.startswith("/node/"):
            size = len(self.desk.bytes)
            self._answer({"id": self.path.split("/")[2], "file": {"name": "../x.txt", "size": size}})
        elif self.path.partition("?")[2] == "":
            self._answer({"id": "j", "jid": "1", "state": "queued"})
        else:
            self._wait()
            self._refuse(404, "job_not_found")

    def do_DELETE(self) -> None:
        self.desk.nodes.remove(self.path.rpartition("/")[2])
        self._answer(None)

    def _wait(self) -> None:
        self.desk.asked.set()
        if self.desk.gate is not None:
            self.desk.gate.wait(30)

    def _answer(self, data: Any) -> None:
        self._send(200, {"status": 200, "data": data, "error": None})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, {"status": status, "data": None, "error": [code], "code": code})

    def _send(self, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A server that listens."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        handler.desk = desk = Desk(f"http://127.0.0.1:{httpd.server_port}")
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield desk
        finally:
            if desk.gate is not None:
                desk.gate.set()
            httpd.shutdown()
            thread.join()
