"""Two servers on one database and one data directory, one leads, one waits; and clients that know both."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from awe_server.store.lease import LEASE_S
from tests.support.env import BIN, Process, ServerProcess
from tests.support.eventually import PATIENCE_S, eventually_sync
from tests.support.fake_client import FakeClient, Reply
from tests.support.invariants import (
    Ledger,
    Tape,
    check_all,
    check_files,
    check_logs,
    check_processes,
    counted,
    read_mongo,
)
from tests.support.lines import line

#: What a take-over may take beside the lease;
MARGIN_S = 5.0
#: and where other tests run at the same time; less than a second lease.
BUSY_MARGIN_S = 10.0
#: A server that was stopped answers nothing at all: who waits longer than this asks the other one.
ANSWER_S = 8.0


def _far(argv: Sequence[str], log: Path, env: dict[str, str], name: str, point: str) -> Process:
    return Process([sys.executable, "-m", "tests.support.far_server", *argv[1:]], log, env, name, point)


class Pair:
    """`far`: neither server sees whether the other's process lives, as on two machines."""

    def __init__(self, home: Path, store: str, *, far: bool = False, flags: Sequence[str] = ()) -> None:
        self.home, self.store, self.data = home, store, home / "data"
        self.ledger, self.tape = Ledger(), Tape()
        self.daemons: list[Process] = []
        self.servers = [self._server(name, far, flags) for name in ("a", "b")]
        self.urls = [f"http://127.0.0.1:{server.port}" for server in self.servers]

    def _server(self, name: str, far: bool, flags: Sequence[str]) -> ServerProcess:
        folder = self.home / name
        folder.mkdir(parents=True)
        server = ServerProcess(folder, self.store, ["--standby", *flags])
        server.data = self.data
        server.before_end = lambda: self.listen(server)
        if far:
            server.spawn = _far
        return server

    def listen(self, server: ServerProcess) -> None:
        """Hear what a leader has to tell; each start of a server may be a life of its own."""
        if is_ready(server):
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
                self.tape.read(http, server.running.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            for server in self.servers:
                self.listen(server)
        for process in (*self.daemons, *(server.process for server in self.servers)):
            if process is not None:
                process.end()
        try:
            if exc is None:
                assert not (broken := self.check()), f"{self.home}:\n" + "\n".join(broken)
        finally:
            for server in self.servers:
                server.close()

    def check(self) -> list[str]:
        """What is wrong with what is stored, after everything was killed: all that was promised is there."""
        documents = read_mongo(self.store)
        processes = [*self.daemons, *(process for server in self.servers for process in server.processes)]
        folders = [self.home, *(server.home for server in self.servers)]
        return list(
            counted([
                *filter(None, (process.crash() for process in processes)),
                *(fact for folder in folders for fact in check_logs(folder)),
                *check_all(documents, self.tape, self.ledger),
                *check_files(self.data, documents),
                *check_processes([self.home]),
            ])
        )  # fmt: skip

    def start(self) -> Self:
        """The first leads, the second waits; if that fails, neither runs."""
        try:
            self.servers[0].start()
            self.stand_by(self.servers[1])
        except BaseException as exc:
            self.__exit__(type(exc), exc, None)
            raise
        return self

    def stand_by(self, server: ServerProcess) -> None:
        """Start a server that waits while the other one leads."""
        process = server.launch()

        def waits() -> bool:
            assert process.returncode is None, process.output()
            return "standing_by" in process.stderr.read_text()

        eventually_sync(waits, within_s=2 * PATIENCE_S, show=process.output)

    @property
    def leader(self) -> ServerProcess:
        """The one that says that it is ready."""
        [leader] = [server for server in self.servers if is_ready(server)]
        return leader

    def other(self, server: ServerProcess) -> ServerProcess:
        return self.servers[1 - self.servers.index(server)]

    def start_daemon(self, *flags: str) -> Process:
        """An awe-client that knows both."""
        number = len(self.daemons) + 1
        known = [word for url in self.urls for word in ("--server", url)]
        argv = [
            str(BIN / "awe-client"), "run", *known, "--slots", "2", "--work",
            str(self.home / f"client-{number}"), *flags,
        ]  # fmt: skip
        daemon = Process(argv, self.home / f"client-{number}-log", {}, "client")
        self.daemons.append(daemon)
        return daemon

    def client(self, name: str, group: str = "default") -> "PairClient":
        """Somebody who knows both."""
        return PairClient(self.urls[0], name=name, group=group, urls=self.urls, ledger_of_pair=self.ledger)


def is_ready(server: ServerProcess) -> bool:
    """Whether it leads, as it says itself."""
    url = f"http://127.0.0.1:{server.port}/health"
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=ANSWER_S, trust_env=False).status_code == 200
    return False


def await_leader(server: ServerProcess, within_s: float = PATIENCE_S) -> None:
    """Wait until it leads."""
    eventually_sync(lambda: is_ready(server), within_s=within_s, show=server.running.output)
    server.await_ready()


@dataclass(slots=True)
class PairClient(FakeClient):
    """Asks the other server whenever one gives no answer, or says that it is not the one."""

    urls: Sequence[str] = ()
    ledger_of_pair: Ledger = field(default_factory=Ledger)
    patience_s: float = 3 * PATIENCE_S
    longest_s: float = 0.0  #: until a request was answered
    _lines: dict[str, httpx.Client] = field(default_factory=dict)

    def call(self, method: str, path: str, **options: Any) -> Any:
        """A request that is repeated, at one server after the other, until one answers."""
        began = time.monotonic()
        while True:
            with contextlib.suppress(httpx.TransportError):
                reply = self.line.request(method, path, **options)
                if reply.status_code != 503:
                    break
            self.url = self.urls[1 - self.urls.index(self.url)]
            assert time.monotonic() - began < self.patience_s, f"{method} {path} was never answered"
            time.sleep(0.05)
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()["data"]

    @property
    def line(self) -> httpx.Client:
        if self.url not in self._lines:
            self._lines[self.url] = line(self.url, self.ledger_of_pair.hooks(), ANSWER_S)
        return self._lines[self.url]

    def submit(self, document: Reply, key: str) -> str:
        """Submit once, however often it has to be sent."""
        return str(self.call("POST", "/job", json=document, headers={"Idempotency-Key": key})["id"])

    def close(self) -> None:
        for opened in self._lines.values():
            opened.close()


class Load:
    """Clients that work, and one that submits, until they are told to stop; `errors` must stay empty."""

    def __init__(
        self, pair: Pair, document: Callable[[int], Reply], clients: int = 8, pause_s: float = 0.3
    ) -> None:
        self.jobs: list[str] = []
        self.errors: list[BaseException] = []
        self.accepted_at: list[float] = []  #: when a result was
        self.exchanged_at: list[float] = []
        self._document = document
        self._pause_s = pause_s  #: between two submits
        self._stop, self._no_more_jobs = threading.Event(), threading.Event()
        self.workers = [pair.client(f"fake {number}") for number in range(clients)]
        self.submitter = pair.client("submitter")
        bodies = [self._submit, *(lambda worker=worker: self._work(worker) for worker in self.workers)]
        self._threads = [threading.Thread(target=self._guarded, args=(body,)) for body in bodies]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        for client in (*self.workers, self.submitter):
            client.close()
        if exc is None:
            assert not self.errors, self.errors

    def end(self) -> None:
        """Nobody works or submits any more."""
        self._no_more_jobs.set()
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def longest_s(self) -> float:
        """The longest that anybody waited for an answer."""
        return max(client.longest_s for client in (*self.workers, self.submitter))

    def first_after(self, times: list[float], at: float, within_s: float = 2 * PATIENCE_S) -> float:
        """Seconds until the first of them after a moment."""

        def seen() -> bool:
            assert not self.errors, self.errors
            return any(time_s > at for time_s in list(times))

        eventually_sync(seen, within_s=within_s, show=lambda: times[-1:])
        return min(time_s for time_s in list(times) if time_s > at) - at

    def work_off(self, within_s: float = 3 * PATIENCE_S) -> None:
        """Submit no more, and wait until all that was submitted is completed."""
        self._no_more_jobs.set()
        self._threads[0].join()
        seen: dict[str, str] = {}

        def all_done() -> bool:
            assert not self.errors, self.errors
            for id in self.jobs:
                if seen.get(id) != "completed":
                    seen[id] = self.submitter.call("GET", f"/job/{id}")["state"]
                    if seen[id] != "completed":
                        return False
            return True

        eventually_sync(all_done, within_s=within_s, every_s=0.2, show=lambda: seen)

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as exc:  # noqa: BLE001 - the test's, which looks at them
            self.errors.append(exc)

    def _submit(self) -> None:
        while not self._no_more_jobs.wait(self._pause_s):
            number = len(self.jobs)
            self.jobs.append(self.submitter.submit(self._document(number), f"job {number}"))

    def _work(self, client: "PairClient") -> None:
        client.register()
        while not self._stop.is_set():
            grants = list(client.held.values()) or client.fetch(2, wait_s=1.0)
            self.exchanged_at.append(time.monotonic())
            if grants:
                time.sleep(0.1)
                reports = [client.done(grant, grant.work.encode()) for grant in grants]
                results = client.exchange(reports=reports)["results"]
                if any(result["result"] == "accepted" for result in results):
                    self.accepted_at.append(time.monotonic())


def within_lease(span_s: float) -> bool:
    """Whether a take-over was as quick as it has to be."""
    is_busy = "PYTEST_XDIST_WORKER" in os.environ
    return span_s < LEASE_S + (BUSY_MARGIN_S if is_busy else MARGIN_S)


@contextlib.contextmanager
def parked(calls: dict[str, Callable[[httpx.Client], httpx.Response]], url: str) -> Iterator[dict[str, Any]]:
    """Send requests to a server that is stopped; what came of each, once the block is over."""
    answers: dict[str, Any] = {}

    def send(name: str, call: Callable[[httpx.Client], httpx.Response]) -> None:
        with httpx.Client(base_url=url, timeout=2 * PATIENCE_S, trust_env=False) as http:
            try:
                answers[name] = call(http)
            except httpx.TransportError as exc:
                answers[name] = exc

    threads = [threading.Thread(target=send, args=one) for one in calls.items()]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join()
