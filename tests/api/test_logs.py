"""Full logs: written by the holder alone, read by anybody, in pieces, while they grow."""

from typing import Any

import pytest

from shared_models.ids import WorkunitId
from shared_models.limits import MAX_LOG_BYTES
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio


@pytest.fixture
async def held(api: Api) -> dict[str, Any]:
    """A workunit that is held, and what its holder needs."""
    await api.submit()
    work = await api.checkout(await api.register())
    token = api.services.engine.state.workunits[WorkunitId(work["id"])].token
    return {**work, "path": f"/work/{work['id']}/log", "headers": {"Awe-Lease": token}}


async def put(api: Api, held: dict[str, Any], offset: int, content: bytes, stream: str = "stdout") -> Any:
    path = f"{held['path']}/{stream}?attempt=1&offset={offset}"
    return await api.ok("PUT", path, content=content, headers=held["headers"])


async def test_a_log_grows_in_pieces_and_is_read_by_range(api: Api, held: dict[str, Any]) -> None:
    assert (await api.http.get(f"{held['path']}/stdout")).content == b""
    assert await put(api, held, 0, b"hello ") == {"size": 6}
    assert await put(api, held, 6, b"world") == {"size": 11}
    log = await api.http.get(f"{held['path']}/stdout")
    assert log.content == b"hello world"
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert log.headers["x-content-type-options"] == "nosniff"
    tail = await api.http.get(f"{held['path']}/stdout", headers={"Range": "bytes=6-"})
    assert (tail.status_code, tail.content) == (206, b"world")
    assert tail.headers["content-range"] == "bytes 6-10/11"
    behind = await api.http.get(f"{held['path']}/stdout", headers={"Range": "bytes=11-"})
    assert behind.status_code == 416
    assert behind.headers["content-range"] == "bytes */11"
    assert await api.ok("GET", f"/work/{held['id']}?report=stdout") == "hello world"


async def test_a_repeated_piece_changes_nothing_and_a_hole_is_refused(api: Api, held: dict[str, Any]) -> None:
    await put(api, held, 0, b"abc")
    await put(api, held, 3, b"def")
    await put(api, held, 3, b"def")
    path = f"{held['path']}/stdout?attempt=1&offset=10"
    await api.refused("PUT", path, 409, "conflict", content=b"x", headers=held["headers"])
    assert (await api.http.get(f"{held['path']}/stdout")).content == b"abcdef"


async def test_only_the_holder_writes(api: Api, held: dict[str, Any]) -> None:
    path = f"{held['path']}/stdout?attempt=1"
    await api.refused("PUT", path, 409, "lease_lost", content=b"x", headers={"Awe-Lease": "wrong"})
    await api.refused("PUT", path, 400, "invalid_request", content=b"x")
    other = f"{held['path']}/stdout?attempt=2"
    await api.refused("PUT", other, 409, "lease_lost", content=b"x", headers=held["headers"])
    await api.report(held)
    await api.refused("PUT", path, 409, "lease_lost", content=b"x", headers=held["headers"])
    assert (await api.http.get(f"{held['path']}/stdout")).content == b""


async def test_a_log_is_bounded(api: Api, held: dict[str, Any]) -> None:
    await put(api, held, 0, b"x" * MAX_LOG_BYTES)
    path = f"{held['path']}/stdout?attempt=1&offset={MAX_LOG_BYTES}"
    await api.refused("PUT", path, 413, "too_large", content=b"x", headers=held["headers"])


@pytest.mark.parametrize("name", ["passwd", "stdout.1", "..%2f..%2fx"])
async def test_other_names_are_refused(api: Api, held: dict[str, Any], name: str) -> None:
    reply = await api.http.get(f"{held['path']}/{name}")
    assert reply.status_code in (400, 404)


async def test_each_attempt_keeps_its_own_log(api: Api) -> None:
    await api.submit()
    clients = [await api.register("a"), await api.register("b")]
    for client, text in zip(clients, (b"first", b"second"), strict=True):
        work = await api.checkout(client)
        path = f"/work/{work['id']}?status=fail&client={client['id']}"
        await api.ok("PUT", path, files={"stderr": ("e", text)})
    log = f"/work/{work['id']}/log/stderr"
    assert (await api.http.get(log)).content == b"second"
    assert (await api.http.get(f"{log}?attempt=1")).content == b"first"


async def test_odd_task_names_do_not_become_paths(api: Api) -> None:
    name = "a" * 250
    job = await api.submit({"taskid": name, "cmd": {"name": "x"}})
    work = await api.checkout(await api.register())
    await api.ok(
        "PUT", f"/work/{work['id']}?status=done&client={work['client']}", files={"stdout": ("o", b"hi")}
    )
    assert (await api.http.get(f"/work/{work['id']}/log/stdout")).content == b"hi"
    folders = [path.name for path in api.services.logs_dir.iterdir()]
    assert folders == [job["id"]]


@pytest.mark.parametrize(
    ("live", "tail", "kept"),
    [
        (b"line 1\n", b"line 1\nline 2\n", b"line 1\nline 2\n"),
        ("g\u00fcn".encode()[:2], "g\u00fcn".encode(), "g\u00fcn".encode()),
        (b"all \xff of it", "all \ufffd of it".encode(), b"all \xff of it"),
        (b"x" * 100, b"x" * 10, b"x" * 100),
    ],
)
async def test_what_a_live_log_lacks_comes_with_the_report(
    api: Api, held: dict[str, Any], live: bytes, tail: bytes, kept: bytes
) -> None:
    await put(api, held, 0, live)
    client = await api.ok("GET", f"/client/{held['client']}")
    path = f"/work/{held['id']}?status=done&client={client['id']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", tail)})
    assert (await api.http.get(f"{held['path']}/stdout")).content == kept


async def test_a_log_that_cannot_be_kept_refuses_no_report(api: Api, held: dict[str, Any]) -> None:
    api.services.logs_dir.parent.mkdir(exist_ok=True)
    api.services.logs_dir.write_text("in the way")
    path = f"/work/{held['id']}?status=done&client={held['client']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", b"printed")})
    assert (await api.ok("GET", f"/work/{held['id']}"))["state"] == "completed"


async def test_finished_work_waits_for_nothing(api: Api, held: dict[str, Any]) -> None:
    await api.report(held)
    await api.state_of({"id": held["jobid"]}, "completed")
    assert await api.ok("GET", f"/work/{held['id']}?why") == []


async def test_finished_work_of_a_job_that_runs_waits_for_nothing_and_shows_its_log(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "true"}, "totalwork": 2})
    work = await api.checkout(client := await api.register())
    path = f"/work/{work['id']}"
    query = {"status": "done", "client": client["id"], "report": "1"}
    await api.ok("PUT", path, params=query, files={"stdout": ("out", b"printed")})
    assert await api.ok("GET", f"{path}?why") == []
    assert (await api.http.get(f"{path}/log/stdout")).text == "printed"
    assert await api.ok("GET", f"{path}?report=stdout") == "printed"
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "in-progress"
