"""Cases from the field about what must not be read, and what must not run: secrets, and scripts in names."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from awe_server.api import job_submit
from tests.api.conftest import Api
from tests.api.test_exchange import Native, native
from tests.api.test_field_reports import task
from tests.support.http_files import HttpFiles

pytestmark = pytest.mark.anyio
__all__ = ["native"]

# -- X-07 ------------------------------------------------------------------------------------------------

#: One word for each kind of secret that passes through the server today.
CANARIES = {
    name: f"canary-{name}"
    for name in ("user-token", "client-token", "data-token", "private", "password", "signature", "new-token")
}


def shown(text: str) -> list[str]:
    """The kinds of secrets that a text gives away."""
    return [name for name, canary in CANARIES.items() if canary in text]


def secret_task(**keys: Any) -> dict[str, Any]:
    cmd = {"name": "x", "environ": {"public": {"A": "1"}, "private": {"KEY": CANARIES["private"]}}}
    return {**task("0"), "cmd": cmd, **keys}


async def everything(api: Api, job_ids: list[str]) -> dict[str, str]:
    """What anybody may look at, by address."""
    paths = ["/", "/health", "/job", "/work", "/client", "/node", "/events?since=0", "/queue", "/metrics"]
    for id in job_ids:
        paths += [f"/job/{id}", f"/job/{id}?why", f"/job/{id}?report", f"/job/{id}?perf", f"/work?jobid={id}"]
        for stream in ("stdout", "stderr", "worknotes"):
            paths.append(f"/work/{id}_0_0?report={stream}")
        paths.append(f"/work/{id}_0_0")
    return {path: (await api.http.get(path)).text for path in paths}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[HttpFiles]:
    """A server of files that has none."""
    with HttpFiles(tmp_path) as web:
        yield web


async def test_X_07_no_secret_is_in_a_view_an_event_a_refusal_or_a_log(
    api: Api,
    native: Native,
    web: HttpFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At debug level: a job that ends well, one that fails, ones that are suspended, ones that are refused.

    A secret in the address of a file is its author's to hide, so an address with a password is refused; the
    query stays part of the document (signed addresses), and of nothing else.
    """
    caplog.set_level(logging.DEBUG, "awe_server")
    api.http.headers["Authorization"] = f"OAuth {CANARIES['user-token']}"
    token = {"Datatoken": CANARIES["data-token"]}

    async def submit(*tasks: dict[str, Any], **info: Any) -> str:
        job = await api.ok("POST", "/job", json={"info": info, "tasks": tasks}, headers=token)
        return str(job["id"])

    fine, failing = await submit(secret_task()), await submit(secret_task(), noretry=True)
    own = {"Authorization": f"CG_TOKEN {CANARIES['client-token']}"}
    for outcome in ({"outcome": "done"}, {"outcome": "failed", "kind": "command", "exit_code": 1}):
        message = native.message(want=1)
        native.request_id += 1
        message["request_id"] = native.request_id
        reply = await api.ok("POST", f"/client/{native.id}/exchange", json=message, headers=own)
        [grant] = reply["work"]
        [given] = reply["tasks"].values()
        assert given["private_env"] == {"KEY": CANARIES["private"]}, "whoever runs it does get it"
        grant["id"] = f"{grant['task']}_{grant['rank']}"
        await native.exchange(reports=[native.report(grant, **outcome)])
    url = f"{web.url_of('reads')}?sig={CANARIES['signature']}"
    missing = await submit(secret_task(inputs=[{"filename": "reads", "url": url}], totalwork=2))
    assert "reads" in (await api.state_of({"id": missing}, "suspend"))["notes"]
    stopped = await submit(secret_task())
    await api.ok("PUT", f"/job/{stopped}?suspend")
    await api.ok("PUT", f"/job/{stopped}?settoken", headers={"Datatoken": CANARIES["new-token"]})

    for bad in (
        {**secret_task(), "cmd": {"name": "x", "environ": {"private": {"KEY": [CANARIES["private"]]}}}},
        {**secret_task(), "cmd": {"name": "x", "environ": {"private": {"A=B": CANARIES["private"]}}}},
        {**secret_task(), "cmd": {"name": "x", "environ": {"private": CANARIES["private"]}}},
        secret_task(inputs=[{"filename": "x", "url": f"http://user:{CANARIES['password']}@there/x"}]),
        secret_task(dependsOn=["nowhere"]),
        secret_task(totalwork="many"),
    ):
        refusal = await api.http.post("/job", json={"tasks": [bad]}, headers=token)
        assert refusal.status_code == 400
        assert shown(refusal.text) == [], refusal.text

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("nothing of the request")

    with monkeypatch.context() as patch:
        patch.setattr(job_submit, "build_job", broken)
        reply_500 = await api.http.post("/job", json={"tasks": [secret_task()]}, headers=token)
    assert reply_500.status_code == 500
    assert shown(reply_500.text) == []

    jobs = [fine, failing, missing, stopped]
    states = [(await api.ok("GET", f"/job/{id}"))["state"] for id in jobs]
    assert states == ["completed", "suspend", "suspend", "suspend"]
    for path, text in (await everything(api, jobs)).items():
        assert shown(text.replace(url, "")) == [], path
    assert shown(caplog.text) == []
    for record in caplog.records:
        assert shown(json.dumps(vars(record), default=str)) == [], record.getMessage()


# -- X-11 ------------------------------------------------------------------------------------------------


async def test_X_11_a_data_token_that_was_replaced_is_what_running_work_gets_from_then_on(api: Api) -> None:
    """Nothing of ours expires yet; what somebody else gave does, and work may run longer than that."""

    async def token_of(work: dict[str, Any]) -> str:
        reply = await api.http.get(f"/work/{work['id']}?datatoken&client={work['client']}")
        assert reply.status_code == 200, reply.text
        return reply.headers["datatoken"]

    document = {"tasks": [task("0", totalwork=2)]}
    job = await api.ok("POST", "/job", json=document, headers={"Datatoken": "first"})
    client = await api.register()
    work = await api.checkout(client)
    assert await token_of(work) == "first"
    api.hands.advance(50)
    await api.ok("PUT", f"/job/{job['id']}?settoken", headers={"Datatoken": "second"})
    assert await token_of(work) == "second"
    await api.report(work)
    assert await token_of(await api.checkout(client)) == "second"


# -- X-08 ------------------------------------------------------------------------------------------------

EVIL = "<img src=x onerror=\"fetch('/canary')\"></script>'javascript:alert(1)"


async def test_X_08_what_people_write_is_never_sent_as_a_page(api: Api) -> None:
    """The dashboard is not there yet; whatever a browser opens of the rest is data, text or a download."""
    cmd = {"name": "x", "args_array": [EVIL], "environ": {"public": {"A": EVIL}}, "description": EVIL}
    labels = dict.fromkeys(("name", "user", "project", "pipeline"), EVIL)
    job = await api.submit({**task("0"), "cmd": cmd, "userattr": {"k": EVIL}}, **labels)
    work = await api.checkout(client := await api.register(EVIL))
    printed = {stream: (stream, EVIL.encode()) for stream in ("stdout", "stderr", "worknotes")}
    await api.ok("PUT", f"/work/{work['id']}?status=fail&client={client['id']}", files=printed)
    page = f"<script>{EVIL}</script>".encode()
    node = await api.ok("POST", "/node", files={"upload": ("evil.html", page, "text/html")})
    odd = quote(EVIL, safe="")
    for path in (
        "/", "/job", f"/job/{job['id']}", f"/job/{job['id']}?report", f"/job/{job['id']}?why", "/work",
        f"/work/{work['id']}", f"/work/{work['id']}?report=stdout", "/client", f"/client/{client['id']}",
        "/node", f"/node/{node['id']}", "/events", "/queue?json", f"/job/{odd}", f"/node/{odd}",
        f"/work/{odd}", f"/client/{odd}", f"/job?{odd}=1", f"/job?limit={odd}", f"/{odd}",
    ):  # fmt: skip
        reply = await api.http.get(path)
        assert reply.headers["content-type"].partition(";")[0] == "application/json", path
        assert reply.headers["x-content-type-options"] == "nosniff"
        reply.json()
    for stream in ("stdout", "stderr", "worknotes"):
        log = await api.http.get(f"/work/{work['id']}/log/{stream}?attempt=1")
        assert (log.text, log.headers["x-content-type-options"]) == (EVIL, "nosniff")
        assert log.headers["content-type"].startswith("text/plain")
    got = await api.http.get(f"/node/{node['id']}?download", headers={"Accept": "text/html"})
    assert got.content == page
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"].startswith("attachment")


async def test_X_08_file_names_and_what_clients_say_of_failures_are_data_too(
    api: Api, native: Native
) -> None:
    name = EVIL.replace("/", "\u2215")  # no slash is in a file name: one that looks like it
    node = await api.ok("POST", "/node", files={"upload": (name, b"x", "text/html")})
    job = await api.submit({**task("0"), "outputs": [{"filename": name}], "max_failures": 1})
    await api.state_of(job, "queued")
    [given] = await native.take()
    said = {"kind": "command", "exit_code": 1, "message": EVIL, "stderr_tail": EVIL}
    reply = await native.exchange(reports=[native.report(given, "failed", **said)])
    assert [row["result"] for row in reply["results"]] == ["accepted"]
    assert EVIL in (await api.state_of(job, "suspend"))["notes"]
    work = given["id"]
    for path in (
        f"/job/{job['id']}", f"/job/{job['id']}?why", f"/job/{job['id']}?report", "/job", "/work",
        "/job?verbosity=minimal", f"/work/{work}", f"/work/{work}?report=stderr", "/client", "/node",
        f"/node/{node['id']}", "/events",
    ):  # fmt: skip
        reply = await api.http.get(path, headers={"Accept": "text/html"})
        assert reply.headers["content-type"].partition(";")[0] == "application/json", path
        assert reply.headers["x-content-type-options"] == "nosniff"
        reply.json()
    got = await api.http.get(f"/node/{node['id']}?download", headers={"Accept": "text/html"})
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"].startswith("attachment")


async def test_X_08_the_name_of_a_variable_cannot_be_a_script(api: Api) -> None:
    cmd = {"name": "x", "environ": {"public": {EVIL: "1"}}}
    reply = await api.http.post("/job", json={"tasks": [{**task("0"), "cmd": cmd}]})
    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_document")
    assert reply.headers["content-type"].partition(";")[0] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
