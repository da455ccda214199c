"""A client made of plain HTTP calls: does what the wire contract says and computes nothing."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.eventually import PATIENCE_S
from tests.support.invariants import Ledger
from tests.support.lines import line

Reply = dict[str, Any]


@dataclass(slots=True)
class Grant:
    """One attempt this client holds."""

    work: str
    attempt: int
    token: str
    rank: int
    task: dict[str, Any]
    part: str = ""
    pieces: list[list[int]] = field(default_factory=list)

    @property
    def hold(self) -> list[Any]:
        return [self.work, self.attempt]


@dataclass(slots=True)
class FakeClient:
    """Holds work, reports it, and repeats whatever got no answer, as the contract wants.

    Its line is closed at the end of the test (lines.py), if nobody does it before.
    """

    url: str
    name: str = "fake"
    group: str = "default"
    apps: tuple[str, ...] = ("*",)
    cores: int = 64
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    request_id: int = 0
    held: dict[str, Grant] = field(default_factory=dict)
    patience_s: float = 2 * PATIENCE_S
    lost: int = 0  #: results the server did not want
    ledger: Ledger | None = None  #: what it was promised; if not given, that of its address
    _http: httpx.Client | None = None

    @property
    def http(self) -> httpx.Client:
        if self._http is None:
            self.ledger = self.ledger or Ledger.of(self.url)
            self._http = line(self.url, self.ledger.hooks(), 70.0)
        return self._http

    def call(self, method: str, path: str, **options: Any) -> Any:
        """A request that is repeated while the server is down or busy; `data` of the reply."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                reply = self.http.request(method, path, **options)
                if reply.status_code != 503:
                    break
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            assert time.monotonic() < deadline, f"{method} {path} was never answered"
            time.sleep(0.02)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()["data"]

    def register(self) -> Reply:
        profile = {
            "id": self.id, "name": self.name, "group": self.group, "apps": list(self.apps),
            "cores": self.cores, "memory_bytes": 2**40, "disk_bytes": 2**40, "native": True,
            "incarnation": self.incarnation,
        }  # fmt: skip
        data: Reply = self.call("POST", "/client", json=profile)
        self.id = data["id"]
        return data

    def exchange(self, want: int = 0, reports: list[Reply] | None = None, wait_s: float = 0.0) -> Reply:
        """One exchange, repeated under the same number until it is answered."""
        self.request_id += 1
        body = {
            "incarnation": self.incarnation, "request_id": self.request_id, "want": want, "wait_s": wait_s,
            "holds": [grant.hold for grant in self.held.values()], "reports": reports or [],
            "free": {"cores": self.cores, "memory_bytes": 2**40, "disk_bytes": 2**40, "gpus": 0},
        }  # fmt: skip
        data: Reply = self.call("POST", f"/client/{self.id}/exchange", json=body)
        for result in data["results"]:
            self.lost += result["result"] in ("lease_lost", "unknown")
            self.held.pop(result["work"], None)
        for work, _ in data["discard"]:
            self.held.pop(work, None)
        for item in data["work"]:
            task = data["tasks"][item["task"]]
            work = f"{item['task']}_{item['rank']}"
            self.held[work] = Grant(
                work, item["attempt"], item["token"], item["rank"], task,
                item.get("part", ""), item.get("pieces", []),
            )  # fmt: skip
        return data

    def fetch(self, want: int = 1, wait_s: float = 5.0) -> list[Grant]:
        """Ask for work; what is new."""
        before = set(self.held)
        self.exchange(want, wait_s=wait_s)
        return [grant for work, grant in self.held.items() if work not in before]

    def push(self, grant: Grant, content: bytes) -> list[Reply]:
        """Upload the same content as each output of the attempt."""
        made = []
        for io in grant.task["outputs"]:
            fact = self.call(
                "PUT", f"/node/{io['node']}?work={grant.work}&attempt={grant.attempt}",
                content=content,
                headers={"Awe-Lease": grant.token, "Content-Type": "application/octet-stream"},
            )  # fmt: skip
            made.append({"filename": io["filename"], "size": fact["size"], "md5": fact["md5"]})
        return made

    def done(self, grant: Grant, content: bytes = b"") -> Reply:
        """The report of a success, with outputs pushed first."""
        return {
            "work": grant.work, "attempt": grant.attempt, "token": grant.token, "outcome": "done",
            "exit_code": 0, "computetime_s": 0.1, "outputs": self.push(grant, content),
        }  # fmt: skip

    def failed(self, grant: Grant, kind: str = "command", exit_code: int = 1) -> Reply:
        return {
            "work": grant.work, "attempt": grant.attempt, "token": grant.token, "outcome": "failed",
            "kind": kind, "exit_code": exit_code, "message": "as the test wants it",
        }  # fmt: skip

    def work_off(self, content: bytes = b"", want: int = 8) -> int:
        """Fetch and report until nothing comes any more; how many were done."""
        count = 0
        while grants := (list(self.held.values()) or self.fetch(want, wait_s=0.3)):
            self.exchange(reports=[self.done(grant, content) for grant in grants])
            count += len(grants)
        return count

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
