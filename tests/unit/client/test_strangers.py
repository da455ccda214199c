"""A proxy that has no server behind it at the moment answers in its place: nothing is given up for that."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from awe_client.daemon.transfer import FOREIGN_ATTEMPTS
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer, refusal
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.test_at_fault import failure_of
from tests.unit.client.test_transfers import sources_for

pytestmark = pytest.mark.anyio

STRANGERS = {
    "404": Response("<html>nothing here</html>", 404, media_type="text/html"),
    "405": Response("<html>not allowed</html>", 405, media_type="text/html"),
    "501": Response("not implemented", 501, media_type="text/plain"),
    "200": Response("<html>back soon</html>", 200, media_type="text/html"),
    "302": Response("", 302, {"Location": "http://127.0.0.1:9/maintenance"}),
    "520": Response("<html>unknown error</html>", 520, media_type="text/html"),
}


@pytest.mark.parametrize("what", STRANGERS)
async def test_a_finished_result_waits_while_a_proxy_answers_in_place_of_the_server(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("awe_client.daemon.servers.jittered_delay_s", lambda *_, **__: 0.01)
    start()
    server.upload_answers = [STRANGERS[what]] * 12
    out = server.output("out.txt")
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[out])
    report = await server.result(work)
    assert (report["outcome"], report["attempt"]) == ("done", 1), report
    assert server.uploads[out["node"], work, 1] == b"x\n"


async def test_a_refusal_of_the_server_itself_ends_it(server: FakeServer, start: MakeDaemon) -> None:
    start()
    server.upload_answers = [refusal(405, "method_not_allowed", "PUT is not for this node")]
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    assert (await server.result(work))["kind"] == "output"


@pytest.mark.parametrize("what", ["404", "405", "501", "302", "520"])
async def test_an_input_of_ours_is_waited_for_while_a_proxy_answers_in_place_of_the_server(
    server: FakeServer, tmp_path: Path, what: str
) -> None:
    url = f"/node/{server.add_node(b'hello')}?download"
    async with sources_for(server.url) as sources:
        server.refuse = STRANGERS[what]
        getting = asyncio.ensure_future(sources.get(url, tmp_path / "x", Wanted()))
        await eventually(lambda: len(server.requests) >= FOREIGN_ATTEMPTS + 2 or getting.done())
        server.refuse = None
        await getting
    assert (tmp_path / "x").read_bytes() == b"hello"


async def test_a_node_that_the_server_does_not_have_is_the_inputs_fault(
    server: FakeServer, tmp_path: Path
) -> None:
    async with sources_for(server.url) as sources:
        failure = await failure_of(sources, "/node/none?download", tmp_path / "x")
    assert (failure.kind, failure.out_of_reach) == (FailureKind.INPUT, False)


@pytest.mark.parametrize("what", ["404", "405"])
async def test_so_are_attributes_of_an_input(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("awe_client.daemon.servers.jittered_delay_s", lambda *_, **__: 0.01)
    entry = server.input("in.txt", b"x", attrfile="attr.json")
    server.attributes[entry["node"]] = {"a": 1}
    answers = [STRANGERS[what]] * 3
    node_of = FakeServer._get_node

    async def behind(fake: FakeServer, request: Any) -> Response:
        return answers.pop() if answers else await node_of(fake, request)

    monkeypatch.setattr(FakeServer, "_get_node", behind)
    await server.shut()
    await server.start()
    start()
    [work] = await server.add_task(script=["cat attr.json"], inputs=[entry])
    report = await server.result(work)
    assert (report["outcome"], json.loads(report["stdout_tail"])) == ("done", {"a": 1}), report
    assert not answers
