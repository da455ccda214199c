"""Real server and client processes on loopback, for crash and end-to-end tests."""

import contextlib
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support import tally
from tests.support.eventually import PATIENCE_S, eventually_sync
from tests.support.invariants import (
    Documents,
    Ledger,
    Someone,
    Tape,
    check_all,
    check_files,
    check_given_back,
    check_logs,
    check_processes,
    check_temporary,
    counted,
    read_mongo,
    read_sqlite,
)
from tests.support.memory import tree
from tests.support.ports import HeldPort
from tests.support.warm import WarmAwe

BIN = Path(sys.executable).parent
LISTENING = "awe-server listening on "


class Process:
    """One child process; its stdout and stderr go to files, shown when a wait for it fails.

    Kills and stalls are counted (tally.py) under its `name`; also when it kills itself at `fault_point`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        env: dict[str, str],
        name: str = "process",
        fault_point: str = "",
    ) -> None:
        self.name, self.fault_point = name, fault_point
        self._is_counted = False
        self._was_killed = False  #: by us
        self._is_known = False  #: the test has asked how it ended
        self.stdout, self.stderr = log.with_suffix(".out"), log.with_suffix(".err")
        self._child = self._start(argv, {**os.environ, **env})
        self.pid = self._child.pid

    def _start(self, argv: Sequence[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            return subprocess.Popen(argv, stdout=out, stderr=err, env=env)

    @property
    def returncode(self) -> int | None:
        return self._noted(self._child.poll())

    def kill(self, kind: str = "") -> None:
        """As a power cut would: SIGKILL, then wait. `kind` is counted; `kill NAME` if it is not given."""
        assert not (crash := self.crash()), crash
        if self.returncode is None:
            self._is_counted = True
            tally.count(kind or f"kill {self.name}")
            self._end()

    def crash(self) -> str:
        """What is wrong with how it ended, if it did that by itself and nobody waited for it."""
        code = self.returncode
        is_ours = code == -signal.SIGKILL and (self._was_killed or self.fault_point)
        if not code or is_ours or self._is_known:
            return ""
        return f"{self.name} {self.pid} ended with {code}, by itself: {self.output()[-2000:]}"

    def stop(self, code: int = 0, within_s: float = PATIENCE_S) -> None:
        """SIGTERM, then wait; fails unless it ends with that exit code."""
        self._child.send_signal(signal.SIGTERM)
        try:
            ended = self.wait(within_s)
        except subprocess.TimeoutExpired as exc:
            words = f"{self.name} {self.pid} was told to stop and runs after {within_s} s"
            raise AssertionError(f"{words}: {self.output()[-2000:]}") from exc
        assert ended == code, (
            f"{self.name} {self.pid} was stopped and ended with {ended}, not {code}: {self.output()[-2000:]}"
        )

    def wait(self, within_s: float = PATIENCE_S) -> int:
        code = self._child.wait(within_s)
        self._noted(code)
        self._is_known = True
        return code

    def pause(self) -> None:
        tally.count(f"stall {self.name}")
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def output(self) -> str:
        return self.stdout.read_text() + self.stderr.read_text()

    def end(self) -> None:
        """Whatever its state: not running afterwards."""
        if self.returncode is None:
            self._is_counted = True  # the end of a test, not a part of it
            self._end()

    def _end(self) -> None:
        self._was_killed = True
        self._child.kill()
        self._child.wait(10)

    def _noted(self, code: int | None) -> int | None:
        """Count it, once, if it was killed by itself."""
        if code == -signal.SIGKILL and not self._is_counted:
            self._is_counted = True
            tally.count(f"kill {self.name}, {self.fault_point or 'by somebody'}")
        return code


def _work_of(argv: Sequence[str]) -> Path:
    """The work directory of a client: the last that is named counts."""
    last = max(at for at, word in enumerate(argv) if word == "--work")
    return Path(argv[last + 1])


class ServerProcess:
    """A server that can be killed and started again on the same data and port."""

    def __init__(
        self, home: Path, store: str = "", flags: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.home, self.data = home, home / "server"
        self._held = HeldPort()
        self.port = self._held.number
        self.store, self.flags, self._env = store, list(flags), dict(env or {})
        self._fault = home / "fault"
        self.starts = 0
        self.spawn: Callable[[Sequence[str], Path, dict[str, str], str, str], Process] = Process
        self.was_killed = False  #: before its last start
        self.before_end: Callable[[], None] = lambda: None  #: called while it still answers
        self.process: Process | None = None
        self.processes: list[Process] = []  #: all that were started
        self.ready_s = math.inf  #: when the last one that was ready was started
        self.url = ""

    def command(self, data: Path | None = None, port: int | None = None) -> list[str]:
        wanted = str(self.port if port is None else port)
        argv = [str(BIN / "awe-server"), "serve", "--port", wanted, "--data", str(data or self.data)]
        return [*argv, *(["--store", self.store] if self.store else []), *self.flags]

    def launch(self, **env: str) -> Process:
        """Start the process without waiting for it."""
        self.starts += 1
        self.was_killed |= self.process is not None and self.process.returncode != 0
        self._fault.unlink(missing_ok=True)
        env = {"AWE_FAULT_POINT": f"@{self._fault}", **self._env, **env}
        point = env["AWE_FAULT_POINT"] if not env["AWE_FAULT_POINT"].startswith("@") else ""
        self.ready_s, self._launched_s = math.inf, time.time()
        self.process = self.spawn(self.command(), self.home / f"server-{self.starts}", env, "server", point)
        self.processes.append(self.process)
        return self.process

    def start(self, **env: str) -> Self:
        """Start and wait until it is ready."""
        self.launch(**env)
        return self.await_ready()

    def await_ready(self, within_s: float = PATIENCE_S) -> Self:
        """Wait until it says that it listens."""
        process = self.running
        eventually_sync(
            lambda: LISTENING in process.stdout.read_text() or process.returncode is not None,
            within_s=within_s,
            show=process.output,
        )
        if process.returncode is not None:
            raise AssertionError(f"the server ended with {process.returncode}: {process.output()}")
        self.ready_s = self._launched_s
        self.url = process.stdout.read_text().partition(LISTENING)[2].split()[0]
        return self

    @property
    def running(self) -> Process:
        assert self.process is not None, "not started"
        return self.process

    def kill(self, kind: str = "") -> None:
        """kill -9, counted as that kind."""
        self.before_end()
        self.running.kill(kind)

    def kill_at(self, point: str) -> None:
        """Let it die at before-commit, after-commit or before-reply, from now on."""
        self.before_end()
        temporary = self._fault.with_suffix(".new")
        temporary.write_text(point)
        temporary.rename(self._fault)
        self.running.fault_point = point.rpartition(" ")[2]

    def stop(self, code: int = 0) -> None:
        """As `Process.stop`."""
        self.before_end()
        self.running.stop(code)

    def documents(self) -> Documents:
        """What is stored, read past the server, which must not run."""
        if self.store.startswith("mongodb"):
            return read_mongo(self.store)
        return read_sqlite(self.data)

    def restart(self) -> None:
        """kill -9 and start again."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Not running afterwards, and the port is anybody's."""
        try:
            if self.process is not None:
                self.process.end()
        finally:
            self._held.close()


class AweEnv:
    """One server, any number of clients, all gone at the end.

    `server_env` and `client_env` are added to the environment of the server and of each client.

    When nothing went wrong, the end is a power cut, and then the invariants of invariants.py must hold, or
    the test fails. A test that breaks things for good says so in `unchecked`.
    """

    def __init__(
        self,
        home: Path,
        *,
        store: str = "",
        flags: Sequence[str] = (),
        server_env: Mapping[str, str] | None = None,
        client_env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.server = ServerProcess(home, store, flags, server_env)
        self.client_env = dict(client_env or {})
        self.clients: list[Process] = []
        self.works: dict[Path, Process] = {}  #: work directories, each with the last client that had it
        self.ledger, self.tape = Ledger.begin(f"http://127.0.0.1:{self.server.port}"), Tape()
        self.unchecked = ""  #: why this test leaves what no other may
        self.clock_steps = False  #: the wall clock was moved, times say nothing
        self.server.before_end = self.listen
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()  # who kills in another thread listens, too
        self._awe: WarmAwe | None = None
        self._is_temporary = False

    @classmethod
    def temporary(cls, **options: Any) -> Self:
        """In a folder of its own, removed when nothing went wrong."""
        env = cls(Path(tempfile.mkdtemp(prefix="awe-test-")), **options)
        env._is_temporary = True
        return env

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        broken: Sequence[str] = []
        try:
            if exc is None and not self.unchecked and self.server.starts:
                broken = self.check()
        finally:
            self.close()
        assert not broken, f"{self.home}:\n" + "\n".join(broken)
        if self._is_temporary and exc is None:
            shutil.rmtree(self.home, ignore_errors=True)

    def check(self) -> Sequence[str]:
        """Kill everything, then see that all that was promised is there and nothing is left."""
        self.listen()
        server = self.server.running
        if server.returncode is not None:
            self.tape.gap()
        broken = [crash for process in (*self.server.processes, *self.clients) if (crash := process.crash())]
        broken += check_logs(self.home)
        was_stopped = server.returncode == 0 and not self.server.was_killed
        running = [process for process in (*self.clients, server) if process.returncode is None]
        started = Someone.of(pid for process in running for pid in tree(process.pid))
        for process in running:
            process.end()
        try:
            documents = self.server.documents()
        except sqlite3.Error as exc:
            return counted([*broken, f"the store cannot be read: {exc}"])
        broken += [
            *check_all(documents, self.tape, self.ledger, clock_steps=self.clock_steps),
            *check_files(self.server.data, documents),
            *self._check_clients(documents),
            *check_processes([self.home, *self.works], started),
        ]
        if was_stopped:  # what a kill cuts off is swept after a while
            broken += [*check_temporary(self.server.data), *check_given_back(documents)]
        elif not self.clock_steps:  # what is older was there when the server started, which clears up
            broken += check_temporary(self.server.data / "nodes", older_than_s=self.server.ready_s)
        return counted(broken)

    def forget(self) -> None:
        """Of what was promised and told so far a test is going to destroy some; what comes later counts."""
        self.ledger.forget()
        self.tape = Tape()

    def _check_clients(self, documents: Documents) -> Iterator[str]:
        """(6): who ended in good order leaves nothing of what was completed; of failures it may be asked."""
        done = {f"{u['id']}.{u['attempt']}" for u in documents["workunits"] if u["state"] == "completed"}
        for work, client in self.works.items():
            if client.returncode == 0:
                left = [path for path in (work / "attempts").glob("*/*/*/*") if path.name in done]
                yield from (f"(6) {path} is left" for path in left)

    def listen(self) -> None:
        """Hear what the server has to tell, while it runs."""
        if self.server.process is not None and self.server.process.returncode is None and self.server.url:
            self.tape.read(self.http, self.server.starts)

    def close(self) -> None:
        """All of it, whatever goes wrong with a part."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.server.close)
            for client in self.clients:
                stack.callback(client.end)
            if self._awe is not None:
                stack.callback(self._awe.close)
            if self._http is not None:
                stack.callback(self._http.close)

    @property
    def http(self) -> httpx.Client:
        """Talks to the server; survives its restarts."""
        with self._opening:
            if self._http is None:
                self._http = httpx.Client(
                    base_url=self.server.url,
                    timeout=PATIENCE_S,
                    trust_env=False,
                    event_hooks=self.ledger.hooks(),
                )
            return self._http

    def start_client(
        self,
        *flags: str,
        slots: int = 2,
        group: str = "default",
        apps: str = "*",
        server: str = "",
        under: Sequence[str] = (),
    ) -> Process:
        """Start an awe-client; `server` is its way to the server, if that is not the direct one.

        `under`: a command that runs it.
        """
        number = len(self.clients) + 1
        work = self.home / f"client-{number}"
        argv = [
            *under, str(BIN / "awe-client"), "run", "--server", server or self.server.url,
            "--group", group, "--apps", apps, "--slots", str(slots), "--work", str(work), *flags,
        ]  # fmt: skip
        client = Process(argv, self.home / f"client-{number}-log", self.client_env, "client")
        self.clients.append(client)
        self.works[_work_of(argv)] = client
        return client

    def awe(self, *arguments: str, within_s: float = 2 * PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run the awe command against the server."""
        if self._awe is None:
            self._awe = WarmAwe()
        return self._awe(arguments, {**os.environ, "AWE_SERVER": self.server.url}, within_s)

    def check_store(self) -> subprocess.CompletedProcess[str]:
        """What `awe-server check` says of a server that was stopped."""
        command = [BIN / "awe-server", "check", "--data", str(self.server.data)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def data(self, method: str, path: str, **options: Any) -> Any:
        """`data` of a reply; fails with the server's words if it is not a success."""
        reply = self.http.request(method, path, **options)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()["data"]

    def submit(self, document: dict[str, Any]) -> str:
        return str(self.data("POST", "/job", json=document)["id"])

    def events(self) -> list[dict[str, Any]]:
        """All that the server still knows to tell."""
        found: list[dict[str, Any]] = []
        while more := self.data("GET", f"/events?since={found[-1]['seq'] if found else 0}"):
            found += more
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.data("GET", f"/job/{job_id}")
        return job

    def wait_for(
        self, job_id: str, state: str = "completed", within_s: float = 2 * PATIENCE_S
    ) -> dict[str, Any]:
        """Wait until the job is in that state."""
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.update(self.job(job_id))
            return bool(seen["state"] == state)

        eventually_sync(reached, within_s=within_s, every_s=0.05, show=lambda: seen)
        return seen
