"""The exchange over HTTP: what it carries, how it waits, who is current. Its rules: the scheduler's tests."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any

import anyio
import pytest

from awe_server.data import indexes
from awe_server.data.parts import PartStore
from awe_server.scheduler.tick import tick
from shared_models.limits import MAX_NOTES_CHARS, MAX_VALUES
from tests.api.conftest import Api
from tests.support.eventually import eventually
from tests.unit.data.port import stream

pytestmark = pytest.mark.anyio


FIVE_MD5 = "5d41402abc4b2a76b9719d911017c592"  #: of hello


@dataclass
class Native:
    """A native client without a daemon."""

    api: Api
    id: str
    incarnation: str = "i1"
    request_id: int = 0
    held: list[Any] = field(default_factory=list)

    async def exchange(self, **message: Any) -> Any:
        self.request_id += 1
        return await self.api.ok("POST", f"/client/{self.id}/exchange", json=self.message(**message))

    def message(self, **message: Any) -> dict[str, Any]:
        return {
            "incarnation": self.incarnation,
            "request_id": self.request_id,
            "holds": self.held,
            "free": {"cores": 64, "memory_bytes": 2**40, "disk_bytes": 2**40, "gpus": 0},
            **message,
        }

    async def take(self, want: int = 1) -> list[dict[str, Any]]:
        reply = await self.exchange(want=want)
        for grant in reply["work"]:
            grant["id"] = f"{grant['task']}_{grant['rank']}"
            self.held.append([grant["id"], grant["attempt"]])
        work: list[dict[str, Any]] = reply["work"]
        return work

    def report(self, grant: dict[str, Any], outcome: str = "done", **more: Any) -> dict[str, Any]:
        self.held = [hold for hold in self.held if hold[0] != grant["id"]]
        token, attempt = grant["token"], grant["attempt"]
        return {"work": grant["id"], "attempt": attempt, "token": token, "outcome": outcome, **more}


@pytest.fixture
async def native(api: Api) -> Native:
    client = await api.register(native=True, incarnation="i1", cores=64)
    return Native(api, client["id"])


async def waiting(api: Api) -> bool:
    return bool(api.services.engine.waiters.counts[0])


async def test_tasks_come_once_and_workunits_as_rank_and_attempt(api: Api, native: Native) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("in", b"data")})
    task = {
        "taskid": "0",
        "cmd": {"name": "x", "environ": {"public": {"A": "1"}, "private": {"B": "2"}}},
        "inputs": [{"filename": "in", "node": node["id"]}],
        "outputs": [{"filename": "out"}],
        "totalwork": 5,
        "partinfo": {"index": "none"},
        "userattr": {"t": 1},
    }
    job = await api.submit(task, userattr={"j": 2})
    await api.state_of(job, "queued")
    reply = await native.exchange(want=3)
    assert [(grant["rank"], grant["attempt"]) for grant in reply["work"]] == [(1, 1), (2, 1), (3, 1)]
    assert len({grant["token"] for grant in reply["work"]}) == 3
    [shown] = reply["tasks"].values()
    assert shown["private_env"] == {"B": "2"}
    assert shown["userattr"] == {"t": 1, "j": 2}
    assert shown["inputs"][0]["url"] == f"/node/{node['id']}?download"
    assert shown["inputs"][0]["md5"] == node["file"]["checksum"]["md5"]
    assert shown["outputs"][0]["url"].startswith("/node/")
    assert shown["part_inputs"] == []
    assert reply["lease_s"] == 60.0
    assert (reply["suspended"], reply["stop"], reply["superseded"]) == (False, False, False)


async def test_cut_inputs_come_with_exact_bytes_that_cover_the_file(
    api: Api, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_in: list[int] = []
    open_index = indexes.open_index

    def noticed(blob: Path, kind: str, size: int | None = None) -> indexes.IndexFile:
        opened_in.append(get_ident())
        return open_index(blob, kind, size)

    monkeypatch.setattr(indexes, "open_index", noticed)
    content = b"".join(b">s%d\n%s\n" % (i, b"ACGT" * (i + 1)) for i in range(20))
    node = await api.ok("POST", "/node", files={"upload": ("in.fa", content)})
    task = {
        "taskid": "0",
        "cmd": {"name": "x"},
        "inputs": [{"filename": "in.fa", "node": node["id"]}],
        "totalwork": 3,
        "partinfo": {"input": "in.fa", "index": "record"},
    }
    job = await api.submit(task)
    await api.state_of(job, "queued")
    grants = await native.take(3)
    assert [grant["part"] for grant in grants] == ["1-7", "8-14", "15-20"]
    pieces = [content[offset : offset + length] for g in grants for offset, length in g["pieces"]]
    assert b"".join(pieces) == content
    for grant, piece in zip(grants, pieces, strict=True):
        query = f"download&index=record&part={grant['part']}"
        assert (await api.http.get(f"/node/{node['id']}?{query}")).content == piece
    assert len(opened_in) == 1
    assert opened_in != [get_ident()]  # the event loop waits for no disk


async def test_F_02_no_part_of_an_input_that_was_replaced_is_given(api: Api, native: Native) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("in.txt", b"a\nb\nc\n")})
    inputs = [{"filename": "in.txt", "node": node["id"]}]
    cut = {"inputs": inputs, "totalwork": 3, "partinfo": {"index": "line"}}
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, **cut})
    await api.state_of(job, "queued")
    assert len(await native.take(1)) == 1
    native.held = []
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("in.txt", b"a\nB\nc\n")})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    assert await native.take(2) == []
    shown = await api.state_of(job, "suspend")
    assert "in.txt was replaced after it was cut" in shown["notes"]
    await api.ok("PUT", f"/job/{job['id']}?recompute=0")
    await api.state_of(job, "queued")
    assert [grant["part"] for grant in await native.take(3)] == ["1", "2", "3"]


async def test_reports_are_settled_and_tails_kept_as_logs(api: Api, native: Native) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 2})
    first, second = await native.take(2)
    reports = [
        native.report(first, stdout_tail="out", stderr_tail="err", computetime_s=1.5),
        native.report(second, "failed", kind="command", exit_code=3, stderr_tail="boom"),
    ]
    reply = await native.exchange(reports=reports)
    assert [row["result"] for row in reply["results"]] == ["accepted", "accepted"]
    again = await native.exchange(reports=reports[:1])
    assert again["results"][0]["result"] == "duplicate"
    foreign = {**reports[0], "token": "wrong"}
    assert (await native.exchange(reports=[foreign]))["results"][0]["result"] == "lease_lost"
    unknown = {**reports[0], "work": "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0"}
    assert (await native.exchange(reports=[unknown]))["results"][0]["result"] == "unknown"
    assert (await api.http.get(f"/work/{first['id']}/log/stdout")).content == b"out"
    assert (await api.http.get(f"/work/{second['id']}/log/stderr?attempt=1")).content == b"boom"
    shown = await api.ok("GET", f"/work/{job['id']}_0_2")
    assert shown["failed"] == 1
    assert shown["exitstatus"] == 3


async def test_a_full_log_is_not_replaced_by_its_tail(api: Api, native: Native) -> None:
    await api.submit()
    [grant] = await native.take()
    headers = {"Awe-Lease": grant["token"]}
    await api.ok("PUT", f"/work/{grant['id']}/log/stdout?attempt=1", content=b"all of it", headers=headers)
    await native.exchange(reports=[native.report(grant, stdout_tail="of it")])
    assert (await api.http.get(f"/work/{grant['id']}/log/stdout")).content == b"all of it"


async def test_with_nothing_to_say_it_waits_and_wakes_when_work_appears(api: Api, native: Native) -> None:
    replies: list[Any] = []

    async def wait() -> None:
        replies.append(await native.exchange(want=1, wait_s=30))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waiting(api))
        assert replies == []
        await api.submit()
    assert len(replies[0]["work"]) == 1


async def test_a_wait_ends_with_its_time(api: Api, native: Native) -> None:
    reply = await native.exchange(want=1, wait_s=0.01)
    assert reply["work"] == []
    assert reply["superseded"] is False


async def test_a_newer_exchange_ends_an_older_one_that_waits(api: Api, native: Native) -> None:
    replies: list[Any] = []

    async def wait() -> None:
        replies.append(await native.exchange(want=1, wait_s=30))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waiting(api))
        newer = await native.exchange()
        assert newer["superseded"] is False
    assert replies[0]["superseded"] is True
    assert replies[0]["work"] == []


async def test_an_older_exchange_does_not_begin_to_wait_once_a_newer_one_came(
    api: Api, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one may come while the older one is still being made durable."""
    engine = api.services.engine
    confirmed = engine.confirmed
    slow = anyio.Event()

    async def settle_slowly() -> None:
        monkeypatch.setattr(engine, "confirmed", confirmed)
        await slow.wait()
        await confirmed()

    monkeypatch.setattr(engine, "confirmed", settle_slowly)
    replies: list[Any] = []

    async def wait() -> None:
        replies.append(await native.exchange(want=1, wait_s=30))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await eventually(lambda: engine.confirmed is confirmed)
            await native.exchange()
            slow.set()
    assert replies[0]["superseded"] is True


async def test_L_07_a_repeated_request_gets_the_same_grants(api: Api, native: Native) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 5})
    first = await native.exchange(want=2)
    native.request_id -= 1
    assert (await native.exchange(want=2))["work"] == first["work"]


async def test_discard_and_suspension_are_told_while_it_waits(api: Api, native: Native) -> None:
    job = await api.submit()
    [grant] = await native.take()
    replies: list[Any] = []

    async def wait() -> None:
        replies.append(await native.exchange(wait_s=30))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waiting(api))
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert replies[0]["discard"] == [[grant["id"], 1]]
    native.held = []
    await api.ok("PUT", f"/client/{native.id}?suspend")
    assert (await native.exchange(want=1))["suspended"] is True


async def test_whoever_reads_a_log_makes_its_client_send_it_live(api: Api, native: Native) -> None:
    await api.submit()
    [grant] = await native.take()
    replies: list[Any] = []

    async def wait() -> None:
        replies.append(await native.exchange(wait_s=30))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waiting(api))
        await api.http.get(f"/work/{grant['id']}/log/stdout")
    assert replies[0]["logs"] == [[grant["id"], 1]]
    # Told once, it may wait again, and hears it again with whatever else there is to say.
    reply = await native.exchange(wait_s=0.01)
    assert reply["logs"] == [[grant["id"], 1]]


async def test_strangers_and_stale_ones_have_to_register(api: Api, native: Native) -> None:
    message = {"incarnation": "i1", "request_id": 1}
    await api.refused("POST", "/client/nobody/exchange", 404, "client_not_found", json=message)
    path = f"/client/{native.id}/exchange"
    await native.exchange()
    await native.exchange()
    await api.refused("POST", path, 409, "stale_exchange", json=native.message() | {"request_id": 1})
    await api.refused("POST", path, 409, "stale_exchange", json=native.message(incarnation="i2"))


async def test_L_02_what_a_restarted_client_has_in_its_spool_is_still_accepted(
    api: Api, native: Native
) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 2})
    finished, cut_off = await native.take(2)
    report = native.report(finished)
    spooled = [[finished["id"], finished["attempt"]], ["odd", 1], 5]
    await api.register(id=native.id, native=True, incarnation="i2", spooled=spooled)
    assert (await api.ok("GET", f"/work/{finished['id']}"))["state"] == "checkout"
    assert (await api.ok("GET", f"/work/{cut_off['id']}"))["state"] == "queued"
    native.incarnation, native.request_id = "i2", 0
    native.held = [[finished["id"], finished["attempt"]]]
    reply = await native.exchange(reports=[report])
    assert [row["result"] for row in reply["results"]] == ["accepted"]
    assert (await api.ok("GET", f"/job/{job['id']}"))["tasks"][0]["remainwork"] == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_L_01_what_a_zombie_uploads_and_reports_is_refused_and_changes_nothing(
    api: Api, native: Native, when: str
) -> None:
    """Before and after the new holder has reported; the zombie's bytes are others."""
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "out"}]})
    job = await api.state_of(job, "queued")
    node = job["tasks"][0]["outputs"][0]["node"]
    [old] = await native.take()
    api.hands.advance(61)
    await api.services.engine.do(tick)
    other = Native(api, (await api.register("w2", native=True, incarnation="i1", cores=64))["id"])
    [new] = await other.take()
    assert (new["id"], old["attempt"], new["attempt"]) == (old["id"], 1, 2)
    assert new["token"] != old["token"]

    def upload(grant: dict[str, Any]) -> str:
        return f"/node/{node}?work={grant['id']}&attempt={grant['attempt']}"

    await api.ok("PUT", upload(new), content=b"good\n", headers={"Awe-Lease": new["token"]})
    if when == "after":
        await other.exchange(reports=[other.report(new)])
        await api.state_of(job, "completed")
    for claim in (old, {**old, "attempt": 2}):
        await api.refused(
            "PUT", upload(claim), 409, "lease_lost", content=b"bad\n", headers={"Awe-Lease": old["token"]}
        )
    reply = await native.exchange()
    assert reply["discard"] == [[old["id"], 1]]
    for outcome in ("done", "failed", "released"):
        more = {"kind": "command", "exit_code": 1} if outcome == "failed" else {}
        reply = await native.exchange(reports=[native.report(old, outcome, **more)])
        assert [row["result"] for row in reply["results"]] == ["lease_lost"]
    path = f"/work/{old['id']}?status=done&client={native.id}&attempt=1"
    await api.refused("PUT", path, 409, "lease_lost", headers={"Awe-Lease": old["token"]})
    if when == "before":
        await other.exchange(reports=[other.report(new)])
        await api.state_of(job, "completed")
    assert (await api.http.get(f"/node/{node}?download")).content == b"good\n"
    work = await api.ok("GET", f"/work/{old['id']}")
    assert (work["state"], work["attempt"], work["client"]) == ("completed", 2, other.id)
    counts = [(await api.ok("GET", f"/client/{id}"))["total_completed"] for id in (native.id, other.id)]
    assert counts == [0, 1]


async def test_a_removed_client_is_told_to_stop(api: Api, native: Native) -> None:
    await api.ok("DELETE", f"/client/{native.id}")
    assert (await native.exchange())["stop"] is True


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "object"),
        (b'{"incarnation": "i1", "request_id": 0}', "request_id"),
        (b'{"incarnation": "i1", "request_id": 1, "want": -1}', "want"),
        (b'{"incarnation": "i1", "request_id": 1, "holds": [["x", 1]]}', "holds[0]"),
        (
            b'{"incarnation": "i1", "request_id": 1, "reports": [{"outcome": "perhaps"}]}',
            "reports[0].outcome",
        ),
    ],
)
async def test_a_damaged_exchange_is_refused_with_its_path(
    api: Api, native: Native, body: bytes, words: str
) -> None:
    reply = await api.http.post(f"/client/{native.id}/exchange", content=body)
    assert reply.status_code == 400, reply.text
    assert words in reply.json()["error"][0]


async def test_nobody_acts_for_a_native_client_by_its_id_alone(api: Api, native: Native) -> None:
    """Ids of clients are no secret: a stock worker's way in leads only to a stock worker's attempts."""
    job = await api.submit(
        {
            "taskid": "0",
            "cmd": {"name": "x", "environ": {"private": {"KEY": "canary"}}},
            "outputs": [{"filename": "out.txt"}],
        }
    )
    await api.state_of(job, "queued")
    (grant,) = await native.take()
    path = f"/work/{grant['id']}"
    await api.refused("GET", f"{path}?privateenv&client={native.id}", 409, "lease_lost")
    for status in ("done", "failed-permanent", "discarded"):
        reply = (await api.http.put(f"{path}?status={status}&client={native.id}")).json()
        assert reply["code"] == "lease_lost", reply
    (output,) = (await api.ok("GET", f"/job/{job['id']}"))["tasks"][0]["outputs"]
    form = {"upload": ("out.txt", b"forged")}
    await api.refused("PUT", f"/node/{output['node']}", 409, "lease_lost", files=form)
    held = f"/node/{output['node']}?work={grant['id']}&attempt={grant['attempt']}"
    await api.ok("PUT", held, content=b"true", headers={"Awe-Lease": grant["token"]})
    report = native.report(grant, outputs=[{"filename": "out.txt", "size": 4, "md5": ""}])
    assert (await native.exchange(reports=[report]))["results"][0]["result"] == "accepted"
    await api.state_of(job, "completed")
    assert (await api.http.get(f"/node/{output['node']}?download")).content == b"true"


async def test_only_the_holder_keeps_what_a_failed_attempt_left_and_only_if_that_is_wanted(
    api: Api, native: Native
) -> None:
    def task(**keys: Any) -> dict[str, Any]:
        return {
            "taskid": "0",
            "cmd": {"name": "x"},
            "outputs": [{"filename": "o"}],
            "max_failures": 1,
            **keys,
        }

    for keys in ({}, {"keep_failed": True}):
        await api.state_of(await api.submit(task(**keys)), "queued")
    unasked, asked = await native.take(2)
    path = f"/node?work={asked['id']}&attempt=1"
    lease = {"Awe-Lease": asked["token"]}
    await api.refused("POST", path, 409, "lease_lost", content=b"x", headers={"Awe-Lease": "wrong"})
    await api.refused("POST", path, 400, "invalid_request", content=b"x")
    await api.refused("POST", path, 400, "invalid_request", files={"upload": ("x", b"x")}, headers=lease)
    await api.refused(
        "POST", f"/node?work={asked['id']}", 400, "invalid_request", content=b"x", headers=lease
    )
    other = f"/node?work={unasked['id']}&attempt=1"
    await api.refused("POST", other, 403, "forbidden", content=b"x", headers={"Awe-Lease": unasked["token"]})
    await api.refused(
        "POST", path.replace("attempt=1", "attempt=2"), 409, "lease_lost", content=b"", headers=lease
    )

    async def slow() -> Any:
        yield b"beginning"
        job, _, _ = asked["id"].partition("_")
        await api.ok("PUT", f"/job/{job}?suspend")
        yield b" end"

    first = await api.ok("POST", path, content=b"half", headers=lease)
    again = await api.ok("POST", path, content=b"whole", headers=lease)
    assert first["id"] == again["id"]
    assert (await api.http.get(f"/node/{again['id']}?download")).content == b"whole"
    failed = native.report(asked, "failed", kind="command", exit_code=1, kept=again["id"])
    await native.exchange(reports=[failed])
    assert (await api.ok("GET", f"/work/{asked['id']}"))["kept"] == again["id"]
    await api.refused("POST", path, 409, "lease_lost", content=b"late", headers=lease)

    await api.state_of(await api.submit(task(keep_failed=True)), "queued")
    (asked,) = await native.take()
    path, lease = f"/node?work={asked['id']}&attempt=1", {"Awe-Lease": asked["token"]}
    await api.refused("POST", path, 409, "lease_lost", content=slow(), headers=lease)
    kept = await api.ok("GET", "/node?attributes.type=failed-attempt")
    assert [node["id"] for node in kept] == [again["id"]]


async def test_nobody_learns_what_makes_an_exchange_a_clients_own(api: Api, native: Native) -> None:
    await api.submit()
    (grant,) = await native.take()
    paths = ("/client", f"/client/{native.id}", "/work", f"/work/{grant['id']}", "/events", "/job")
    for path in paths:
        text = (await api.http.get(path)).text
        assert grant["token"] not in text, path
        assert '"incarnation"' not in text, path


async def test_a_body_of_countless_values_is_not_built_in_memory(api: Api, native: Native) -> None:
    junk = b"{}," * (MAX_VALUES // 2 + 1)
    body = b'{"incarnation": "i1", "request_id": 1, "junk": [' + junk + b"{}]}"
    path = f"/client/{native.id}/exchange"
    await api.refused("POST", path, 413, "too_large", content=body)
    tails = [{"stdout_tail": "a,b\n" * 10_000}] * 20
    await api.refused("POST", path, 400, "invalid_document", json=native.message(request_id=1, reports=tails))


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize(
    ("size", "md5", "reason"),
    [
        (4, "", "output out: 4 bytes were reported, 5 were uploaded"),
        (5, "0" * 32, f"output out: md5 {'0' * 32} was reported, of the upload it is {FIVE_MD5}"),
        (5, FIVE_MD5, ""),
        (5, "", ""),
    ],
)
async def test_bytes_that_differ_from_their_report_fail_the_attempt(
    api: Api, native: Native, size: int, md5: str, reason: str, remembered: bool
) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "out"}]})
    await api.state_of(job, "queued")
    [grant] = await native.take()
    node = (await api.ok("GET", f"/job/{job['id']}"))["tasks"][0]["outputs"][0]["node"]
    path = f"/node/{node}?work={grant['id']}&attempt={grant['attempt']}"
    await api.ok("PUT", path, content=b"hello", headers={"Awe-Lease": grant["token"]})
    if not remembered:  # the server was started again in between
        api.services.nodes._staged.clear()
    report = native.report(grant, outputs=[{"filename": "out", "size": size, "md5": md5}])
    reply = await native.exchange(reports=[report])
    assert [row["result"] for row in reply["results"]] == ["accepted"]
    if not reason:
        await api.state_of(job, "completed")
        return
    work = await api.ok("GET", f"/work/{grant['id']}")
    assert (work["state"], work["failed"], work["notes"]) == ("queued", 1, reason)
    reply = await native.exchange(reports=[report])
    assert [row["result"] for row in reply["results"]] != ["accepted"]


@pytest.mark.parametrize("says", [[], [{"filename": "out", "size": 5, "md5": FIVE_MD5}]])
async def test_an_output_that_was_never_uploaded_fails_the_attempt(
    api: Api, native: Native, says: list[dict[str, Any]]
) -> None:
    task = {"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "out"}], "totalwork": 2}
    job = await api.submit(task)
    await api.state_of(job, "queued")
    for attempt in (1, 2, 3):
        [grant, *_] = await native.take()
        assert (grant["rank"], grant["attempt"]) == (1, attempt)
        reply = await native.exchange(reports=[native.report(grant, outputs=says)])
        assert [row["result"] for row in reply["results"]] == ["accepted"]
        work = await api.ok("GET", f"/work/{grant['id']}")
        assert (work["failed"], work["notes"]) == (attempt, "output out: nothing was uploaded")
    shown = await api.ok("GET", f"/job/{job['id']}")
    assert (shown["state"], shown["lastfailed"]) == ("suspend", grant["id"])
    assert "output out: nothing was uploaded" in shown["notes"]


@pytest.mark.parametrize("key", ["optional", "nofile"])
async def test_an_output_that_may_be_missing_is_missed_only_if_the_report_names_it(
    api: Api, native: Native, key: str
) -> None:
    outputs = [{"filename": "out", key: True}]
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": outputs, "totalwork": 2})
    await api.state_of(job, "queued")
    first, second = await native.take(2)
    said = [{"filename": "out", "size": 5, "md5": ""}]
    await native.exchange(reports=[native.report(first, outputs=said), native.report(second, outputs=[])])
    works = [await api.ok("GET", f"/work/{grant['id']}") for grant in (first, second)]
    assert [(work["state"], work["failed"]) for work in works] == [("queued", 1), ("completed", 0)]


async def test_a_batch_of_reports_looks_once_into_each_folder_and_awaits_nothing_else(
    api: Api, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, present = list[str](), PartStore.present

    def counted(self: PartStore, node_id: str) -> Any:
        looks.append(node_id)
        return present(self, node_id)

    outputs = [{"filename": "a"}, {"filename": "b"}]
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": outputs, "totalwork": 40})
    job = await api.state_of(job, "queued")
    nodes = [io["node"] for io in job["tasks"][0]["outputs"]]
    grants = await native.take(40)
    for grant in grants:
        for node in nodes:
            await api.services.nodes.put_part(node, grant["rank"], 1, stream(b"hello"))
    monkeypatch.setattr(PartStore, "present", counted)
    await native.exchange(reports=[native.report(grant) for grant in grants[:20]])
    assert looks == []
    api.services.nodes._staged.clear()
    await native.exchange(reports=[native.report(grant) for grant in grants[20:39]])
    assert sorted(looks) == sorted(nodes)
    assert (await api.ok("GET", f"/job/{job['id']}"))["tasks"][0]["remainwork"] == 1


async def test_who_skips_a_workunit_is_woken_when_the_only_other_client_takes_no_more(
    api: Api, native: Native
) -> None:
    other = await api.register("w2", native=True, incarnation="i1", cores=64)
    await api.submit()
    [grant] = await native.take()
    failed = native.report(grant, "failed", kind="command", exit_code=1)
    assert (await native.exchange(reports=[failed], want=1))["work"] == []
    found: list[Any] = []

    async def wait() -> None:
        found.extend((await native.exchange(want=1, wait_s=20))["work"])

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await eventually(lambda: waiting(api))
            await api.ok("PUT", f"/client/{other['id']}?suspend")
    assert [(row["rank"], row["attempt"]) for row in found] == [(0, 2)]


async def test_progress_is_shown_while_its_client_tells_it_and_holds_the_attempt(
    api: Api, native: Native
) -> None:
    await api.submit()
    [grant] = await native.take()
    path = f"/work/{grant['id']}"
    assert "progress" not in await api.ok("GET", path)
    await native.exchange(
        progress=[
            [grant["id"], "fetching", 12_000_000, 300_000_000],
            [f"{grant['task']}_7", "fetching", 1, 2],
        ]
    )
    shown = {"stage": "fetching", "bytes": 12_000_000, "total_bytes": 300_000_000}
    assert (await api.ok("GET", path))["progress"].items() >= shown.items()
    [listed] = await api.ok("GET", "/work")
    assert listed["progress"].items() >= shown.items()
    [why] = await api.ok("GET", f"{path}?why")
    assert why["reason"].endswith("attempt 1, fetching files: 12 of 300 MB")
    await native.exchange(progress=[[grant["id"], "pushing", 5_000_000, -1]])
    [why] = await api.ok("GET", f"{path}?why")
    assert why["reason"].endswith("attempt 1, pushing files: 5 MB")
    # Another attempt of it is not that far.
    await native.exchange(
        progress=[[grant["id"], "pushing", 1, -1]], reports=[native.report(grant, "released")]
    )
    assert "progress" not in await api.ok("GET", path)


async def test_why_says_what_a_transfer_waits_for_only_while_it_waits(api: Api, native: Native) -> None:
    job = await api.submit()
    [grant] = await native.take()
    path, why_job = f"/work/{grant['id']}", f"/job/{job['id']}?why"
    row = [grant["id"], "pushing", 0, 4_000_000]
    reason = "its output o is refused for now: no room"
    other = f"{grant['task']}_7"
    await native.exchange(progress=[row], waits=[[grant["id"], reason + "x" * 9_000], [other, "not its own"]])
    assert (await api.ok("GET", path))["progress"]["waits"].startswith(reason)
    assert len((await api.ok("GET", path))["progress"]["waits"]) == MAX_NOTES_CHARS
    await native.exchange(progress=[row], waits=[[grant["id"], reason]])
    [own] = await api.ok("GET", f"{path}?why")
    said = await api.ok("GET", why_job)
    for found in (own, said[-1]):
        assert (found["entity"], found["id"], found["state"]) == ("workunit", grant["id"], "checkout")
        assert found["reason"].endswith(f"attempt 1, pushing files: 0 of 4 MB: {reason}")
    await native.exchange(progress=[row])
    assert "waits" not in (await api.ok("GET", path))["progress"]
    assert (await api.ok("GET", why_job))[-1]["reason"].endswith("attempt 1, pushing files: 0 of 4 MB")
    await native.exchange()
    assert await api.ok("GET", why_job) == said[:-1]


async def test_of_many_transfers_that_wait_a_few_are_told(api: Api, native: Native) -> None:
    tasks = [{"taskid": str(i), "cmd": {"name": "true"}} for i in range(8)]
    jobs = [await api.submit(), await api.submit(*tasks)]
    held = [grant["id"] for grant in await native.take(16)]
    await native.exchange(
        progress=[[id, "fetching", 0, 1] for id in held], waits=[[id, "x is away"] for id in held]
    )
    for job, count in ((jobs[0], 1), (jobs[-1], 5)):
        said = await api.ok("GET", f"/job/{job['id']}?why")
        assert sum("x is away" in row["reason"] for row in said) == count


async def test_progress_ends_with_the_exchange_that_has_none(api: Api, native: Native) -> None:
    await api.submit()
    [grant] = await native.take()
    await native.exchange(progress=[[grant["id"], "fetching", 1, 2]])
    await native.exchange()
    assert "progress" not in await api.ok("GET", f"/work/{grant['id']}")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("x", r"progress\[0\]: must be \[workunit id"),
        (["x", "fetching", 1, 2], r"progress\[0\]\[0\]: 'x' is not a workunit id"),
        (["ID", "running", 1, 2], r"progress\[0\]\[1\]: must be one of fetching, pushing"),
        (["ID", "fetching", -1, 2], r"progress\[0\]: bytes are whole numbers"),
        (["ID", "fetching", 1, 2.5], r"progress\[0\]: bytes are whole numbers"),
    ],
)
async def test_progress_of_another_form_is_refused(api: Api, native: Native, row: Any, says: str) -> None:
    await api.submit()
    [grant] = await native.take()
    row = [grant["id"] if item == "ID" else item for item in row] if isinstance(row, list) else row
    message = native.message(progress=[row]) | {"request_id": native.request_id + 1}
    [text] = await api.refused("POST", f"/client/{native.id}/exchange", 400, "invalid_document", json=message)
    assert re.match(says, text)


@pytest.mark.parametrize("row", ["x", ["ID"], ["ID", 1], ["ID", "a", "b"], ["x", "a"]])
async def test_waits_of_another_form_are_refused(api: Api, native: Native, row: Any) -> None:
    await api.submit()
    [grant] = await native.take()
    row = [grant["id"] if item == "ID" else item for item in row] if isinstance(row, list) else row
    message = native.message(waits=[row]) | {"request_id": native.request_id + 1}
    [text] = await api.refused("POST", f"/client/{native.id}/exchange", 400, "invalid_document", json=message)
    assert text.startswith("waits[0]")


SHOCK = {"host": "http://127.0.0.1:9", "node": "7b1de3f2-0000-4000-8000-00000000000a"}


@pytest.mark.parametrize(
    ("files", "token", "is_given"),
    [
        ({"inputs": [{"filename": "in", **SHOCK}]}, "canary", True),
        ({"predata": [{"filename": "in", **SHOCK}]}, "canary", True),
        ({"inputs": [{"filename": "in", **SHOCK, "nofile": True, "attrfile": "attr.json"}]}, "canary", True),
        ({"inputs": [{"filename": "in", **SHOCK}]}, "", False),
        ({"inputs": [{"filename": "in", "url": "http://127.0.0.1:9/x"}]}, "canary", False),
        ({"outputs": [{"filename": "out", "host": SHOCK["host"]}]}, "canary", False),
    ],
    ids=["input", "predata", "attributes", "no token", "web", "output"],
)
async def test_only_who_reads_in_another_shock_gets_the_data_token(
    api: Api, native: Native, files: dict[str, Any], token: str, is_given: bool
) -> None:
    document = {"tasks": [{"taskid": "0", "cmd": {"name": "x"}, **files}]}
    headers = {"Datatoken": token} if token else {}
    job = await api.ok("POST", "/job", json=document, headers=headers)
    job = await api.state_of(job, "queued")
    assert "canary" not in str(job)
    reply = await native.exchange(want=1)
    [task] = reply["tasks"].values()
    assert task.get("datatoken") == (token if is_given else None)
    assert str(reply).count("canary") == int(is_given)
    work = await api.ok("GET", f"/work/{job['tasks'][0]['id']}_0")
    assert "canary" not in str(work)
