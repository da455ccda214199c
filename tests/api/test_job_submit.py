"""POST /job: what is accepted, once, and what is refused with the place and the reason."""

import gc
import json
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from awe_server.api import job_submit, views
from awe_server.api.deps import INLINE
from shared_models.limits import MAX_DOCUMENT_BYTES
from tests.api.conftest import Api
from tests.support.golden import form_of, recorded, shape_problems

pytestmark = pytest.mark.anyio

ONE: dict[str, Any] = {"info": {"name": "one"}, "tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}


async def jobs(api: Api) -> int:
    total: int = (await api.http.get("/job")).json()["total_count"]
    return total


async def test_a_form_as_curl_sends_it(api: Api) -> None:
    job = await api.ok("POST", "/job", files={"upload": ("job.json", json.dumps(ONE))})
    assert job["state"] in ("init", "queued")
    assert job["remaintasks"] == 1
    assert job["tasks"][0]["taskid"] == f"{job['id']}_0"
    assert (await api.ok("GET", f"/job/{job['id']}"))["info"]["name"] == "one"


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", ""])
async def test_the_document_itself_as_the_body(api: Api, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    job = await api.ok("POST", "/job", content=json.dumps(ONE), headers=headers)
    assert job["info"]["name"] == "one"


async def test_the_reply_has_every_key_that_awe_shows(api: Api) -> None:
    exchange = recorded("b-job-post")
    node = await api.ok("POST", "/node", files={"upload": ("in.txt", b"x")})
    text = json.dumps(exchange["request"]["body"])
    theirs = exchange["reply"]["body"]["data"]
    text = text.replace(theirs["tasks"][0]["inputs"][0]["node"], node["id"]).replace(
        "shock.test:7445", "127.0.0.1:8001"
    )
    job = await api.ok("POST", "/job", files=form_of(json.loads(text)))
    assert shape_problems(theirs, job) == []
    assert job["jid"]


async def test_every_attribute_of_a_task_comes_back(api: Api) -> None:
    task = {
        "taskid": "a",
        "cmd": {
            "name": "x",
            "args_array": ["1", "2"],
            "cmd_script": ["echo"],
            "environ": {"public": {"A": "1"}, "private": {"B": "secret-canary"}},
            "stdin": "",
            "description": "d",
        },
        "totalwork": 3,
        "maxworksize": 7,
        "partinfo": {"index": "none"},
        "userattr": {"k": "v"},
        "resources": {"cores": 2, "memory_bytes": 5},
        "time_limit_s": 9.5,
        "max_failures": 2,
        "retry_delay_s": 0.5,
    }
    job = await api.submit(task, name="n", userattr={"j": 1}, priority=5, noretry=True)
    shown = job["tasks"][0]
    assert shown["cmd"]["args_array"] == ["1", "2"]
    assert shown["cmd"]["environ"] == {"public": {"A": "1"}}
    assert shown["cmd"]["has_private_env"] is True
    assert shown["totalwork"] == 3
    assert shown["resources"]["cores"] == 2
    assert (shown["maxworksize"], shown["time_limit_s"], shown["max_failures"]) == (7, 9.5, 2)
    assert shown["info"]["userattr"] == {"j": 1}
    for path in (f"/job/{job['id']}", "/job", "/work", "/events", f"/job/{job['id']}?report"):
        assert "secret-canary" not in (await api.http.get(path)).text, path
    assert not [key for key in [*job, *shown] if key.startswith("_")]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "No job file is submitted"),
        ({"content": b"hello"}, "No job file is submitted"),
        ({"files": {"x": ("x", b"1")}}, "No job script or awf is submitted"),
        ({"files": {"awf": ("x", b"1")}}, "AWF"),
        ({"files": [("upload", ("a", b"{}")), ("upload", ("b", b"{}"))]}, "more than one"),
        ({"content": b"--B", "headers": {"Content-Type": "multipart/form-data"}}, "isn't multipart"),
        (
            {"content": b"--B\r\nX", "headers": {"Content-Type": "multipart/form-data; boundary=B"}},
            "not whole",
        ),
        ({"content": b"junk", "headers": {"Content-Type": "multipart/form-data; boundary=B"}}, "damaged"),
    ],
)
async def test_what_is_no_submission_is_refused_in_awes_words(
    api: Api, request_: dict[str, Any], words: str
) -> None:
    [text] = await api.refused("POST", "/job", 400, "invalid_request", **request_)
    assert words in text
    assert await jobs(api) == 0


async def test_every_problem_is_named_with_its_path(api: Api) -> None:
    document = {
        "info": {"priorty": 3},
        "tasks": [{"taskid": "0", "cmd": {"name": 7}, "totalwork": 0.5}],
    }
    texts = await api.refused("POST", "/job", 400, "invalid_document", json=document)
    assert any(text.startswith("tasks[0].cmd.name") for text in texts)
    assert any(text.startswith("tasks[0].totalwork") for text in texts)
    assert any("priority" in text for text in texts)
    assert await jobs(api) == 0


async def test_cycles_and_unknown_origins_are_refused(api: Api) -> None:
    cycle = [
        {"taskid": "a", "cmd": {"name": "x"}, "dependsOn": ["b"]},
        {"taskid": "b", "cmd": {"name": "x"}, "dependsOn": ["a"]},
    ]
    [text] = await api.refused("POST", "/job", 400, "invalid_document", json={"tasks": cycle})
    assert "cycle" in text
    output = {"taskid": "a", "cmd": {"name": "x"}, "outputs": [{"filename": "out.txt"}]}
    user = {"taskid": "b", "cmd": {"name": "x"}, "inputs": [{"filename": "out.tx", "origin": "a"}]}
    [text] = await api.refused("POST", "/job", 400, "invalid_document", json={"tasks": [output, user]})
    assert "out.txt" in text
    assert await jobs(api) == 0


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/../../x", "a\0b", "n" * 300, "~/x", "C:\\x", "x\r\ny", "", "."]
)
async def test_file_names_that_leave_the_work_directory_are_refused(api: Api, name: str) -> None:
    for kind in ("inputs", "outputs"):
        file = {"filename": name, "url": "http://data.test/x"} if kind == "inputs" else {"filename": name}
        task = {"taskid": "0", "cmd": {"name": "x"}, kind: [file]}
        texts = await api.refused("POST", "/job", 400, "invalid_document", json={"tasks": [task]})
        assert any(f"tasks[0].{kind}[0].filename" in text for text in texts), texts
    assert await jobs(api) == 0


@pytest.mark.parametrize("name", ["sub/dir/ok.txt", "./ok", "résumé.txt", "a b.txt"])
async def test_file_names_below_the_work_directory_are_fine(api: Api, name: str) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": name}]})


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": str(MAX_DOCUMENT_BYTES + 1)}
    await api.refused("POST", "/job", 413, "too_large", content=b"{}", headers=headers)

    async def endless() -> Any:
        chunk = b"{" + b" " * (1024 * 1024)
        while True:
            yield chunk

    await api.refused(
        "POST", "/job", 413, "too_large", content=endless(), headers={"Content-Type": "application/json"}
    )
    assert await jobs(api) == 0


async def test_X_05_a_key_makes_a_repeated_submission_one_job(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await api.ok("POST", "/job", json=ONE, headers=key)
    again = await api.ok("POST", "/job", json=ONE, headers=key)
    assert again["id"] == first["id"]
    other = await api.ok("POST", "/job", json=ONE, headers={"Idempotency-Key": "k2"})
    assert other["id"] != first["id"]
    assert await jobs(api) == 2


async def test_X_05_a_form_may_be_repeated_under_its_key_too(api: Api) -> None:
    """Whoever sends it again makes a form of its own, with other boundaries; the document is the same."""
    ids = set()
    for boundary in ("one", "two"):
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Idempotency-Key": "k"}
        form = {"upload": ("job.json", json.dumps(ONE))}
        ids.add((await api.ok("POST", "/job", files=form, headers=kind))["id"])
    assert len(ids) == 1
    assert await jobs(api) == 1


async def test_X_05_ten_posts_at_once_with_one_key_are_one_job(api: Api) -> None:
    ids: list[str] = []

    async def post() -> None:
        ids.append((await api.ok("POST", "/job", json=ONE, headers={"Idempotency-Key": "k"}))["id"])

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(post)
    assert len(ids) == 10
    assert len(set(ids)) == 1
    assert await jobs(api) == 1
    assert api.app.state.once_only._busy == {}


async def test_X_05_a_key_with_another_body_is_refused_and_names_the_job(api: Api) -> None:
    key = {"Idempotency-Key": "k"}
    job = await api.ok("POST", "/job", json=ONE, headers=key)
    other = {**ONE, "info": {"name": "other"}}
    [text] = await api.refused("POST", "/job", 409, "already_exists", json=other, headers=key)
    assert job["id"] in text
    assert await jobs(api) == 1


async def test_a_key_is_good_for_a_finished_job_too(api: Api) -> None:
    key = {"Idempotency-Key": "k"}
    job = await api.ok("POST", "/job", json=ONE, headers=key)
    await api.ok("DELETE", f"/job/{job['id']}")
    assert (await api.ok("POST", "/job", json=ONE, headers=key))["id"] == job["id"]
    await api.ok("DELETE", f"/job/{job['id']}?full")
    assert (await api.ok("POST", "/job", json=ONE, headers=key))["id"] != job["id"]


async def test_a_refused_document_does_not_use_up_its_key(api: Api) -> None:
    key = {"Idempotency-Key": "k"}
    await api.refused("POST", "/job", 400, "invalid_document", json={"tasks": []}, headers=key)
    await api.ok("POST", "/job", json=ONE, headers=key)


async def test_a_data_token_is_kept_and_never_shown(api: Api) -> None:
    job = await api.ok("POST", "/job", json=ONE, headers={"Datatoken": "token-canary"})
    assert job["info"]["auth"] is True
    for path in (f"/job/{job['id']}", "/job", "/work", "/events", "/node"):
        assert "token-canary" not in (await api.http.get(path)).text


@pytest.mark.parametrize("token", ["x" * 8193, "tab\there", "tokén-tokén-tokén-tokén"])
async def test_a_token_that_no_header_can_carry_is_refused_before_anything_is_stored(
    api: Api, token: str
) -> None:
    headers = {"Datatoken": token.encode("latin-1")}
    [text] = await api.refused("POST", "/job", 400, "invalid_request", json=ONE, headers=headers)
    assert token[:20] not in text
    assert await jobs(api) == 0


def where_it_runs(monkeypatch: pytest.MonkeyPatch, room: Any, name: str) -> list[bool]:
    """Note for each call of a function whether it ran on the event loop's thread."""
    loop, seen, original = threading.get_ident(), list[bool](), getattr(room, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append(threading.get_ident() == loop)
        return original(*args, **kwargs)

    monkeypatch.setattr(room, name, noted)
    return seen


def many_tasks() -> dict[str, Any]:
    return {"tasks": [{"taskid": f"t{i}", "cmd": {"name": "true"}} for i in range(600)]}


def many_files() -> dict[str, Any]:
    outputs = [{"filename": f"f{i}"} for i in range(300)]
    reads = [{"filename": f"f{i}", "origin": "0"} for i in range(300)]
    return {
        "tasks": [
            {"taskid": "0", "cmd": {"name": "true"}, "outputs": outputs},
            {"taskid": "1", "cmd": {"name": "true"}, "inputs": reads},
        ]
    }


@pytest.mark.parametrize("document", [many_tasks, many_files])
async def test_a_large_document_is_checked_built_and_shown_beside_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch, document: Callable[[], dict[str, Any]]
) -> None:
    stages = [
        where_it_runs(monkeypatch, job_submit, "parse_job_document"),
        where_it_runs(monkeypatch, job_submit, "build_job"),
        where_it_runs(monkeypatch, views, "job_view"),
    ]
    admitted = where_it_runs(monkeypatch, job_submit, "admit_job")
    await api.ok("POST", "/job", json=document())
    assert stages == [[False]] * 3
    assert admitted == [True]


async def test_a_small_document_needs_no_thread(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    built = where_it_runs(monkeypatch, job_submit, "build_job")
    await api.ok("POST", "/job", json=ONE)
    assert built == [True]


async def test_no_garbage_is_looked_for_while_a_large_job_is_taken_in(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, seen = job_submit.admit_job, list[bool]()

    def admit_job(*args: Any) -> Any:
        seen.append(gc.isenabled())
        return admit(*args)

    monkeypatch.setattr(job_submit, "admit_job", admit_job)
    for count in (1, INLINE + 1):
        await api.submit(*({"taskid": str(i), "cmd": {"name": "true"}} for i in range(count)))
    assert seen == [True, False]
    assert gc.isenabled()
