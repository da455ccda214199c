"""A whole conversation with an unmodified AWE worker, request by request as it was recorded."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.support.golden import encoded, form_of, recorded, shape_problems

pytestmark = pytest.mark.anyio

CLOSE = {"Connection": "close", "Accept-Encoding": "gzip"}


async def chunked(content: bytes) -> Any:
    """Bodies come in pieces of unknown length."""
    for i in range(0, len(content), 7):
        yield content[i : i + 7]


async def send(api: Api, method: str, path: str, files: list[Any] | None = None) -> Any:
    """One request of the worker; forms are chunked."""
    more: dict[str, Any] = {}
    if files is not None:
        request = api.http.build_request(method, path, files=files)
        more = {
            "content": chunked(request.read()),
            "headers": {**CLOSE, "Content-Type": request.headers["content-type"]},
        }
    reply = await api.http.request(method, path, **{"headers": CLOSE, **more})
    return reply.json()


async def register(api: Api) -> dict[str, Any]:
    exchange = recorded("worker-register")
    envelope = await send(api, "POST", "/client", form_of(exchange["request"]["body"]))
    assert not envelope["error"]
    assert shape_problems(exchange["reply"]["body"], envelope) == []
    client: dict[str, Any] = envelope["data"]
    return client


async def heartbeat(api: Api, client: dict[str, Any], *works: str) -> Any:
    body = {"busy": bool(works), "current_work": {"data": list(works)}}
    return await api.ok("PUT", f"/client/{client['id']}?heartbeat", json=body)


async def run_one(api: Api, client: dict[str, Any], command: Any) -> dict[str, Any]:
    """Poll, fetch, work, upload, report: what the worker does for one workunit."""
    envelope = await send(api, "GET", f"/work?client={client['id']}&available=81512398848")
    assert envelope["status"] == 200, envelope
    assert not envelope["error"]
    work: dict[str, Any] = envelope["data"]
    assert (await heartbeat(api, client, work["id"])) == {"server-uuid": client["server_uuid"]}
    content = b""
    for file in work["inputs"]:
        url = f"{file['host']}/node/{file['node']}?download"
        if work["rank"] and work["part"]["input"] == file["filename"]:
            url += f"&index={work['part']['index']}&part={part_of(work)}"
        reply = await api.http.get(url, headers=CLOSE)
        assert reply.status_code == 200
        content += reply.content
    result = command(content)
    for file in work["outputs"]:
        name = "upload" if work["rank"] == 0 else str(work["rank"])
        url = f"{file['host']}/node/{file['node']}"
        uploaded = await send(api, "PUT", url, [(name, (file["filename"], result))])
        assert uploaded["status"] == 200, uploaded
        assert uploaded["data"]["id"] == file["node"]
    exchange = recorded("c-maxworksize-worker-put-work")
    path = f"/work/{encoded(work['id'])}?status=done&client={client['id']}&computetime=0&report"
    envelope = await send(api, "PUT", path, form_of(exchange["request"]["body"]))
    assert envelope == exchange["reply"]["body"]
    return work


def part_of(work: dict[str, Any]) -> str:
    """Which units a rank gets, as AWE's worker works it out: the first ranks get one more."""
    units, ranks, rank = work["part"]["totalindex"], work["totalwork"], work["rank"]
    size, more = divmod(units, ranks)
    start = (rank - 1) * size + min(rank - 1, more) + 1
    end = start + size - 1 + (1 if rank <= more else 0)
    return str(start) if start == end else f"{start}-{end}"


async def test_a_pipeline_of_two_tasks(api: Api) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("in.txt", b"hello world\nsecond line\n")})
    tasks = (
        {
            "taskid": "0",
            "cmd": {"name": "upcase", "args": "@in.txt out0.txt"},
            "inputs": [{"filename": "in.txt", "host": "http://127.0.0.1:8001", "node": node["id"]}],
            "outputs": [{"filename": "out0.txt", "host": "http://127.0.0.1:8001"}],
        },
        {
            "taskid": "1",
            "cmd": {"name": "count", "args": "@out0.txt"},
            "dependsOn": ["0"],
            "inputs": [{"filename": "out0.txt", "host": "http://127.0.0.1:8001", "origin": "0"}],
            "outputs": [{"filename": "out1.txt", "host": "http://127.0.0.1:8001"}],
        },
    )
    job = await api.submit(*tasks, name="b")
    client = await register(api)
    await api.state_of(job, "queued")
    work = await run_one(api, client, bytes.upper)
    assert shape_problems(recorded("b-worker-get-work")["reply"]["body"]["data"], work) == []
    await wait_for_work(api)
    await run_one(api, client, lambda content: str(content.count(b"\n")).encode())
    done = await api.state_of(job, "completed")
    assert shape_problems(recorded("b-job-completed")["reply"]["body"]["data"], done) == []
    outputs = [task["outputs"][0]["node"] for task in done["tasks"]]
    assert (await api.http.get(f"/node/{outputs[0]}?download")).content == b"HELLO WORLD\nSECOND LINE\n"
    assert (await api.http.get(f"/node/{outputs[1]}?download")).content == b"2"
    idle = await send(api, "GET", f"/work?client={client['id']}&available=1")
    assert idle["error"] == ["Server queue is empty"]


async def wait_for_work(api: Api) -> None:
    from tests.support.eventually import eventually

    async def queued() -> bool:
        return bool((await api.ok("GET", "/queue?json"))["workunits"]["queuing"])

    await eventually(queued)


async def test_a_split_job_merges_to_what_one_worker_would_have_made(api: Api) -> None:
    content = b"".join(b">s%d\n%s\n" % (i, b"acgt" * (i % 9 + 1)) for i in range(40))
    node = await api.ok("POST", "/node", files={"upload": ("big.fa", content)})
    task = {
        "taskid": "0",
        "cmd": {"name": "revcat", "args": "@big.fa big.out"},
        "inputs": [{"filename": "big.fa", "node": node["id"]}],
        "outputs": [{"filename": "big.out"}],
        "totalwork": 3,
        "partinfo": {"input": "big.fa", "index": "record"},
    }
    job = await api.submit(task)
    client = await register(api)
    await api.state_of(job, "queued")
    works = [await run_one(api, client, bytes.upper) for _ in range(3)]
    theirs = recorded("c-maxworksize-worker-get-work")["reply"]["body"]["data"]
    assert shape_problems(theirs, works[0]) == []
    assert [(work["rank"], work["totalwork"]) for work in works] == [(1, 3), (2, 3), (3, 3)]
    done = await api.state_of(job, "completed")
    output = done["tasks"][0]["outputs"][0]
    assert (await api.http.get(f"/node/{output['node']}?download")).content == content.upper()


async def test_success_without_the_output_is_a_failure_and_another_attempt_mends_it(api: Api) -> None:
    job = await api.submit(
        {"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "o"}], "totalwork": 3}
    )
    client = await register(api)
    await api.state_of(job, "queued")
    for bad in (False, True, False, False):
        work = await api.checkout(client)
        if not bad:
            form = {str(work["rank"]): ("o", b"part %d\n" % work["rank"])}
            await api.ok("PUT", f"/node/{work['outputs'][0]['node']}", files=form)
        assert await api.report(work) == "ok"
        if bad:
            shown = await api.ok("GET", f"/work/{work['id']}")
            assert (shown["state"], shown["failed"]) == ("queued", 1)
            assert shown["notes"] == "output o: nothing was uploaded"
    done = await api.state_of(job, "completed")
    output = done["tasks"][0]["outputs"][0]
    content = (await api.http.get(f"/node/{output['node']}?download")).content
    assert content == b"part 1\npart 2\npart 3\n"


async def test_a_worker_that_reregisters_with_its_work_keeps_it(api: Api) -> None:
    await api.submit()
    exchange = recorded("worker-register")
    client = await register(api)
    work = await api.checkout(client)
    [(name, (filename, raw))] = form_of(exchange["request"]["body"])
    held = raw.replace(
        b'"current_work": {"data": []}', b'"current_work": {"data": ["%s"]}' % work["id"].encode()
    )
    assert held != raw
    await api.ok("POST", "/client", files=[(name, (filename, held))])
    assert (await heartbeat(api, client, work["id"])) == {"server-uuid": client["server_uuid"]}
    assert await api.report(work) == "ok"


async def test_the_recorded_failure_report_is_understood(api: Api) -> None:
    await api.submit()
    client = await register(api)
    work = await api.checkout(client)
    exchange = recorded("work-put-fail")
    path = f"/work/{encoded(work['id'])}?status=fail&client={client['id']}&computetime=2&report"
    envelope = await send(api, "PUT", path, form_of(exchange["request"]["body"]))
    assert envelope == exchange["reply"]["body"]
    for stream, text in (("stdout", "some out\n"), ("stderr", "some err\n"), ("worknotes", "note line\n")):
        assert await api.ok("GET", f"/work/{encoded(work['id'])}?report={stream}") == text
    shown = await api.ok("GET", f"/work/{work['id']}")
    assert (shown["failed"], shown["state"]) == (1, "queued")
    assert "note line" in shown["notes"]
