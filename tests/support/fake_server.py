"""A server for client tests: it speaks the native wire, keeps everything in dicts, and misbehaves on request.

It runs on the test's own event loop. Tests add tasks and nodes, wait for results, and set the knobs below:
`drop_replies`, `refuse`, `upload_status`, `supersede` and so on. What clients did is in `exchanges`,
`profiles`, `uploads`, `logs`.
"""

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.eventually import PATIENCE_S
from tests.support.ports import HeldPort

Key = tuple[str, int]


@dataclass
class Unit:
    """One workunit as the fake keeps it."""

    task: dict[str, Any]
    rank: int
    extra: dict[str, Any]
    attempt: int = 0
    token: str = ""
    client: str = ""

    @property
    def id(self) -> str:
        return f"{self.task['id']}_{self.rank}"


@dataclass
class FakeServer:
    """State, knobs and routes."""

    lease_s: float = 60.0
    drop_replies: Callable[[int], bool] = lambda count: False  #: of exchanges, by how many there were
    refuse: Response | None = None  #: answer to everything while set
    black_hole: bool = False  #: accept and never answer while set
    cut_downloads_after: list[int] = field(
        default_factory=list
    )  #: bytes after which downloads are cut, in turn
    download_delay_s: float = 0.0  #: between pieces of a download
    upload_answers: list[Response | None] = field(default_factory=list)  #: for the next uploads, in turn
    poison: Response | None = None  #: answer to every exchange with a report that says "poison"
    suspended: bool = False
    stop: bool = False
    ends_superseded: bool = True  #: False: an old request waits on beside newer ones
    replay: bool = False  #: every reply's work is also in the next reply
    follow: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.attributes: dict[str, Any] = {}
        self.documents: dict[str, bytes] = {}  #: what is answered in place of a node's document
        self.downloads = self.most_downloads = 0  #: at once
        self.queue: deque[Unit] = deque()
        self.leased: dict[str, Unit] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.reports: list[dict[str, Any]] = []
        self.uploads: dict[tuple[str, str, int], bytes] = {}
        self.coming: dict[tuple[str, str, int], bytearray] = {}  #: uploads that have not ended
        self.kept: dict[Key, bytes] = {}  #: what failed attempts left
        self.logs: dict[tuple[str, int, str], bytes] = {}
        self.requests: list[tuple[float, str, str, dict[str, str]]] = []
        self.exchanges: list[dict[str, Any]] = []
        self.profiles: list[dict[str, Any]] = []
        self.discards: list[Key] = []
        self.grants: dict[int, list[dict[str, Any]]] = {}
        self.incarnation = ""
        self.last_request = 0
        self.changed = asyncio.Condition()
        self.job_id = str(uuid.uuid4())
        self._held = HeldPort()
        self.url = f"http://127.0.0.1:{self._held.number}"
        self._server: uvicorn.Server | None = None
        self._served: asyncio.Task[None] | None = None

    # --- for tests -------------------------------------------------------------------------------

    def add_node(self, data: bytes, attributes: Any = None) -> str:
        """Store bytes; returns the node's id."""
        node = str(uuid.uuid4())
        self.nodes[node] = data
        self.attributes[node] = attributes
        return node

    def input(self, name: str, data: bytes, **more: Any) -> dict[str, Any]:
        """An input that is a new node."""
        node = self.add_node(data)
        return {
            "filename": name,
            "node": node,
            "url": f"/node/{node}?download",
            "size": len(data),
            "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
            **more,
        }

    def output(self, name: str, **more: Any) -> dict[str, Any]:
        """An output with a new empty node."""
        return {"filename": name, "node": str(uuid.uuid4()), "url": "", **more}

    def gets(self, entry: dict[str, Any]) -> int:
        """How often an input's node was asked for."""
        paths = [path for _, method, path, _ in self.requests if method == "GET"]
        return paths.count(f"/node/{entry['node']}")

    async def add_task(
        self,
        name: str = "true",
        args: str = "",
        *,
        ranks: int = 1,
        grants: list[dict[str, Any]] | None = None,
        environ: dict[str, str] | None = None,
        private: dict[str, str] | None = None,
        script: list[str] | None = None,
        cmd: dict[str, Any] | None = None,
        **more: Any,
    ) -> list[str]:
        """Queue a task of some ranks; returns the workunits' ids.

        `script` is a shell script, run by sh -c.
        """
        task_name = more.get("task_name") or f"t{len(self.requests)}-{secrets.token_hex(3)}"
        command: dict[str, Any] = {"name": name, "args": args, "args_array": [], "cmd_script": None}
        command["environ"] = {"public": environ or {}}
        if script is not None:
            command |= {"name": "sh", "args": "", "args_array": ["-c", "\n".join(script)]}
        task = {
            "id": f"{self.job_id}_{task_name}",
            "jobid": self.job_id,
            "task_name": task_name,
            "totalwork": ranks,
            "info": {},
            "cmd": command | (cmd or {}),
            "private_env": private or {},
            "inputs": [],
            "outputs": [],
            "predata": [],
            "part_inputs": [],
            "index": None,
            "userattr": {},
            "resources": {"cores": 1, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0},
            "time_limit_s": 0.0,
            **more,
        }
        numbers = [0] if ranks == 1 and not grants else range(1, ranks + 1)
        units = [Unit(task, rank, (grants or [{}] * ranks)[i]) for i, rank in enumerate(numbers)]
        self.queue.extend(units)
        await self.wake()
        return [unit.id for unit in units]

    async def result(self, work: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for the accepted report of a workunit."""
        await self.until(lambda: work in self.results, timeout_s)
        return self.results[work]

    async def until(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait for a condition on this server's state."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(condition)

    async def wake(self) -> None:
        """Tell waiters and waiting exchanges that something changed."""
        async with self.changed:
            self.changed.notify_all()

    async def discard(self, work: str) -> None:
        """Take a workunit away from its client."""
        unit = self.leased.pop(work)
        self.discards.append((work, unit.attempt))
        await self.wake()

    def requeue(self, work: str) -> None:
        """Take a workunit back and queue it again, as after a lost lease."""
        unit = self.leased.pop(work)
        self.queue.append(unit)

    def lose_memory(self) -> None:
        """Forget registrations, as a server without a store would after a restart."""
        self.incarnation = ""
        self.last_request = 0

    # --- running ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; on the same port again after `shut`."""
        listener = socket.create_server(("127.0.0.1", self._held.number))
        config = uvicorn.Config(
            self._app(), lifespan="off", log_level="error", ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        self._served = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        while not self._server.started:  # noqa: ASYNC110 — uvicorn has no event for it
            await asyncio.sleep(0.005)

    async def shut(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None and self._served is not None:
            self._server.should_exit = self._server.force_exit = True
            await self.wake()
            await self._served
            self._server = None

    async def close(self) -> None:
        """Shut for good."""
        await self.shut()
        self._held.close()

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/client", self._guard(self._register), methods=["POST"]),
                Route("/client/{client}/exchange", self._guard(self._exchange), methods=["POST"]),
                Route("/node", self._guard(self._keep), methods=["POST"]),
                Route("/node/{node}", self._guard(self._get_node), methods=["GET"]),
                Route("/node/{node}", self._guard(self._put_node), methods=["PUT"]),
                Route("/work/{work:path}/log/{name}", self._guard(self._put_log), methods=["PUT"]),
                Route("/job", self._guard(self._submit), methods=["POST"]),
                Route("/job/{job}", self._guard(self._get_job), methods=["GET"]),
            ]
        )

    def _guard(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            now = asyncio.get_running_loop().time()
            self.requests.append((now, request.method, request.url.path, dict(request.headers)))
            while self.black_hole:  # noqa: ASYNC110 — a knob that tests just set
                await asyncio.sleep(0.02)
            if self.refuse is not None:
                return self.refuse
            try:
                answer: Response = await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)
            return answer

        return guarded

    # --- clients ---------------------------------------------------------------------------------

    async def _register(self, request: Request) -> Response:
        profile = await request.json()
        self.profiles.append(profile)
        if profile["incarnation"] != self.incarnation:
            kept = {tuple(key) for key in profile.get("spooled", ())}
            for unit in list(self.leased.values()):
                if (unit.id, unit.attempt) not in kept:
                    self.requeue(unit.id)
            self.last_request = 0
        self.incarnation = profile["incarnation"]
        await self.wake()
        return ok({**profile, "lease_s": self.lease_s})

    async def _exchange(self, request: Request) -> Response:
        x = await request.json()
        self.exchanges.append(x)
        count = len(self.exchanges)
        if not self.incarnation:
            return refusal(404, "client_not_found", "Client not found")
        if x["incarnation"] != self.incarnation or x["request_id"] < self.last_request:
            return refusal(409, "stale_exchange", "stale")
        if self.poison is not None and "poison" in json.dumps(x["reports"]):
            return self.poison
        repeated = x["request_id"] == self.last_request
        self.last_request = x["request_id"]
        await self.wake()
        reply = self._settle(x, repeated)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + x["wait_s"]
        while not (reply["results"] or reply["work"] or reply["discard"] or reply["stop"]):
            left = give_up - loop.time()
            if left <= 0 or (self._server is not None and self._server.should_exit):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left), self.changed:
                    await self.changed.wait()
            if self.last_request != x["request_id"]:
                reply["superseded"] = True
                if self.ends_superseded:
                    break
                continue
            reply |= self._settle({**x, "reports": []}, True)
        if self.drop_replies(count):
            # Close the connection without an answer.
            request.scope["extensions"].get("", None)
            raise RuntimeError("reply dropped on purpose")
        return ok(reply)

    def _settle(self, x: dict[str, Any], repeated: bool) -> dict[str, Any]:
        held = {(work, attempt) for work, attempt in x["holds"]}
        results = [self._report(report) for report in x["reports"]]
        reported = {(r["work"], r["attempt"]) for r in results}
        discard = [key for key in self.discards if key in held]
        for key in held:
            unit = self.leased.get(key[0])
            if (unit is None or unit.attempt != key[1]) and key not in reported and key not in discard:
                discard.append(key)
        grants = self.grants.get(x["request_id"], []) if repeated else []
        known = held | {(f"{g['task']}_{g['rank']}", g["attempt"]) for g in grants}
        for unit in list(self.leased.values()):
            if (unit.id, unit.attempt) not in known:
                self.requeue(unit.id)
        work = list(grants)
        while not grants and self.queue and len(work) < x["want"] and not self.suspended:
            work.append(self._grant(self.queue.popleft()))
        self.grants[x["request_id"]] = work
        if self.replay:
            work = work + [g for old in self.grants.values() for g in old if g not in work]
        return {
            "lease_s": self.lease_s,
            "results": results,
            "tasks": {g["task"]: self._tasks[g["task"]] for g in work},
            "work": work,
            "discard": discard,
            "suspended": self.suspended,
            **({"suspend_reason": "manually suspended"} if self.suspended else {}),
            "stop": self.stop,
            "superseded": False,
            "logs": self.follow,
        }

    _tasks: dict[str, dict[str, Any]] = field(default_factory=dict)

    def _grant(self, unit: Unit) -> dict[str, Any]:
        unit.attempt += 1
        unit.token = secrets.token_hex(8)
        self.leased[unit.id] = unit
        self._tasks[unit.task["id"]] = unit.task
        head = {"task": unit.task["id"], "rank": unit.rank, "attempt": unit.attempt, "token": unit.token}
        return head | unit.extra

    def _report(self, report: dict[str, Any]) -> dict[str, Any]:
        work, attempt = report["work"], report["attempt"]
        answer = {"work": work, "attempt": attempt}
        unit = self.leased.get(work)
        self.reports.append(report)
        if unit is not None and unit.attempt == attempt and unit.token == report["token"]:
            del self.leased[work]
            self.results[work] = report
            return {**answer, "result": "accepted"}
        same = self.results.get(work, {}).get("attempt") == attempt
        return {**answer, "result": "duplicate" if same else "lease_lost"}

    # --- data ------------------------------------------------------------------------------------

    async def _get_node(self, request: Request) -> Response:
        node, query = request.path_params["node"], request.query_params
        if "unfinished" in query:
            key = (node, query["work"], int(query["attempt"]))
            self.coming[key] = bytearray(self.coming.get(key, b""))  # what still comes of it counts no more
            return ok({"offset": len(self.coming[key])})
        data = self.nodes.get(node)
        if data is None:
            return refusal(404, "node_not_found", f"Node not found: {node}")
        if "download" not in request.query_params:
            if node in self.documents:
                return Response(self.documents[node])
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            file = {"name": "x", "size": len(data), "checksum": {"md5": md5}}
            return ok({"id": node, "file": file, "attributes": self.attributes.get(node)})
        first, last, status = 0, len(data), 200
        header = request.headers.get("range", "")
        if header:
            a, _, b = header.removeprefix("bytes=").partition("-")
            first, last, status = int(a), (int(b) + 1 if b else len(data)), 206
        piece = data[first:last]
        headers = {"Content-Length": str(len(piece)), "ETag": f'"{node}"'}
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(data)}"
        cut = self.cut_downloads_after.pop(0) if self.cut_downloads_after else None

        async def body() -> AsyncIterator[bytes]:
            step = 65536
            is_open = True
            self.downloads += 1
            self.most_downloads = max(self.most_downloads, self.downloads)
            try:
                for at in range(0, len(piece), step):
                    if cut is not None and at >= cut:
                        raise RuntimeError("cut on purpose")
                    if at:
                        await asyncio.sleep(self.download_delay_s)
                    if at + step >= len(piece):  # who has the last piece may begin the next download
                        is_open = False
                        self.downloads -= 1
                    yield piece[at : at + step]
            finally:
                self.downloads -= is_open

        return StreamingResponse(body(), status_code=status, headers=headers)

    async def _put_node(self, request: Request) -> Response:
        node, query = request.path_params["node"], request.query_params
        key = (node, query.get("work", ""), int(query.get("attempt", 0)))
        data = self.coming.get(key, bytearray()) if query.get("offset") else bytearray()
        if int(query.get("offset", 0)) != len(data):
            return refusal(409, "conflict", f"{len(data)} bytes are here")
        self.coming[key] = data
        async for chunk in request.stream():
            data += chunk
        self.coming.pop(key, None)
        answer = self.upload_answers.pop(0) if self.upload_answers else None
        if answer is not None:
            return answer
        if "work" not in query:
            return refusal(403, "forbidden", "only the holder may write it")
        unit = self.leased.get(query["work"])
        if unit is None or unit.token != request.headers.get("awe-lease"):
            return refusal(409, "lease_lost", "lease lost")
        if request.headers["content-type"].startswith("multipart/"):
            self.attributes[node] = bytes(data)
            return ok({"id": node})
        self.uploads[key] = bytes(data)
        await self.wake()
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return ok({"size": len(data), "md5": md5, "sha256": hashlib.sha256(data).hexdigest()})

    async def _keep(self, request: Request) -> Response:
        query = request.query_params
        self.kept[query["work"], int(query["attempt"])] = await request.body()
        return ok({"id": str(uuid.uuid4())})

    async def _put_log(self, request: Request) -> Response:
        work, name, query = request.path_params["work"], request.path_params["name"], request.query_params
        data = await request.body()
        unit = self.leased.get(work)
        if unit is None or unit.token != request.headers.get("awe-lease"):
            return refusal(409, "lease_lost", "lease lost")
        key = (work, int(query["attempt"]), name)
        self.logs[key] = self.logs.get(key, b"")[: int(query["offset"])] + data
        await self.wake()
        return ok({"size": len(self.logs[key])})

    # --- jobs, for the SDK's tests ---------------------------------------------------------------

    async def _submit(self, request: Request) -> Response:
        form = await request.body()
        return ok({"id": self.job_id, "key": request.headers["idempotency-key"], "bytes": len(form)})

    async def _get_job(self, request: Request) -> Response:
        return refusal(404, "job_not_found", f"job not found:{request.path_params['job']}")


def ok(data: Any) -> Response:
    """A reply that worked."""
    return JSONResponse({"status": 200, "data": data, "error": None})


def refusal(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> Response:
    """A reply that did not."""
    body = {"status": status, "data": None, "error": [text], "code": code}
    return Response(json.dumps(body), status_code=status, media_type="application/json", headers=headers)
