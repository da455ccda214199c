"""The SDK: errors by code, repeats, transfers, and the blocking face."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_client import api
from awe_client.api import (
    AsyncAweClient,
    AweClient,
    DownloadCorrupt,
    FileBody,
    RetryPolicy,
)
from awe_client.sdk.blocking import Blocking, BlockingIterator
from awe_client.sdk.transport import cause_of
from shared_models.errors import (
    AweError,
    BadRequest,
    InvalidDocument,
    JobNotFound,
    NodeNotFound,
    NotAnAweServer,
    ServerUnreachable,
    StoreUnavailable,
    TooLarge,
    Unavailable,
    error_classes,
)
from tests.support.fake_server import FakeServer

pytestmark = pytest.mark.anyio

Handler = Callable[[httpx.Request], httpx.Response]
FAST = RetryPolicy(attempts=3, base_s=0.001, cap_s=0.002)


def a_client(handler: Handler, **more: Any) -> AsyncAweClient:
    http = httpx.AsyncClient(transport=httpx.MockTransport(handler))
    return AsyncAweClient("http://awe.test", http=http, retry=FAST, **more)


def envelope(data: Any = None, *, status: int = 200, error: Any = None, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"status": status, "data": data, "error": error, **more})


def no_connection(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused") from ConnectionRefusedError(111, "Connection refused")


# --- errors --------------------------------------------------------------------------------------


def shared_codes() -> list[str]:
    """Codes whose classes both sides know; other rooms add their own below them."""
    shared = (code for code, cls in error_classes().items() if cls.__module__ == "shared_models.errors")
    return sorted(set(shared) - {"invalid_document", "not_an_awe_server", "server_unreachable"})


@pytest.mark.parametrize("code", shared_codes())
async def test_a_code_becomes_its_class_again(code: str) -> None:
    cls = error_classes()[code]
    async with a_client(lambda _: envelope(status=cls.http_status, error=["why"], code=code)) as awe:
        with pytest.raises(cls, match="why") as caught:
            await awe.suspend_job("j")
    assert type(caught.value) is cls


async def test_a_list_of_something_else_is_no_list_of_jobs() -> None:
    async with a_client(lambda _: httpx.Response(200, json=[{"id": 1}])) as awe:
        with pytest.raises(NotAnAweServer):
            await awe.list_jobs()


async def test_whatever_goes_wrong_in_talking_is_an_awe_error() -> None:
    def garbled(request: httpx.Request) -> httpx.Response:
        raise httpx.DecodingError("not gzip", request=request)

    async with a_client(garbled) as awe:
        for call in (awe.health, lambda: awe.read_node("n")):
            with pytest.raises(ServerUnreachable, match="not gzip"):
                await call()


async def test_problems_of_a_document_stay_a_list() -> None:
    problems = ["tasks[0].cmd: is missing", "info.priority: must be a number"]
    async with a_client(lambda _: envelope(status=400, error=problems, code="invalid_document")) as awe:
        with pytest.raises(InvalidDocument) as caught:
            await awe.submit_job({"tasks": []})
    assert caught.value.problems == problems


@pytest.mark.parametrize(
    ("reply", "cls", "says"),
    [
        (
            envelope(status=400, error=["No eligible workunit found"]),
            BadRequest,
            "No eligible workunit found",
        ),
        (envelope(status=400, error="one text"), BadRequest, "one text"),
        (httpx.Response(502, text="<html>proxy</html>"), Unavailable, "502 Bad Gateway"),
        (httpx.Response(500, text="oops"), AweError, "500"),
        (httpx.Response(413, text="<html>proxy</html>"), TooLarge, "413 Request Entity Too Large"),
        (
            httpx.Response(200, text="<html>"),
            NotAnAweServer,
            r"http://awe\.test/job/j answered 200 .* is that an",
        ),
        (httpx.Response(200, json={"hello": "world"}), NotAnAweServer, "is that an awe-server"),
        (httpx.Response(200, json=[]), NotAnAweServer, "is that an awe-server"),
        (httpx.Response(302, headers={"location": "/login"}), NotAnAweServer, "answered 302"),
        (httpx.Response(404, text="<html>"), NotAnAweServer, "answered 404"),
        (httpx.Response(404, json={"detail": "Not Found"}), NotAnAweServer, "answered 404"),
    ],
)
async def test_other_servers_answers_become_errors_too(
    reply: httpx.Response, cls: type[AweError], says: str
) -> None:
    async with a_client(lambda _: reply) as awe:
        with pytest.raises(cls, match=says):
            await awe.get_job("j")


async def test_an_unreachable_server_is_named_with_the_cause_and_a_hint() -> None:
    async with a_client(no_connection) as awe:
        with pytest.raises(ServerUnreachable, match=r"http://awe\.test: Connection refused.*AWE_SERVER"):
            await awe.get_job("j")
    assert cause_of(httpx.ReadTimeout("")) == "ReadTimeout"


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1", "ftp://x", "", "http://", "http://:80", "http://x:0", "http://127.0.0.1:99999",
        "http://x:many", "http://[::1", "http://a b", "http://x\n", "http://xn--/", "http://x?y", "http://x#y",
    ],
)  # fmt: skip
async def test_what_is_no_address_is_refused_before_anything_is_sent(address: str) -> None:
    with pytest.raises(BadRequest, match=r"is not the address of a server: .*, such as http://127"):
        AsyncAweClient(address)


async def test_what_is_wrong_with_an_address_is_said_without_its_password() -> None:
    with pytest.raises(BadRequest, match=r"^'http://host:70000/x' .* a port lies between 1 and 65535"):
        AsyncAweClient("http://anna:secret@host:70000/x")


@pytest.mark.parametrize(
    "address",
    ["http://x", "HTTPS://x:65535/", "http://[::1]:1/awe/", "http://a:b@ü.example", "http://u_v:80"],
)
async def test_an_address_is_kept_as_it_is_without_the_last_slash(address: str) -> None:
    async with AsyncAweClient(address) as awe:
        assert awe.base_url == re.sub(r"//.*@", "//", address).rstrip("/")


# --- repeats -------------------------------------------------------------------------------------


def failing(times: int, failure: Callable[[], httpx.Response], seen: list[httpx.Request]) -> Handler:
    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return failure() if len(seen) <= times else envelope({"id": "j"})

    return handler


def cut() -> httpx.Response:
    raise httpx.ReadError("cut")


def busy() -> httpx.Response:
    return envelope(status=503, error=["later"], code="store_unavailable")


def unsure() -> httpx.Response:
    return envelope(status=503, error=["perhaps"], code="not_confirmed")


@pytest.mark.parametrize("failure", [cut, busy, unsure])
async def test_X_05_reads_and_submits_are_repeated(failure: Callable[[], httpx.Response]) -> None:
    seen: list[httpx.Request] = []
    async with a_client(failing(2, failure, seen)) as awe:
        assert (await awe.get_job("j")).id == "j"
        assert len(seen) == 3
        seen.clear()
        await awe.submit_job(b"{}")
    keys = {request.headers["idempotency-key"] for request in seen}
    assert (len(seen), len(keys)) == (3, 1)


@pytest.mark.parametrize("failure", [cut, busy, unsure])
async def test_X_05_verbs_that_may_have_worked_are_not_repeated(
    failure: Callable[[], httpx.Response],
) -> None:
    seen: list[httpx.Request] = []
    async with a_client(failing(2, failure, seen)) as awe:
        with pytest.raises((ServerUnreachable, StoreUnavailable)):
            await awe.resubmit_job("j")
    assert len(seen) == 1


async def test_what_was_never_sent_is_sent_again() -> None:
    seen: list[httpx.Request] = []

    def refused() -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with a_client(failing(2, refused, seen)) as awe:
        await awe.resubmit_job("j")
    assert len(seen) == 3


async def test_refusals_are_not_repeated() -> None:
    seen: list[httpx.Request] = []
    gone = lambda: envelope(status=404, error=["job not found:j"], code="job_not_found")  # noqa: E731
    async with a_client(failing(9, gone, seen)) as awe:
        with pytest.raises(JobNotFound):
            await awe.get_job("j")
    assert len(seen) == 1


# --- requests ------------------------------------------------------------------------------------


async def test_flags_lists_and_ids_are_written_as_the_server_reads_them() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        seen.append(f"{request.method} {path}")
        return envelope({} if path.startswith("/work/") else [], total_count=0, limit=25, offset=0)

    async with a_client(handler, authorization="bearer x") as awe:
        await awe.list_jobs(limit=5, active=True, where={"info.user": ["anna", "bob"]})
        await awe.recompute_job("j", "task 1")
        await awe.delete_job("j", full=True)
        await awe.get_work("j_a/b_1")
        await awe.list_clients(status="busy")
        await awe.list_job_rows(limit=1, where={"jid": "10001"})
        await awe.set_job_priority("j", 0)
    assert seen == [
        "GET /job?limit=5&active=&query=&info.user=anna&info.user=bob",
        "PUT /job/j?recompute=task+1",
        "DELETE /job/j?full=",
        "GET /work/j_a%2Fb_1",
        "GET /client?status=busy",
        "GET /job?limit=1&verbosity=minimal&query=&jid=10001",
        "PUT /job/j?priority=0",
    ]


async def test_a_page_has_rows_and_a_total() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return envelope([{"id": "a"}], total_count=7, limit=1, offset=3)

    async with a_client(handler) as awe:
        page = await awe.list_jobs(limit=1, offset=3)
    assert ([job.id for job in page.items], page.total, page.limit, page.offset) == (["a"], 7, 1, 3)


async def test_waiting_follows_revisions_until_the_job_has_ended() -> None:
    states = [("queued", 1), ("in-progress", 2), ("in-progress", 2), ("completed", 3)]
    asked: list[dict[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        if len(asked) == 2:
            raise httpx.ConnectError("away for a moment")
        state, revision = states.pop(0)
        return envelope({"id": "j", "state": state, "revision": revision})

    changes: list[int | None] = []
    async with a_client(handler) as awe:
        job = await awe.wait_job("j", on_change=lambda job: changes.append(job.revision))
    assert job.state == "completed"
    assert changes == [1, 2, 3]
    assert [a.get("revision") for a in asked] == [None, "1", "1", "2", "2"]


async def test_waiting_ends_with_its_time_and_with_its_patience() -> None:
    async with a_client(lambda _: envelope({"state": "queued", "revision": 1})) as awe:
        assert (await awe.wait_job("j", timeout_s=0.01)).state == "queued"
    async with a_client(no_connection) as awe:
        with pytest.raises(ServerUnreachable):
            await awe.wait_job("j", patience_s=0.0)


async def test_a_log_is_followed_until_the_work_is_over() -> None:
    log = bytearray(b"one\n")
    state = ["checkout"]

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/log/stdout"):
            return envelope({"state": state[0]})
        first = int(request.headers.get("range", "bytes=0-")[6:-1])
        if first >= len(log):
            return envelope(status=416, error=["no"], code="bad_range")
        return httpx.Response(206 if first else 200, content=bytes(log[first:]))

    seen = b""
    async with a_client(handler) as awe:
        async for piece in awe.follow_log("w", "stdout", pause_s=0.0):
            seen += piece
            if seen == b"one\n":
                log.extend(b"two\n")
            else:
                state[0] = "completed"
    assert seen == b"one\ntwo\n"


async def test_each_attempt_of_followed_work_is_read_from_its_beginning_over_an_outage() -> None:
    logs = {"1": b"first try, a long line\n", "2": b"second\n"}
    outage = ["away"] * FAST.attempts
    states: list[Any] = [
        ("queued", 0),
        ("checkout", 1),
        ("queued", 1),
        *outage,
        ("checkout", 2),
        ("suspend", 2),
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/log/stdout"):
            now = states.pop(0) if len(states) > 1 else states[0]
            if now == "away":
                return no_connection(request)
            state, attempt = now
            return envelope({"state": state, "attempt": attempt})
        first = int(request.headers.get("range", "bytes=0-")[6:-1])
        log = logs.get(request.url.params.get("attempt", ""), b"")
        if first and first >= len(log):
            return envelope(status=416, error=["no"], code="bad_range")
        return httpx.Response(206 if first else 200, content=log[first:])

    seen: list[bytes | int] = []
    async with a_client(handler) as awe:
        async for piece in awe.follow_log("w", "stdout", pause_s=0.0, on_attempt=seen.append):
            seen.append(piece)
    assert seen == [logs["1"], 2, logs["2"]]


async def test_following_a_log_ends_with_its_patience() -> None:
    async with a_client(no_connection) as awe:
        with pytest.raises(ServerUnreachable):
            async for _ in awe.follow_log("w", "stdout", patience_s=0.0):
                pass


async def test_events_are_followed_in_order_over_an_outage() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["since"])
        if len(asked) == 2:
            return busy()
        n = len(asked)
        return envelope([{"seq": 10 * n}, {"seq": 10 * n + 1}])

    seen = []
    async with a_client(handler) as awe:
        async for event in awe.follow_events(since=3):
            seen.append(event.seq)
            if len(seen) == 4:
                break
    assert seen == [10, 11, 30, 31]
    assert asked == ["3", "11", "11"]


async def test_L_11_following_events_goes_on_with_lower_numbers_after_the_servers_clock_went_back() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["since"])
        return envelope([{"seq": [1000, 5, 6][len(asked) - 1]}])

    async with a_client(handler) as awe:
        events = awe.follow_events()
        assert [(await anext(events)).seq for _ in range(3)] == [1000, 5, 6]
    assert asked == ["0", "1000", "5"]


# --- results -------------------------------------------------------------------------------------


async def test_keys_of_a_newer_server_are_kept_and_null_is_the_default() -> None:
    sent = {
        "colour": {"deep": [1, None]},
        "tasks": [{"notes": ["a", "b"], "inputs": None, "time_limit_s": 0, "moon": None}, {}],
        "error": None,
        "id": "j",
        "info": {"userattr": None, "priority": 7},
    }
    async with a_client(lambda _: envelope(sent)) as awe:
        job = await awe.get_job("j")
    assert (job.id, job.info.priority, job.info.userattr, job.state) == ("j", 7, {}, "")
    assert [task.inputs for task in job.tasks] == [[], []]
    assert job.colour == {"deep": [1, None]}  # type: ignore[attr-defined]
    assert json.dumps(job.model_dump(mode="json")) == json.dumps(sent)
    assert json.loads(job.model_dump_json()) == sent


async def test_what_was_set_since_is_in_the_dump() -> None:
    async with a_client(lambda _: envelope({"notes": None, "id": "j", "tasks": [{"id": "a"}]})) as awe:
        job = await awe.get_job("j")
    job.notes = "mine"
    job.state = "queued"
    job.tasks[0].skip = True
    changed = {"notes": "mine", "id": "j", "tasks": [{"id": "a", "skip": True}], "state": "queued"}
    assert json.dumps(job.model_dump(mode="json")) == json.dumps(changed)
    assert job.model_dump(mode="json", exclude={"tasks", "notes"}) == {"id": "j", "state": "queued"}
    assert job.model_copy().model_dump(exclude_unset=True) == changed


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"tasks": [{"totalwork": "many"}]}, r"JobView \(tasks\.0\.totalwork: "),
        ([], "JobView"),
        (None, "JobView"),
    ],
)
async def test_a_reply_of_another_form_is_an_error_that_says_where(data: Any, says: str) -> None:
    async with a_client(lambda _: envelope(data)) as awe:
        with pytest.raises(AweError, match=says):
            await awe.get_job("j")
        with pytest.raises(AweError, match="reply does not read"):
            await awe.wait_job("j")


def test_work_of_a_client_is_listed_whichever_way_it_was_sent() -> None:
    for current in ({"data": ["a", "b"]}, {"a": True, "b": True}):
        client = api.ClientView.model_validate({"current_work": current})
        assert client.current_work.ids == ["a", "b"]
        assert client.model_dump(mode="json") == {"current_work": current}


# --- transfers -----------------------------------------------------------------------------------


async def test_a_file_is_uploaded_as_a_form_with_its_length_and_progress(tmp_path: Path) -> None:
    source = tmp_path / 'odd"name.txt'
    source.write_bytes(os.urandom(3_000_000))
    got: dict[str, Any] = {}

    async def handler(request: httpx.Request) -> httpx.Response:
        got["length"] = int(request.headers["content-length"])
        got["body"] = await request.aread()
        return envelope({"id": "n"})

    progress: list[tuple[int, int]] = []
    http = httpx.AsyncClient(transport=httpx.MockTransport(handler))
    async with AsyncAweClient("http://awe.test", http=http) as awe:
        await awe.create_node(source, attributes={"a": 1}, on_progress=lambda d, t: progress.append((d, t)))
    assert got["length"] == len(got["body"])
    assert source.read_bytes() in got["body"]
    assert b'name="attributes_str"\r\n\r\n{"a": 1}' in got["body"]
    assert b'filename="odd%22name.txt"' in got["body"]
    assert progress[-1] == (3_000_000, 3_000_000)


async def test_a_raw_body_knows_its_piece_and_its_digest(tmp_path: Path) -> None:
    source = tmp_path / "x"
    source.write_bytes(b"0123456789")
    body = FileBody(source, offset=2, max_bytes=5)
    assert b"".join([chunk async for chunk in body]) == b"23456"
    assert body.md5 == hashlib.md5(b"23456", usedforsecurity=False).hexdigest()
    assert body.headers["Content-Length"] == "5"


async def test_a_download_is_resumed_checked_and_renamed(server: FakeServer, tmp_path: Path) -> None:
    data = os.urandom(2_500_000)
    node = server.add_node(data)
    server.cut_downloads_after = [1_100_000]
    async with AsyncAweClient(server.url, retry=FAST) as awe:
        got = await awe.download_node(node, tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == data
        assert got.size == len(data)
        assert await awe.read_node(node) == data
        with pytest.raises(DownloadCorrupt, match="larger than"):
            await awe.read_node(node, max_bytes=10)
        with pytest.raises(NodeNotFound):
            await awe.download_node("nosuch", tmp_path / "y")
        with pytest.raises(NodeNotFound):
            await awe.read_node("nosuch")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
async def test_a_download_replaces_nothing_but_a_plain_file(
    server: FakeServer, tmp_path: Path, kind: str
) -> None:
    node = server.add_node(b"new")
    target, elsewhere = tmp_path / "x", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"old")
    if kind == "folder":
        target.mkdir()
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to(elsewhere)
    before = os.lstat(target)
    async with AsyncAweClient(server.url) as awe:
        with pytest.raises(BadRequest, match="not a plain file"):
            await awe.download_node(node, target)
    assert os.lstat(target).st_ino == before.st_ino
    assert elsewhere.read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {"x", "elsewhere"}


@pytest.mark.parametrize("text", ["", ".", ".."])
async def test_what_cannot_be_an_id_is_not_sent(server: FakeServer, text: str) -> None:
    async with AsyncAweClient(server.url) as awe:
        with pytest.raises(BadRequest, match="is not an id"):
            await awe.get_job(text)
        with pytest.raises(BadRequest, match="is not an id"):
            await awe.get_node(text)


async def test_a_damaged_download_is_not_there(tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if "download" in request.url.params:
            return httpx.Response(200, stream=httpx.ByteStream(b"wrong"))
        return envelope({"file": {"size": 5, "checksum": {"md5": "0" * 32}}})

    async with a_client(handler) as awe:
        with pytest.raises(DownloadCorrupt, match="checksum mismatch"):
            await awe.download_node("n", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


async def test_a_source_that_changed_during_a_resume_is_taken_from_its_beginning(tmp_path: Path) -> None:
    contents = [b"a" * 2_000_000, b"b" * 2_000_000]
    calls: list[str | None] = []

    async def cut_body(data: bytes) -> Any:
        yield data[:1_500_000]
        raise httpx.ReadError("cut")

    def handler(request: httpx.Request) -> httpx.Response:
        if "download" not in request.url.params:
            return envelope({"file": {"size": 2_000_000}})
        calls.append(request.headers.get("if-range"))
        if len(calls) == 1:
            return httpx.Response(200, content=cut_body(contents[0]), headers={"etag": '"one"'})
        return httpx.Response(200, stream=httpx.ByteStream(contents[1]), headers={"etag": '"two"'})

    async with a_client(handler) as awe:
        await awe.download_node("n", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == contents[1]
    assert calls == [None, '"one"']


# --- the blocking face ---------------------------------------------------------------------------


def public_methods(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value))
    }


def test_every_method_has_a_blocking_twin() -> None:
    for name, method in public_methods(AsyncAweClient).items():
        if name == "close":
            continue
        twin = inspect.getattr_static(AweClient, name, None)
        expected = BlockingIterator if inspect.isasyncgenfunction(method) else Blocking
        assert type(twin) is expected, name
        assert twin.method is method, name
        assert method.__doc__, name


def test_exports_are_complete_and_sorted() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    assert {"AsyncAweClient", "AweClient"} <= set(api.__all__)


def test_blocking_calls_work_without_an_event_loop() -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"status": 200, "data": [{"seq": 1}], "error": None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            with AweClient(f"http://127.0.0.1:{httpd.server_port}") as awe:
                assert [event.seq for event in awe.list_events()] == [1]
                assert next(awe.follow_events()).seq == 1
                assert awe.base_url.startswith("http://127.0.0.1")
            awe.close()
        finally:
            httpd.shutdown()
            thread.join()
    with AweClient("http://127.0.0.1:9", retry=FAST) as awe, pytest.raises(ServerUnreachable):
        awe.health()
