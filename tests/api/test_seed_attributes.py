"""Each attribute of the data model, read through the API at a moment when it means something.

docs/attributes.md says what each one is and where it is set; the last tests here keep that page true.
"""

import importlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shared_models.times import ZERO_TIME, rfc3339
from tests.api.conftest import URL, Api

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "attributes.md"

#: The data model this server was built from: JSON names, entity by entity.
SEED = {
    "job": ("id", "jid", "info", "tasks", "state", "registered", "remaintasks", "updatetime", "notes"),
    "task": (
        "id", "info", "inputs", "outputs", "predata", "cmd", "partinfo", "maxworksize", "totalwork",
        "remainwork", "state", "createdate", "starteddate", "completeddate", "computetime",
    ),
    "workunit": (
        "id", "info", "inputs", "outputs", "predata", "cmd", "rank", "partinfo", "state", "failed",
        "checkout_time", "client", "computetime",
    ),
    "client": (
        "id", "name", "group", "user", "domain", "instance_id", "instance_type", "remaintasks", "host",
        "cores", "apps", "regtime", "serve_time", "idle_time", "Status", "total_checkout", "total_completed",
        "total_failed", "current_work", "skip_work", "proxy", "subclients",
    ),
}  # fmt: skip

READS = b"".join(b">r%d\nACGT\n" % i for i in range(7))

Document = dict[str, Any]


class World:
    """A pipeline (`cut`, in 3 parts, then `sum`), workers as AWE has them, and somebody who looks."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.hands = api.hands

    async def node(self, name: str, content: bytes) -> str:
        node = await self.api.ok("POST", "/node", files={"upload": (name, content)})
        return str(node["id"])

    async def submit(self) -> Document:
        """The pipeline, when its first task is cut and waits."""
        cut = {
            "taskid": "cut",
            "cmd": {
                "name": "search",
                "args": "-in=@reads.fa -out=hits",
                "description": "look for hits",
                "environ": {"public": {"LEVEL": "2"}, "private": {"KEY": "secret"}},
            },
            "inputs": [{"filename": "reads.fa", "node": await self.node("reads.fa", READS)}],
            "predata": [{"filename": "ref.db", "node": await self.node("ref.db", b"reference")}],
            "outputs": [{"filename": "hits"}],
            "partinfo": {"input": "reads.fa", "index": "record"},
            "maxworksize": 50,
            "totalwork": 3,
        }
        sum_ = {
            "taskid": "sum",
            "cmd": {"name": "sum", "args": "@hits"},
            "dependsOn": ["cut"],
            "inputs": [{"filename": "hits", "origin": "cut"}],
            "outputs": [{"filename": "total"}],
        }
        info = {
            "name": "demo",
            "project": "p1",
            "user": "anna",
            "pipeline": "two-step",
            "userattr": {"s": "7"},
        }
        job = await self.api.submit(cut, sum_, **info)
        return await self.api.state_of(job, "queued")

    async def array(self, ranks: int = 1, **info: Any) -> Document:
        """A job of one task that needs no files."""
        return await self.api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": ranks}, **info)

    async def worker(self, name: str = "w1", **profile: Any) -> Document:
        return await self.api.register(name, **profile)

    async def take(self, worker: Document) -> Document:
        return await self.api.checkout(worker)

    async def done(self, work: Document, computetime: int = 7) -> None:
        """Upload what a command would have written, and report."""
        for file in work["outputs"]:
            field = str(work["rank"]) if work["rank"] else "upload"
            files = {field: (file["filename"], b"out %d\n" % work["rank"])}
            await self.api.ok("PUT", f"/node/{file['node']}", files=files)
        await self.api.report(work, computetime=str(computetime))

    async def fail(self, work: Document) -> None:
        await self.api.report(work, "fail")

    async def finish_cut(self, job: Document, worker: Document) -> Document:
        """All parts of `cut` are done and merged, and `sum` waits for a worker."""
        for _ in range(3):
            await self.done(await self.take(worker))
        found = await self.job(job)
        while found["tasks"][1]["state"] != "queued":
            found = await self.api.ok("GET", f"/job/{job['id']}?wait_s=5&revision={found['revision']}")
        return found

    async def complete(self, job: Document, worker: Document) -> Document:
        await self.finish_cut(job, worker)
        await self.done(await self.take(worker))
        return await self.api.state_of(job, "completed")

    async def job(self, job: Document) -> Document:
        found: Document = await self.api.ok("GET", f"/job/{job['id']}")
        return found

    async def task(self, job: Document, index: int = 0) -> Document:
        task: Document = (await self.job(job))["tasks"][index]
        return task

    async def work(self, id: str) -> Document:
        found: Document = await self.api.ok("GET", f"/work/{id}")
        return found

    async def client(self, client: Document) -> Document:
        found: Document = await self.api.ok("GET", f"/client/{client['id']}")
        return found

    def now(self) -> str:
        return rfc3339(self.hands.wall_s)


Check = Callable[[World], Awaitable[None]]
CHECKS: dict[str, Check] = {}


def reads(attribute: str) -> Callable[[Check], Check]:
    """Mark the check of one attribute, named `<entity>.<JSON key>`."""

    def keep(check: Check) -> Check:
        assert attribute not in CHECKS
        CHECKS[attribute] = check
        return check

    return keep


@pytest.mark.anyio
@pytest.mark.parametrize("attribute", [f"{entity}.{key}" for entity, keys in SEED.items() for key in keys])
async def test_attribute(api: Api, attribute: str) -> None:
    await CHECKS[attribute](World(api))


# --- job ------------------------------------------------------------------------------------------


@reads("job.id")
async def job_id(world: World) -> None:
    one, other = await world.array(), await world.array()
    assert UUID(one["id"]).version == 4
    assert one["id"] != other["id"]
    assert (await world.job(one))["id"] == one["id"]


@reads("job.jid")
async def job_jid(world: World) -> None:
    jids = [(await world.array())["jid"] for _ in range(3)]
    assert jids == [str(int(jids[0]) + i) for i in range(3)]


@reads("job.info")
async def job_info(world: World) -> None:
    submitted = world.now()
    job = await world.submit()
    info = job["info"]
    assert (info["name"], info["project"], info["user"]) == ("demo", "p1", "anna")
    assert (info["pipeline"], info["userattr"], info["priority"]) == ("two-step", {"s": "7"}, 1)
    assert info["submittime"] == submitted
    assert (info["startedtime"], info["completedtime"]) == (ZERO_TIME, ZERO_TIME)
    await world.api.ok("PUT", f"/job/{job['id']}?priority=5")
    world.hands.advance(60)
    started, worker = world.now(), await world.worker()
    info = (await world.complete(job, worker))["info"]
    assert (info["priority"], info["startedtime"], info["completedtime"]) == (5, started, world.now())


@reads("job.tasks")
async def job_tasks(world: World) -> None:
    job = await world.submit()
    assert [task["task_name"] for task in job["tasks"]] == ["cut", "sum"]
    assert job["tasks"][1]["dependsOn"] == [f"{job['id']}_cut"]


@reads("job.state")
async def job_state(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert job["state"] == "queued"
    await world.take(worker)
    assert (await world.job(job))["state"] == "in-progress"
    await world.api.ok("PUT", f"/job/{job['id']}?suspend")
    assert (await world.job(job))["state"] == "suspend"
    await world.api.ok("PUT", f"/job/{job['id']}?resume")
    assert (await world.job(job))["state"] == "in-progress"
    assert (await world.complete(job, worker))["state"] == "completed"
    await world.api.ok("DELETE", f"/job/{job['id']}")
    assert (await world.job(job))["state"] == "deleted"


@reads("job.registered")
async def job_registered(world: World) -> None:
    job, worker = await world.array(), await world.worker()
    assert (await world.job(job))["registered"] is True
    await world.done(await world.take(worker))
    ended = await world.api.state_of(job, "completed")
    assert ended["registered"] is False
    assert [row["registered"] for row in await world.api.ok("GET", "/job")] == [False]


@reads("job.remaintasks")
async def job_remaintasks(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert job["remaintasks"] == 2
    assert (await world.finish_cut(job, worker))["remaintasks"] == 1
    await world.done(await world.take(worker))
    assert (await world.api.state_of(job, "completed"))["remaintasks"] == 0


@reads("job.updatetime")
async def job_updatetime(world: World) -> None:
    submitted = world.now()
    job = await world.submit()
    assert job["updatetime"] == submitted
    world.hands.advance(30)
    assert (await world.job(job))["updatetime"] == submitted
    await world.api.ok("PUT", f"/job/{job['id']}?suspend")
    assert (await world.job(job))["updatetime"] == world.now()


@reads("job.notes")
async def job_notes(world: World) -> None:
    job, worker = await world.array(noretry=True), await world.worker()
    assert job["notes"] == ""
    await world.api.ok("PUT", f"/job/{job['id']}?suspend")
    assert (await world.job(job))["notes"] == "manually suspended"
    await world.api.ok("PUT", f"/job/{job['id']}?resume")
    await world.fail(await world.take(worker))
    assert (await world.job(job))["notes"].startswith(f"workunit {job['id']}_0_0 failed 1 time(s)")


# --- task -----------------------------------------------------------------------------------------


@reads("task.id")
async def task_id(world: World) -> None:
    job = await world.submit()
    assert [task["id"] for task in job["tasks"]] == [f"{job['id']}_cut", f"{job['id']}_sum"]


@reads("task.info")
async def task_info(world: World) -> None:
    job = await world.submit()
    assert all(task["info"] == job["info"] for task in job["tasks"])


@reads("task.inputs")
async def task_inputs(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    [reads_] = job["tasks"][0]["inputs"]
    assert (reads_["filename"], reads_["size"]) == ("reads.fa", len(READS))
    assert reads_["url"] == f"{URL}/node/{reads_['node']}?download"
    # What another task makes is located when it is there.
    assert job["tasks"][1]["inputs"][0]["node"] == "-"
    job = await world.finish_cut(job, worker)
    [hits] = job["tasks"][1]["inputs"]
    assert hits["node"] == job["tasks"][0]["outputs"][0]["node"]
    assert hits["size"] == len(b"out 1\nout 2\nout 3\n")


@reads("task.outputs")
async def task_outputs(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    [hits] = job["tasks"][0]["outputs"]
    assert (hits["filename"], hits["size"]) == ("hits", 0)
    job = await world.complete(job, worker)
    [hits] = job["tasks"][0]["outputs"]
    assert hits["size"] == len(b"out 1\nout 2\nout 3\n")
    assert (await world.api.http.get(hits["url"])).content == b"out 1\nout 2\nout 3\n"


@reads("task.predata")
async def task_predata(world: World) -> None:
    [reference] = (await world.submit())["tasks"][0]["predata"]
    assert (reference["filename"], reference["size"]) == ("ref.db", len(b"reference"))
    assert (await world.api.http.get(reference["url"])).content == b"reference"


@reads("task.cmd")
async def task_cmd(world: World) -> None:
    cmd = (await world.submit())["tasks"][0]["cmd"]
    assert (cmd["name"], cmd["args"]) == ("search", "-in=@reads.fa -out=hits")
    assert (cmd["description"], cmd["environ"]) == ("look for hits", {"public": {"LEVEL": "2"}})
    assert cmd["has_private_env"] is True


@reads("task.partinfo")
async def task_partinfo(world: World) -> None:
    cut, sum_ = (await world.submit())["tasks"]
    part = cut["partinfo"]
    assert (part["input"], part["index"]) == ("reads.fa", "record")
    assert (part["totalindex"], part["maxpartsize_mb"]) == (7, 50)
    assert sum_["partinfo"] is None


@reads("task.maxworksize")
async def task_maxworksize(world: World) -> None:
    assert [task["maxworksize"] for task in (await world.submit())["tasks"]] == [50, 0]


@reads("task.totalwork")
async def task_totalwork(world: World) -> None:
    assert [task["totalwork"] for task in (await world.submit())["tasks"]] == [3, 1]


@reads("task.remainwork")
async def task_remainwork(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert [task["remainwork"] for task in job["tasks"]] == [3, 1]
    await world.done(await world.take(worker))
    assert (await world.task(job))["remainwork"] == 2
    await world.done(await world.take(worker))
    assert (await world.task(job))["remainwork"] == 1


@reads("task.state")
async def task_state(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert [task["state"] for task in job["tasks"]] == ["queued", "pending"]
    await world.take(worker)
    assert (await world.task(job))["state"] == "in-progress"
    await world.api.ok("PUT", f"/job/{job['id']}?suspend")
    assert [task["state"] for task in (await world.job(job))["tasks"]] == ["suspend", "pending"]
    await world.api.ok("PUT", f"/job/{job['id']}?resume")
    job = await world.complete(job, worker)
    assert [task["state"] for task in job["tasks"]] == ["completed", "completed"]


@reads("task.createdate")
async def task_createdate(world: World) -> None:
    queued = world.now()
    job, worker = await world.submit(), await world.worker()
    # AWE spells it createddate; both are there.
    assert [(t["createdate"], t["createddate"]) for t in job["tasks"]] == [(queued, queued), (ZERO_TIME,) * 2]
    world.hands.advance(60)
    assert (await world.finish_cut(job, worker))["tasks"][1]["createdate"] == world.now()


@reads("task.starteddate")
async def task_starteddate(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert job["tasks"][0]["starteddate"] == ZERO_TIME
    world.hands.advance(20)
    started = world.now()
    await world.take(worker)
    world.hands.advance(20)
    await world.take(worker)
    assert (await world.task(job))["starteddate"] == started


@reads("task.completeddate")
async def task_completeddate(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    world.hands.advance(20)
    cut, sum_ = (await world.finish_cut(job, worker))["tasks"]
    assert (cut["completeddate"], sum_["completeddate"]) == (world.now(), ZERO_TIME)


@reads("task.computetime")
async def task_computetime(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    for spent in (7, 5):
        await world.done(await world.take(worker), spent)
    assert (await world.task(job))["computetime"] == 12


# --- workunit -------------------------------------------------------------------------------------


async def first_part(world: World) -> tuple[Document, Document]:
    """The task `cut` and its workunit of rank 1, checked out."""
    job, worker = await world.submit(), await world.worker()
    work = await world.take(worker)
    return await world.task(job), await world.work(work["id"])


@reads("workunit.id")
async def workunit_id(world: World) -> None:
    task, work = await first_part(world)
    assert work["id"] == f"{task['id']}_1"
    assert (work["jobid"], work["taskid"], work["wuid"]) == (task["jobid"], task["id"], work["id"])


@reads("workunit.info")
async def workunit_info(world: World) -> None:
    task, work = await first_part(world)
    assert work["info"] == task["info"]
    assert work["info"]["name"] == "demo"


@reads("workunit.inputs")
async def workunit_inputs(world: World) -> None:
    task, work = await first_part(world)
    assert work["inputs"] == task["inputs"]
    # Which part of the input is its own says `part`; here are its bytes.
    query = f"index={work['part']['index']}&part=1-3"
    got = await world.api.http.get(f"{work['inputs'][0]['url']}&{query}")
    assert got.content == b"".join(READS.splitlines(keepends=True)[:6])


@reads("workunit.outputs")
async def workunit_outputs(world: World) -> None:
    task, work = await first_part(world)
    assert work["outputs"] == task["outputs"]


@reads("workunit.predata")
async def workunit_predata(world: World) -> None:
    task, work = await first_part(world)
    assert work["predata"] == task["predata"]
    assert work["predata"][0]["filename"] == "ref.db"


@reads("workunit.cmd")
async def workunit_cmd(world: World) -> None:
    task, work = await first_part(world)
    assert work["cmd"] == task["cmd"]
    assert "secret" not in str(work)


@reads("workunit.rank")
async def workunit_rank(world: World) -> None:
    job, worker = await world.submit(), await world.worker()
    assert [(await world.take(worker))["rank"] for _ in range(3)] == [1, 2, 3]
    await world.array()
    alone = await world.take(await world.worker("w2"))
    assert (await world.work(alone["id"]))["rank"] == 0
    assert alone["jobid"] != job["id"]


@reads("workunit.partinfo")
async def workunit_partinfo(world: World) -> None:
    task, work = await first_part(world)
    assert work["partinfo"] == task["partinfo"]
    assert work["partinfo"]["totalindex"] == 7


@reads("workunit.state")
async def workunit_state(world: World) -> None:
    job, worker = await world.array(ranks=2, noretry=True), await world.worker()
    one, two = (f"{job['id']}_0_{rank}" for rank in (1, 2))
    assert (await world.work(one))["state"] == "queued"
    works = [await world.take(worker), await world.take(worker)]
    assert (await world.work(one))["state"] == "checkout"
    await world.done(works[0])
    assert (await world.work(one))["state"] == "completed"
    await world.fail(works[1])
    assert (await world.work(two))["state"] == "suspend"


@reads("workunit.failed")
async def workunit_failed(world: World) -> None:
    job, worker = await world.array(), await world.worker()
    for count in (1, 2, 3):
        await world.fail(await world.take(worker))
        work = await world.work(f"{job['id']}_0_0")
        assert work["failed"] == count
    assert work["state"] == "suspend"


@reads("workunit.checkout_time")
async def workunit_checkout_time(world: World) -> None:
    job, worker = await world.array(), await world.worker()
    assert (await world.work(f"{job['id']}_0_0"))["checkout_time"] == ZERO_TIME
    world.hands.advance(20)
    work = await world.take(worker)
    assert work["checkout_time"] == (await world.work(work["id"]))["checkout_time"] == world.now()


@reads("workunit.client")
async def workunit_client(world: World) -> None:
    job, worker = await world.array(), await world.worker()
    assert (await world.work(f"{job['id']}_0_0"))["client"] == ""
    work = await world.take(worker)
    await world.done(work)
    assert (await world.work(work["id"]))["client"] == worker["id"]


@reads("workunit.computetime")
async def workunit_computetime(world: World) -> None:
    await world.array()
    work = await world.take(await world.worker())
    assert (await world.work(work["id"]))["computetime"] == 0
    await world.done(work, 600)
    assert (await world.work(work["id"]))["computetime"] == 600


# --- client ---------------------------------------------------------------------------------------


async def said(world: World, key: str, value: Any) -> None:
    """What a client says of itself is shown, also in the list."""
    client = await world.worker(**{"name": "node7", key: value})
    assert (await world.client(client))[key] == value
    assert [row[key] for row in await world.api.ok("GET", "/client")] == [value]


def plain(key: str, value: Any) -> None:
    async def check(world: World) -> None:
        await said(world, key, value)

    reads(f"client.{key}")(check)


plain("name", "node7")
plain("group", "big-memory")
plain("user", "anna")
plain("domain", "magellan")
plain("instance_id", "000dfa")
plain("instance_type", "idp100")
plain("cores", 8)
plain("apps", ["fgs", "bowtie"])
plain("proxy", True)


@reads("client.id")
async def client_id(world: World) -> None:
    given = await world.worker()
    assert UUID(given["id"]).version == 4
    own = await world.worker("w2", id="c779a7f7-953d-4079-8388-591ee2065bad")
    assert (await world.client(own))["id"] == "c779a7f7-953d-4079-8388-591ee2065bad"


@reads("client.host")
async def client_host(world: World) -> None:
    await said(world, "host", "10.0.0.7")
    silent = await world.worker("w2", hostname="node7")
    assert (await world.client(silent))["host"] == "127.0.0.1"
    assert (await world.client(silent))["hostname"] == "node7"


@reads("client.remaintasks")
async def client_remaintasks(world: World) -> None:
    await world.array(ranks=3)
    client = await world.worker()
    assert (await world.client(client))["remaintasks"] == 0
    works = [await world.take(client), await world.take(client)]
    assert (await world.client(client))["remaintasks"] == 2
    await world.done(works[0])
    assert (await world.client(client))["remaintasks"] == 1


@reads("client.regtime")
async def client_regtime(world: World) -> None:
    first = world.now()
    client = await world.worker()
    world.hands.advance(3600)
    await world.worker(id=client["id"])
    assert (await world.client(client))["regtime"] == first


@reads("client.serve_time")
async def client_serve_time(world: World) -> None:
    client = await world.worker()
    assert client["serve_time"] == "0h0m"
    world.hands.advance(50 * 3600 + 16 * 60)
    await world.worker(id=client["id"])
    assert (await world.client(client))["serve_time"] == "50h16m"


@reads("client.idle_time")
async def client_idle_time(world: World) -> None:
    client = await world.worker()
    world.hands.advance(100)
    assert (await world.client(client))["idle_time"] == 100
    job = await world.array(ranks=3)
    for end in (world.done, world.fail):
        work = await world.take(client)
        world.hands.advance(30)
        assert (await world.client(client))["idle_time"] == 0
        await end(work)
        world.hands.advance(20)
        assert (await world.client(client))["idle_time"] == 20
    await world.take(client)
    world.hands.advance(30)
    await world.api.ok("PUT", f"/job/{job['id']}?suspend")
    world.hands.advance(10)
    assert (await world.client(client))["idle_time"] == 10


@reads("client.Status")
async def client_status(world: World) -> None:
    await world.array()
    client = await world.worker()
    assert (await world.client(client))["Status"] == "active-idle"
    await world.take(client)
    assert (await world.client(client))["Status"] == "active-busy"
    await world.api.ok("PUT", f"/client/{client['id']}?suspend")
    assert (await world.client(client))["Status"] == "suspend"


@reads("client.total_checkout")
async def client_total_checkout(world: World) -> None:
    await world.array(ranks=3)
    client = await world.worker()
    for _ in range(2):
        await world.take(client)
    assert (await world.client(client))["total_checkout"] == 2


@reads("client.total_completed")
async def client_total_completed(world: World) -> None:
    await world.array(ranks=3)
    client = await world.worker()
    for _ in range(2):
        await world.done(await world.take(client))
    await world.take(client)
    assert (await world.client(client))["total_completed"] == 2


@reads("client.total_failed")
async def client_total_failed(world: World) -> None:
    await world.array(ranks=3)
    client = await world.worker()
    await world.fail(await world.take(client))
    await world.done(await world.take(client))
    assert (await world.client(client))["total_failed"] == 1


@reads("client.current_work")
async def client_current_work(world: World) -> None:
    await world.array(ranks=3)
    client = await world.worker()
    works = [await world.take(client), await world.take(client)]
    assert (await world.client(client))["current_work"] == {"data": [work["id"] for work in works]}
    await world.done(works[0])
    assert (await world.client(client))["current_work"] == {"data": [works[1]["id"]]}


@reads("client.skip_work")
async def client_skip_work(world: World) -> None:
    await world.array()
    bad, good = await world.worker("bad"), await world.worker("good")
    work = await world.take(bad)
    await world.fail(work)
    assert (await world.client(bad))["skip_work"] == [work["id"]]
    # It is not offered there again while another client could run it.
    await world.api.refused("GET", f"/work?client={bad['id']}", 400, "no_work")
    assert (await world.take(good))["id"] == work["id"]
    assert (await world.client(good))["skip_work"] == []


@reads("client.subclients")
async def client_subclients(world: World) -> None:
    client = await world.worker(proxy=True, subclients=2)
    assert (await world.client(client))["subclients"] == 2
    await world.api.ok("PUT", f"/client/{client['id']}?subclients=5")
    assert (await world.client(client))["subclients"] == 5


# --- the page -------------------------------------------------------------------------------------

_ROW = re.compile(r"^\| `(?P<key>\w+)` \|(?P<cells>.*)\|$")
_CODE = re.compile(r"`([^`]+)`")


def documented() -> dict[str, tuple[list[str], list[str]]]:
    """Of each attribute on the page: the functions that set it, and its tests."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    entity = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            entity = line.removeprefix("## ").strip().lower()
        elif entity in SEED and (row := _ROW.match(line)):
            cells = row["cells"].split(" | ")
            found[f"{entity}.{row['key']}"] = _CODE.findall(cells[-2]), _CODE.findall(cells[-1])
    return found


def test_the_page_names_exactly_these_attributes_in_this_order() -> None:
    assert list(documented()) == [f"{entity}.{key}" for entity, keys in SEED.items() for key in keys]


def test_each_attribute_of_the_page_has_its_test() -> None:
    for attribute, (_, tests) in documented().items():
        assert tests == [f"test_attribute[{attribute}]"]
        assert attribute in CHECKS


def test_every_function_that_the_page_names_exists() -> None:
    for attribute, (setters, _) in documented().items():
        assert setters, attribute
        for name in setters:
            module, _, function = name.rpartition(".")
            assert callable(getattr(importlib.import_module(module), function)), (attribute, name)
