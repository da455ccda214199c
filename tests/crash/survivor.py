"""A person and a client in one, who start a server again when it has died, and repeat what got no answer.

It keeps in mind what it was answered. After each start all of that has to be there, once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.env import AweEnv
from tests.support.eventually import PATIENCE_S, eventually_sync
from tests.support.fake_client import FakeClient, Grant, Reply


@dataclass(slots=True)
class Answered:
    """What the server has promised."""

    uploads: dict[str, bytes] = field(default_factory=dict)  #: content of each node
    jobs: dict[str, str] = field(default_factory=dict)  #: id by idempotency key
    results: Counter[str] = field(default_factory=Counter)  #: accepted, by workunit


class Reviver(FakeClient):
    """Starts the server when it finds it dead; `deaths` counts how often that was."""

    def __init__(self, env: AweEnv) -> None:
        super().__init__(env.server.url)
        self.env = env
        self.deaths = 0
        self.revived: Callable[[], None] = lambda: None  #: called after each start

    def call(self, method: str, path: str, **options: Any) -> Any:
        """`data` of the reply."""
        return self.ask(method, path, **options).json()["data"]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request that is repeated until the server lives long enough to answer it."""
        seen = ""

        def answered() -> bool:
            nonlocal seen, reply
            try:
                reply = self.http.request(method, path, **options)
            except httpx.TransportError as exc:
                seen = repr(exc)
                self._revive()
                return False
            seen = reply.text
            return reply.status_code != 503

        reply = httpx.Response(503)
        eventually_sync(answered, show=lambda: f"{method} {path}: {seen}")
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply

    def _revive(self) -> None:
        """Start the server, if it is dead; it may only have ended a connection that was idle."""
        process = self.env.server.running
        if process.returncode is not None:
            assert process.returncode == -9, process.output()
            self.deaths += 1
            self.env.server.start()
            self.revived()


class Survivor:
    """Submits a job and works it off, whatever happens to the server meanwhile."""

    def __init__(self, env: AweEnv) -> None:
        self.env = env
        self.client = Reviver(env)
        self.client.revived = self.check
        self.answered = Answered()
        self.client.register()

    def __enter__(self) -> "Survivor":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    @property
    def deaths(self) -> int:
        return self.client.deaths

    def upload(self, content: bytes) -> str:
        node = str(self.client.call("POST", "/node", content=content)["id"])
        self.answered.uploads[node] = content
        return node

    def submit(self, document: dict[str, Any], key: str) -> str:
        job = self.client.call("POST", "/job", json=document, headers={"Idempotency-Key": key})
        self.answered.jobs[key] = job["id"]
        return str(job["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.client.call("GET", f"/job/{job_id}")
        return job

    def work_off(self, job_id: str, make: Callable[[Grant], bytes]) -> dict[str, Any]:
        """Do what there is to do until the job is completed; `make`: the output of an attempt."""
        seen: dict[str, Any] = {}

        def completed() -> bool:
            for grant in list(self.client.held.values()) or self.client.fetch(3, wait_s=0.2):
                self.report(self.client.done(grant, make(grant)))
            seen.update(self.job(job_id))
            return bool(seen["state"] == "completed")

        eventually_sync(completed, within_s=2 * PATIENCE_S, every_s=0.0, show=lambda: seen)
        return seen

    def report(self, report: Reply) -> None:
        """Bring a result; it may have been accepted before the server died."""
        deaths = self.deaths
        for result in self.client.exchange(reports=[report])["results"]:
            fine = ("accepted", "duplicate") if self.deaths > deaths else ("accepted",)
            assert result["result"] in fine, result
            self.answered.results[result["work"]] += 1

    def download(self, node: str) -> bytes:
        return self.client.ask("GET", f"/node/{node}?download").content

    def check(self) -> None:
        """All that was answered is there, once."""
        for node, content in self.answered.uploads.items():
            assert self.download(node) == content
        listed = Counter(job["id"] for job in self.client.call("GET", "/job?limit=1000"))
        assert set(self.answered.jobs.values()) <= set(listed)
        assert set(listed.values()) <= {1}
        for work, times in self.answered.results.items():
            assert times == 1, f"{work} was accepted {times} times"
            assert self.client.call("GET", f"/work/{work}")["state"] == "completed", work
