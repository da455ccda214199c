"""The checker finds nothing in a sound world, and of a world with one thing broken exactly that."""

import asyncio
import copy
import hashlib
import json
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_server.api import build_api
from awe_server.app import build_services
from awe_server.runtime.clock import Clock
from awe_server.settings import Settings
from shared_models.times import ZERO_TIME
from tests.support import tally
from tests.support.eventually import eventually_sync
from tests.support.invariants import (
    COLLECTIONS,
    Going,
    Ledger,
    Someone,
    Tape,
    check_all,
    check_events,
    check_files,
    check_given_back,
    check_ledger,
    check_logs,
    check_processes,
    check_temporary,
    counted,
    processes_of,
)
from tests.support.raw_http import FIRST

Document = dict[str, Any]
TRUE = {"name": "true"}


@dataclass
class Site:
    """A server in process and a native client; what was answered, told and stored."""

    http: httpx.AsyncClient
    requests: int = 0
    client: str = ""
    held: list[Document] = field(default_factory=list)

    async def ok(self, method: str, path: str, **more: Any) -> Any:
        reply = await self.http.request(method, path, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]

    async def exchange(self, *reports: Document, want: int = 0) -> list[Document]:
        """What was granted."""
        self.requests += 1
        body = {
            "incarnation": "i", "request_id": self.requests, "want": want, "reports": reports,
            "holds": [[grant["id"], grant["attempt"]] for grant in self.held],
        }  # fmt: skip
        data = await self.ok("POST", f"/client/{self.client}/exchange", json=body)
        for grant in data["work"]:
            grant["id"] = f"{grant['task']}_{grant['rank']}"
        ended = {report["work"] for report in reports}
        self.held = [grant for grant in self.held if grant["id"] not in ended] + data["work"]
        granted: list[Document] = data["work"]
        return granted


def done(grant: Document, outcome: str = "done") -> Document:
    return {
        "work": grant["id"], "attempt": grant["attempt"], "token": grant["token"], "outcome": outcome,
        "computetime_s": 1, **({"kind": "command", "exit_code": 1} if outcome == "failed" else {}),
    }  # fmt: skip


async def live(site: Site) -> None:
    """A finished job of two tasks, done again once; one with a failure, whose last rank is held; one that is
    suspended; an upload."""
    profile = {
        "name": "w", "group": "g", "apps": ["*"], "cores": 8, "native": True, "incarnation": "i",
        "memory_bytes": 2**30, "disk_bytes": 2**30,
    }  # fmt: skip
    site.client = (await site.ok("POST", "/client", json=profile))["id"]
    two = [
        {"taskid": "0", "cmd": TRUE, "totalwork": 2},
        {"taskid": "1", "cmd": TRUE, "dependsOn": ["0"]},
    ]
    first = await site.ok("POST", "/job", json={"tasks": two})
    for _ in range(2):
        await site.exchange(*map(done, await site.exchange(want=2)))
    await site.ok("PUT", f"/job/{first['id']}?recompute=1")
    await site.exchange(*map(done, await site.exchange(want=1)))
    await site.ok("POST", "/job", json={"tasks": [{"taskid": "0", "cmd": TRUE, "totalwork": 4}]})
    one, other = await site.exchange(want=2)
    await site.exchange(done(one), done(other, "failed"))
    await site.exchange(want=1)
    halted = await site.ok("POST", "/job", json={"tasks": [{"taskid": "0", "cmd": TRUE}]})
    await site.ok("PUT", f"/job/{halted['id']}?suspend")
    await site.ok("POST", "/node", content=b"hello")


@dataclass
class Found:
    """What a world left; tests break it."""

    documents: dict[str, list[Document]]
    tape: Tape
    ledger: Ledger

    def job(self, state: str) -> Document:
        return next(job for job in self.documents["jobs"] if job["state"] == state)

    def tasks_of(self, state: str) -> list[Document]:
        job = self.job(state)["id"]
        return sorted(
            (t for t in self.documents["tasks"] if t["jobid"] == job), key=lambda t: int(t["index"])
        )

    def unit(self, state: str, job_state: str = "in-progress") -> Document:
        job = self.job(job_state)["id"]
        return next(u for u in self.documents["workunits"] if (u["jobid"], u["state"]) == (job, state))

    def tell(self, **event: Any) -> None:
        self.tape.add([{"seq": self.tape.last + 1, **event}])

    def broken(self) -> list[str]:
        return check_all(self.documents, self.tape, self.ledger)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Document], list[httpx.Response]]:
    """Documents as text, events, and the answers, of a sound world."""

    async def run() -> tuple[str, list[Document], list[httpx.Response]]:
        services = build_services(
            Settings(
                data_dir=tmp_path_factory.mktemp("site") / "data", store_url="memory:", free_floor_bytes=0,
                retry_base_s=100.0,
            ),
            clock=Clock(),
            fatal=lambda exc: None,
        )  # fmt: skip
        answers: list[httpx.Response] = []

        async def keep(response: httpx.Response) -> None:
            await response.aread()
            answers.append(response)

        await services.engine.start()
        transport = httpx.ASGITransport(build_api(services))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8001", event_hooks={"response": [keep]}
        ) as http:
            await live(Site(http))
        await services.engine.settled()
        documents = {name: [doc async for doc in services.engine.scan(name)] for name in COLLECTIONS}
        events = services.engine.events.since(0)
        await services.engine.stop()
        return json.dumps(documents), events, answers

    return asyncio.run(run())


@pytest.fixture
def found(life: tuple[str, list[Document], list[httpx.Response]]) -> Found:
    documents, events, answers = life
    tape, ledger = Tape(), Ledger()
    tape.add(copy.deepcopy(events))
    for answer in answers:
        ledger.asks(answer.request)
        ledger.saw(answer)
    return Found(json.loads(documents), tape, ledger)


def test_a_sound_world_is_sound(found: Found) -> None:
    assert found.broken() == []
    assert Counter(job["state"] for job in found.documents["jobs"]) == {
        "completed": 1,
        "in-progress": 1,
        "suspend": 1,
    }
    assert len(found.ledger.jobs) == 3
    assert len(found.ledger.results) == 5
    assert len(found.ledger.nodes) == 1
    assert [len(life) for life in found.tape.lives] == [len(found.tape.lives[0])]


def lost_job(found: Found) -> None:
    id = found.job("completed")["id"]
    found.documents = {
        name: [d for d in all if id not in (d["id"], d.get("jobid"))] for name, all in found.documents.items()
    }


def lost_job_document(found: Found) -> None:
    found.documents["jobs"].remove(found.job("suspend"))


def lost_task(found: Found) -> None:
    found.documents["tasks"].remove(found.tasks_of("suspend")[0])


def lost_result(found: Found) -> None:
    found.unit("completed").update(state="queued", exit=None)
    found.tasks_of("in-progress")[0]["remainwork"] += 1


def lost_workunit(found: Found) -> None:
    found.documents["workunits"].remove(found.unit("completed"))


def lost_upload(found: Found) -> None:
    found.documents["nodes"][0]["file"]["checksum"]["md5"] = "0"


def another_attempt(found: Found) -> None:
    unit = found.unit("completed")
    unit["attempt"] += 1
    found.tasks_of("in-progress")[0]["max_attempt"] += 1


def accepted_twice(found: Found) -> None:
    answers = next(iter(found.ledger.results.values()))
    answers.add((2, "i", 77))


def done_twice(found: Found) -> None:
    unit = found.unit("completed")
    found.tell(code="WD", jobid=unit["jobid"], workid=unit["id"], clientid=unit["client"])


def held_by_two(found: Found) -> None:
    found.tell(code="WC", jobid="", workids=[found.unit("checkout")["id"]], clientid="other")


def done_work_is_given(found: Found) -> None:
    found.tell(code="WC", jobid="", workids=[found.unit("completed")["id"]], clientid="other")


def done_work_fails(found: Found) -> None:
    found.tell(code="WR", jobid="", workid=found.unit("completed")["id"])


def ended_job_goes_on(found: Found) -> None:
    found.tell(code="TQ", jobid=found.job("completed")["id"], taskid="t")


def task_done_twice(found: Found) -> None:
    for _ in range(2):
        found.tell(code="TD", jobid=found.job("in-progress")["id"], taskid="t")


def child_first(found: Found) -> None:
    job = found.job("suspend")
    parent, child = f"{job['id']}_p", found.tasks_of("suspend")[0]
    found.tell(code="WC", jobid=job["id"], workids=[f"{child['id']}_0"], clientid="c")
    child["dependsOn"] = [parent]


def child_before_its_parent(found: Found) -> None:
    parent, child = found.tasks_of("completed")
    found.unit("completed", "completed")
    for unit in found.documents["workunits"]:
        if unit["taskid"] == child["id"]:
            unit["checkout_time"] = "2001-01-01T00:00:00Z"
    assert parent["completeddate"] > ZERO_TIME


def cut_too_early(found: Found) -> None:
    child = copy.deepcopy(found.tasks_of("suspend")[0])
    child.update(
        id=f"{child['jobid']}_1", task_name="1", index=1, dependsOn=[found.tasks_of("suspend")[0]["id"]]
    )
    child["_is_cut"] = True
    found.documents["tasks"].append(child)
    job = found.job("suspend")
    job["task_names"].append("1")
    job["remaintasks"] += 1


def set_job(state: str, /, **values: Any) -> Callable[[Found], None]:
    return lambda found: found.job(state).update(values)


def set_task(state: str, /, **values: Any) -> Callable[[Found], None]:
    return lambda found: found.tasks_of(state)[0].update(values)


def set_unit(state: str, /, **values: Any) -> Callable[[Found], None]:
    return lambda found: found.unit(state).update(values)


def set_client(**values: Any) -> Callable[[Found], None]:
    return lambda found: found.documents["clients"][0].update(values)


def same_number(found: Found) -> None:
    found.job("completed")["_jid"] = found.job("suspend")["_jid"]


def number_to_come(found: Found) -> None:
    next(d for d in found.documents["meta"] if d["id"] == "counters")["jid"] -= 1


@pytest.mark.parametrize(
    ("breakage", "facts"),
    [
        (lost_job, ["(5) job ID was acknowledged"]),
        (lost_job_document, ["(4) 1 tasks are stored of job ID", "(5) job ID was acknowledged"]),
        (lost_task, ["job ID (suspend): (5) its tasks are", "job ID (suspend): (4) remaintasks is 1, 0"]),
        (lost_result, ["(5) the result of ID_0_1 attempt 1 was acknowledged, the workunit is queued"]),
        (
            lost_workunit,
            [
                "task ID_0 (in-progress): (4) remainwork is 3, 0 of 4",
                "task ID_0 (in-progress): (4) handed out were ranks 1 to 3, stored are 2",
                "(5) the result of ID_0_1 attempt 1 was acknowledged, the workunit is not stored",
            ],
        ),
        (lost_upload, ["(5) the upload of node ID was acknowledged"]),
        (another_attempt, ["(1) ID_0_1: attempt 1 was accepted, stored is that of 2"]),
        (accepted_twice, ["(1) 2 results of workunit ID_0_1 were accepted"]),
        (done_twice, ["(1) event N WD: workunit ID_0_1 was done already"]),
        (held_by_two, ["(1) event N WC: ID_0_3 is given to other, ID has it"]),
        (done_work_is_given, ["(2) event N WC: workunit ID_0_1 was done"]),
        (done_work_fails, ["(2) event N WR: workunit ID_0_1 was done already"]),
        (ended_job_goes_on, ["(2) event N TQ: job ID had ended (JD)"]),
        (task_done_twice, ["(2) event N TD: task t was done already"]),
        (child_first, ["(3) event N WC: ID_0_0 before ['ID_p']"]),
        (child_before_its_parent, ["task ID_1 (completed): (3) rank 0 was handed out at 2001"]),
        (cut_too_early, ["task ID_1 (suspend): (3) it was cut, its parent 0 is suspend"]),
        (same_number, ["(4) job number 10003 was given 2 times"]),
        (number_to_come, ["(4) job number 10003 was given 1 times, the counter is at 10002"]),
        (set_job("completed", remaintasks=1), ["job ID (completed): (4) remaintasks is 1, 0 are not done"]),
        (set_job("suspend", state="completed"), ["job ID (completed): (4) 1 tasks are not done"]),
        (set_job("suspend", notes=""), ["job ID (suspend): it does not say why"]),
        (set_task("suspend", state="queued"), ["job ID (suspend): (2) its task 0 is queued"]),
        (set_task("in-progress", remainwork=2), ["task ID_0 (in-progress): (4) remainwork is 2, 1 of 4"]),
        (
            set_task("in-progress", fresh_rank=3),
            ["task ID_0 (in-progress): (4) handed out were ranks 1 to 2, stored are 3"],
        ),
        (
            set_task("in-progress", state="completed"),
            [
                "job ID (in-progress): (4) remaintasks is 1, 0 are not done",
                "job ID (in-progress): (4) 0 tasks are not done",
                "task ID_0 (completed): (4) 1 of 4 workunits are completed",
            ],
        ),
        (set_task("in-progress", state="queued"), ["task ID_0 (queued): (4) workunits were handed out"]),
        (
            set_task("in-progress", generation=7),
            [
                f"task ID_0 (in-progress): rank {rank} ({state}): (4) it is of generation 1"
                for rank, state in ((1, "completed"), (2, "queued"), (3, "checkout"))
            ],
        ),
        (set_unit("queued", attempt=9), ["task ID_0 (in-progress): rank 2 (queued): (4) attempt 9"]),
        (set_unit("queued", state="suspend"), ["task ID_0 (in-progress): rank 2 (suspend): (2) its job is"]),
        (
            set_job("in-progress", state="suspend", notes="why"),
            [
                "job ID (suspend): (2) its task 0 is in-progress",
                "task ID_0 (in-progress): rank 2 (queued): (6) its job is suspend",
                "task ID_0 (in-progress): rank 3 (checkout): (6) its job is suspend",
            ],
        ),
        (
            set_unit("checkout", client="nobody"),
            [
                "task ID_0 (in-progress): rank 3 (checkout): (6) it is leased to client nobody, which is not",
                "(4) client ID is active-busy and holds 0 workunits",
            ],
        ),
        (
            set_unit("checkout", _token=""),
            ["task ID_0 (in-progress): rank 3 (checkout): (6) it is leased wi"],
        ),
        (
            set_client(Status="offline"),
            ["task ID_0 (in-progress): rank 3 (checkout): (6) it is leased to client ID, which is offline"],
        ),
        (set_client(total_completed=3), ["(4) client ID completed 3, stored are 4 of its workunits"]),
        (set_client(Status="active-idle"), ["(4) client ID is active-idle and holds 1 workunits"]),
        (
            set_client(Status="suspend", suspended=True),
            [
                "task ID_0 (in-progress): rank 3 (checkout): (6) it is leased to client ID, which is suspend",
                "client ID is suspended and does not say why",
            ],
        ),
    ],
)
def test_what_is_broken_is_found_and_nothing_else(
    found: Found, breakage: Callable[[Found], None], facts: list[str]
) -> None:
    breakage(found)
    broken = [_plain(fact) for fact in found.broken()]
    assert len(broken) == len(facts), broken
    assert all(fact.startswith(start) for fact, start in zip(broken, facts, strict=True)), broken


def _plain(fact: str) -> str:
    """Without ids and numbers of events."""
    fact = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", fact)
    return re.sub(r"event \d+", "event N", fact)


# -- what was answered ---------------------------------------------------------------------------------------


def sent(ledger: Ledger, method: str, path: str, body: Any = None) -> httpx.Request:
    request = httpx.Request(method, f"http://server{path}", json=body)
    ledger.asks(request)
    return request


def answered(ledger: Ledger, request: httpx.Request, data: Any) -> None:
    ledger.saw(httpx.Response(200, json={"status": 200, "data": data, "error": None}, request=request))


def refused(ledger: Ledger, request: httpx.Request) -> None:
    ledger.saw(httpx.Response(409, json={"status": 409, "data": None, "error": ["no"]}, request=request))


def reported(ledger: Ledger, attempt: int, request_id: int, **more: Any) -> httpx.Request:
    report = {"work": "j_0_0", "attempt": attempt, "outcome": "done", **more}
    body = {"incarnation": "i", "request_id": request_id, "reports": [report]}
    return sent(ledger, "POST", "/client/c/exchange", body)


def accepted(attempt: int, result: str = "accepted") -> Document:
    return {"results": [{"work": "j_0_0", "attempt": attempt, "result": result}]}


def test_results_of_a_job_that_is_done_again_are_told_apart() -> None:
    ledger = Ledger()
    answered(ledger, reported(ledger, 1, 1), accepted(1))
    assert ledger.done == {"j_0_0": (1, 0)}
    answered(ledger, sent(ledger, "PUT", "/job/j?recompute=0"), "started")
    answered(ledger, reported(ledger, 2, 2), accepted(2))
    assert ledger.done == {"j_0_0": (2, 1)}
    assert [len(told) for told in ledger.results.values()] == [1, 1]


def test_a_result_that_was_under_way_with_a_recompute_proves_nothing() -> None:
    ledger = Ledger()
    before = reported(ledger, 1, 1)
    verb = sent(ledger, "PUT", "/job/j?resubmit")
    within = reported(ledger, 1, 2)
    answered(ledger, verb, "started")
    for request in (before, within):
        answered(ledger, request, accepted(1))
    assert (ledger.done, ledger.results) == ({}, {})
    sent(ledger, "PUT", "/job/j?resubmit")  # is never answered
    answered(ledger, reported(ledger, 2, 3), accepted(2))
    assert (ledger.done, ledger.results) == ({}, {})


@pytest.mark.parametrize(
    ("breakage", "fact"),
    [
        (lost_result, "(5) the result of ID_0_1 attempt 1 was ack"),
        (accepted_twice, "(1) 2 results of workunit"),
    ],
)
@pytest.mark.parametrize("path", ["/job?resumeall", "/job/ID?resume"])
def test_what_was_accepted_counts_after_a_resume_too(
    found: Found, breakage: Callable[[Found], None], fact: str, path: str
) -> None:
    verb = sent(found.ledger, "PUT", path.replace("ID", found.job("in-progress")["id"]))
    answered(found.ledger, verb, "resumed")
    breakage(found)
    assert any(_plain(line).startswith(fact) for line in found.broken()), found.broken()


@pytest.mark.parametrize("verb", ["recompute=0", "resubmit"])
def test_a_refused_verb_undoes_nothing(verb: str) -> None:
    ledger = Ledger()
    answered(ledger, reported(ledger, 1, 1), accepted(1))
    refused(ledger, sent(ledger, "PUT", f"/job/j?{verb}"))
    assert ledger.reopenings_of("j_0_0") == []
    answered(ledger, reported(ledger, 2, 2), accepted(2))
    assert [len(told) for told in ledger.results.values()] == [2]


@pytest.mark.parametrize(("first", "results"), [("200", [1, 1]), ("503", [1, 1]), ("409", [2])])
@pytest.mark.parametrize("verb", ["recompute=0", "resubmit"])
def test_the_second_of_two_requests_refused_says_nothing_of_the_first(
    verb: str, first: str, results: list[int]
) -> None:
    """But that one may have been refused, too."""
    ledger = Ledger()
    answered(ledger, reported(ledger, 1, 1), accepted(1))
    request = sent(ledger, "PUT", f"/job/j?{verb}")
    ledger.saw(httpx.Response(409, headers={FIRST: first}, json={"data": None}, request=request))
    answered(ledger, reported(ledger, 2, 2), accepted(2))
    assert [len(told) for told in ledger.results.values()] == results


def test_an_answer_that_was_given_again_counts_once() -> None:
    ledger = Ledger()
    for _ in range(2):
        answered(ledger, reported(ledger, 1, 1), accepted(1))
    answered(ledger, reported(ledger, 1, 2), accepted(1, "duplicate"))
    assert [len(told) for told in ledger.results.values()] == [1]
    answered(ledger, reported(ledger, 1, 3), accepted(1))
    assert [len(told) for told in ledger.results.values()] == [2]


def test_what_was_asked_to_go_may_go_even_if_nobody_heard_the_answer() -> None:
    ledger = Ledger()
    sent(ledger, "DELETE", "/job/a?full")
    sent(ledger, "PUT", "/job/b?expiration=1M")
    sent(ledger, "DELETE", "/node/n")
    sent(ledger, "DELETE", "/job/c")
    sent(ledger, "PUT", "/node/output?work=j_0_0&attempt=1")
    assert (ledger.going.keys(), ledger.changed_nodes, ledger.all_removed) == ({"a", "b"}, {"n"}, False)
    sent(ledger, "DELETE", "/job?suspend&full")
    assert ledger.all_removed


def going(ledger: Ledger, now: str) -> list[str]:
    documents: dict[str, list[Document]] = {"jobs": [], "workunits": [], "nodes": []}
    ledger.jobs.add("j")
    return list(check_ledger(ledger, documents, Tape(), now))


@pytest.mark.parametrize("path", ["PUT /job/j?expiration=1M", "DELETE /job/j?full"])
def test_whose_removal_was_refused_has_to_stay(path: str) -> None:
    ledger = Ledger()
    refused(ledger, sent(ledger, *path.split()))
    assert len(going(ledger, "2026-01-02T00:00:00Z")) == 1


def test_who_expires_stays_until_then() -> None:
    ledger, said = Ledger(), "expiration '2026-01-01T12:00:00Z' set for job: j"
    answered(ledger, sent(ledger, "PUT", "/job/j?expiration=1D"), said)
    assert len(going(ledger, "2026-01-01T11:00:00Z")) == 1
    assert going(ledger, "2026-01-01T12:00:00Z") == []
    assert going(ledger, "") == []


def test_an_upload_that_expires_stays_until_then() -> None:
    ledger = Ledger()
    node = {"id": "n", "file": {"checksum": {"md5": "m"}}, "expiration": "2026-01-01T12:00:00Z"}
    answered(ledger, sent(ledger, "POST", "/node"), node)
    ledger.going["j"] = [Going()]
    assert len(going(ledger, "2026-01-01T11:00:00Z")) == 1
    assert going(ledger, "2026-01-01T12:00:00Z") == []


def test_of_an_accepted_result_the_outputs_are_those_that_were_reported() -> None:
    ledger = Ledger()
    request = reported(ledger, 1, 1, outputs=[{"filename": "out", "size": 1, "md5": "m"}])
    answered(ledger, request, accepted(1))
    for md5, count in (("m", 0), ("other", 1)):
        unit = {"id": "j_0_0", "state": "completed", "attempt": 1, "exit": None}
        unit["outputs"] = [{"filename": "out", "md5": md5}]
        documents: dict[str, list[Document]] = {"jobs": [{"id": "j"}], "workunits": [unit], "nodes": []}
        assert [fact[:3] for fact in check_ledger(ledger, documents, Tape())] == ["(5)"] * count


@pytest.mark.parametrize("later", ["WD", "WC"])
def test_a_result_that_was_made_after_one_was_no_good_counts(later: str) -> None:
    ledger, tape = Ledger(), Tape()
    answered(ledger, reported(ledger, 1, 1), accepted(1))
    event: Document = {"workid": "j_0_0", "workids": ["j_0_0"], "jobid": "j", "clientid": "c"}
    tape.add([
        {**event, "seq": 1, "code": "WF", "kind": "output"},
        {**event, "seq": 2, "code": later},
    ])  # fmt: skip
    unit = {"id": "j_0_0", "state": "queued", "attempt": 1, "exit": None}
    documents: dict[str, list[Document]] = {"jobs": [{"id": "j"}], "workunits": [unit], "nodes": []}
    assert len(list(check_ledger(ledger, documents, tape))) == (later == "WD")


@pytest.mark.parametrize("kind", ["output", "command"])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_result_whose_outputs_were_not_as_reported_may_become_a_failure(kind: str, is_told: bool) -> None:
    ledger, tape = Ledger(), Tape()
    answered(ledger, reported(ledger, 1, 1), accepted(1))
    if is_told:
        tape.add([{"seq": 1, "code": "WF", "workid": "j_0_0", "kind": kind}])
    unit = {"id": "j_0_0", "state": "queued", "attempt": 1, "exit": None if is_told else {"kind": kind}}
    documents: dict[str, list[Document]] = {"jobs": [{"id": "j"}], "workunits": [unit], "nodes": []}
    assert [fact[:3] for fact in check_ledger(ledger, documents, tape)] == ["(5)"] * (kind == "command")


# -- what was told -------------------------------------------------------------------------------------------


def test_where_events_are_missing_nothing_is_concluded() -> None:
    given: Document = {"code": "WC", "jobid": "j", "workids": ["j_0_0"], "clientid": "c"}
    other: Document = {**given, "clientid": "d"}
    whole, torn, killed = Tape(), Tape(), Tape()
    whole.add([{"seq": 1, **given}, {"seq": 2, **other}])
    torn.add([{"seq": 1, **given}, {"seq": 3, **other}])
    killed.add([{"seq": 1, **given}])
    killed.gap()
    killed.add([{"seq": 2, **other}])
    assert [len(list(check_events(tape, {}))) for tape in (whole, torn, killed)] == [1, 0, 0]


def over_two_lives(found: Found) -> None:
    """The server was killed after all it had to tell, and nobody ever asked it anything."""
    found.ledger = Ledger()
    found.tape.gap()


def told_job(found: Found) -> None:
    found.tell(code="JQ", jobid="gone")


def told_result(found: Found) -> None:
    lost_result(found)


def told_end(found: Found) -> None:
    found.tell(code="JD", jobid=found.job("suspend")["id"])


@pytest.mark.parametrize(
    ("breakage", "facts"),
    [
        (told_job, ["(5) job gone was told of and is not stored"]),
        (told_result, ["(5) the result of ID_0_1 was told of, the workunit is queued"]),
        (told_end, ["(5) job ID was said to be completed, stored is suspend"]),
        (done_twice, ["(1) the result of ID_0_1 was told of in two lives"]),
    ],
)
@pytest.mark.parametrize("is_undone", [False, True])
def test_what_was_told_is_there_in_all_lives_unless_it_was_undone(
    found: Found, breakage: Callable[[Found], None], facts: list[str], is_undone: bool
) -> None:
    over_two_lives(found)
    assert found.broken() == []
    if is_undone:
        undo = {told_job: ("JR", "gone"), told_end: ("JC", found.job("suspend")["id"])}
        code, job = undo.get(breakage, ("JC", found.job("in-progress")["id"]))
        found.tell(code=code, jobid=job)
        found.tape.gap()
    breakage(found)
    broken = [_plain(fact) for fact in found.broken()]
    assert len(broken) == (0 if is_undone else len(facts)), broken
    assert all(fact.startswith(start) for fact, start in zip(broken, facts, strict=False)), broken


@pytest.mark.parametrize("event", [{"code": "WF", "kind": "output"}, {"code": "JP"}])
def test_a_result_that_was_no_good_may_be_made_again(found: Found, event: Document) -> None:
    over_two_lives(found)
    unit = found.unit("completed")
    reason = f"failed finishing task {unit['taskid']}, err=gone"
    found.tell(**{"workid": unit["id"], "jobid": unit["jobid"], "reason": reason, **event})
    found.tape.gap()
    done_twice(found)
    assert found.broken() == []
    found.tape.gap()
    done_twice(found)
    assert len(found.broken()) == 1


def test_after_a_recompute_the_order_of_tasks_counts_as_before() -> None:
    tape, job = Tape(), {"jobid": "j"}
    given: Document = {**job, "code": "WC", "clientid": "c"}
    events: list[Document] = [
        {**job, "code": "JQ"},
        {**job, "code": "TD", "taskid": "j_0"},
        {**job, "code": "JC", "taskid": "j_1"},
        {**given, "workids": ["j_1_0"]},
        {**given, "workids": ["j_2_0"]},
    ]
    tape.add([{"seq": seq, **event} for seq, event in enumerate(events, 1)])
    facts = list(check_events(tape, {"j_0": [], "j_1": ["j_0"], "j_2": ["j_1"]}))
    assert facts == ["(3) event 5 WC: j_2_0 before ['j_1']"]


def test_a_tape_takes_page_by_page_and_begins_anew_after_a_start() -> None:
    events: list[Document] = [{"seq": seq, "code": "QS"} for seq in range(11, 16)]

    def answer(request: httpx.Request) -> httpx.Response:
        since = int(request.url.params["since"])
        return httpx.Response(200, json={"data": [e for e in events if e["seq"] > since][:2]})

    tape = Tape()
    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://server") as http:
        tape.read(http, 1)
        tape.read(http, 1)
        events.append({"seq": 20, "code": "QR"})
        tape.read(http, 2)
    assert [[event["seq"] for event in life] for life in tape.lives if life] == [[11, 12, 13, 14, 15], [20]]


# -- what is left --------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "60", *argv], **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_process_of_a_folder_is_found_by_any_of_its_traces(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    home, longer = tmp_path / "site", tmp_path / "site1"
    for folder in (home, longer):
        folder.mkdir()
    sleeper(cwd=longer)
    here = {
        sleeper(cwd=home).pid,
        sleeper(env={"WORK": f"a:{home}:b"}).pid,
        sleeper("0", env={**os.environ, "HOME": str(home)}).pid,
    }
    hidden = sleeper("0", env={}, cwd="/")
    eventually_sync(lambda: processes_of(home).keys() == here, show=lambda: processes_of(home))
    facts = list(check_processes([home], Someone.of([hidden.pid]), within_s=0.0))
    assert len(facts) == 4
    assert all(fact.startswith("(6) process ") for fact in facts)
    assert f"(6) process {hidden.pid} is left: sleep 60 0, state S, child of {os.getpid()}" in facts
    assert list(check_processes([tmp_path / "sit"], within_s=0.0)) == []


def test_processes_have_a_while_to_end(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = sleeper(cwd=tmp_path)
    threading.Timer(0.2, process.kill).start()
    assert list(check_processes([tmp_path], Someone.of([process.pid]))) == []


def test_a_process_that_got_the_number_of_one_that_ended_is_not_left(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    [one] = Someone.of([sleeper(cwd="/").pid])
    assert list(check_processes([tmp_path], [one], within_s=0.0))
    assert list(check_processes([tmp_path], [replace(one, started="1")], within_s=0.0)) == []


def test_files_of_nodes_are_there_and_whole(tmp_path: Path) -> None:
    folder = tmp_path / "nodes" / "blobs"
    folder.mkdir(parents=True)
    checksum = {"sha256": hashlib.sha256(b"hello").hexdigest()}
    nodes = [
        {"id": name, "_blob": name, "file": {"size": 5, "checksum": checksum}}
        for name in ("whole", "gone", "short", "damaged")
    ]
    for name, content in (("whole", b"hello"), ("short", b"hell"), ("damaged", b"hullo")):
        (folder / name).write_bytes(content)
    facts = list(check_files(tmp_path, {"nodes": [*nodes, {"id": "empty", "file": None}]}))
    assert [fact.partition(": its file")[0] for fact in facts] == [
        f"(5) node {name}" for name in ("gone", "short", "damaged")
    ]


def test_what_is_half_made_and_a_claim_that_was_kept_are_found(tmp_path: Path) -> None:
    names = (".tmp-1", "a.part", "b.new", "tmp-2", "c.parts", "news")
    for name in names:
        (tmp_path / name).touch()
    assert len(list(check_temporary(tmp_path))) == 3
    os.utime(tmp_path / ".tmp-1", (1000, 1000))
    assert list(check_temporary(tmp_path, older_than_s=1001)) == [f"(6) {tmp_path / '.tmp-1'} is left"]
    lease: Document = {"id": "lease", "owner": "host:1"}
    assert [fact[:3] for fact in check_given_back({"meta": [lease]})] == ["(6)"]
    for given_back in ([], [{**lease, "owner": ""}]):
        assert list(check_given_back({"meta": given_back})) == []


def test_who_says_that_something_unexpected_went_wrong_is_found(tmp_path: Path) -> None:
    (tmp_path / "server-1.err").write_text("ready\nTraceback (most recent call last):\n  KeyError: 'x'\n")
    (tmp_path / "server-2.err").write_text("ready\n")
    [fact] = check_logs(tmp_path)
    assert "KeyError: 'x'" in fact


def test_what_was_found_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    monkeypatch.setattr(tally, "_counts", counts)
    assert counted([]) == []
    counted(["(1) twice", "task a: (5) gone", "(5) gone", "(6) left", "server 7 ended with 1: (5) (1) "])
    places = tally.places(counts)
    assert [(place.rpartition("::")[2], times) for place, times in places.items()] == [
        ("test_what_was_found_is_counted: (1) twice", 1),
        ("test_what_was_found_is_counted: task a: (5) gone", 2),
    ]
    assert counts == {"sites checked": 2, "lost": 2, "doubled": 1, **places}
