"""One odd submission never crashes the server or poisons the queue (field report X-10)."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import Api
from tests.support.cost import cpu_below

pytestmark = pytest.mark.anyio

VALID: dict[str, Any] = {
    "info": {
        "name": "demo",
        "pipeline": "p",
        "project": "q",
        "user": "u",
        "clientgroups": "default",
        "noretry": False,
        "priority": 3,
        "userattr": {"k": "v"},
    },
    "tasks": [
        {
            "taskid": "0",
            "cmd": {
                "name": "cat",
                "args": "@in.fa",
                "environ": {"public": {"A": "1"}, "private": {"B": "2"}},
            },
            "dependsOn": [],
            "inputs": [{"filename": "in.fa", "url": "http://127.0.0.1:9/in.fa"}],
            "outputs": [{"filename": "out.fa", "nonzero": True}],
            "totalwork": 2,
            "maxworksize": 50,
            "partinfo": {"input": "in.fa", "index": "record"},
        },
        {
            "taskid": "1",
            "cmd": {"name": "wc", "args": "-l @out.fa"},
            "dependsOn": ["0"],
            "inputs": [{"filename": "out.fa", "origin": "0"}],
            "outputs": [{"filename": "n.txt"}],
            "resources": {"cores": 2},
        },
    ],
}
SMALL = json.dumps({"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}).encode()

#: What stands in place of a value.
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**70, -(2**70), 1e300, "", " ", "\0", "x" * 70_000,
    "\ud800", "../../x", "0_0", "ü", "#jobname", [], [None], [[]], [1], {}, {"": ""}, {"a": {"b": {}}},
    ["x"] * 2000,
]  # fmt: skip

RAW: list[bytes] = [
    b"", b" ", b"null", b"true", b"7", b'"text"', b"[]", b"{}", b"{", b"}", b"\xff\xfe\x00", b"\xef\xbb\xbf",
    b'{"tasks": NaN}', b'{"tasks": [{"taskid": "0", "cmd": {"name": "x"}, "totalwork": 1e999}]}',
    b'{"tasks": [{"taskid": "0", "cmd": {"name": "x"}, "totalwork": NaN}]}',
    b'{"tasks": [], "tasks": []}',
    b'{"tasks": [{"taskid": "0", "taskid": "1", "cmd": {"name": "x"}}]}',
    b'{"tasks": "\xff"}', b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b"[" * 100_000,
    b'{"tasks":' + b"[" * 10_000 + b"]" * 10_000 + b"}", b"{" + b'"k": 1, ' * 200_000 + b'"k": 1}',
    b'{"tasks": [' + b"{}," * 150_000 + b"{}]}", b'{"tasks": ' + b"9" * 100_000 + b"}",
]  # fmt: skip


async def post(api: Api, raw: bytes) -> Any:
    with cpu_below(2.0):
        return await api.http.post("/job", content=raw, headers={"Content-Type": "application/json"})


async def still_works(api: Api) -> None:
    """A valid job is accepted, handed out and done."""
    reply = await post(api, SMALL)
    assert reply.status_code == 200, reply.text
    job = reply.json()["data"]
    await api.report(await api.checkout(await api.register(id="worker")))
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "completed"
    await api.ok("DELETE", f"/job/{job['id']}?full")


def refusal_is_good(reply: Any) -> None:
    envelope = reply.json()
    assert 400 <= reply.status_code < 500, reply.text[:500]
    assert envelope["code"] in ("invalid_document", "invalid_request", "too_large"), reply.text[:500]
    assert all(len(text) < 2_000 for text in envelope["error"]), reply.text[:500]


async def test_X_10_bodies_that_are_no_document(api: Api) -> None:
    for raw in RAW:
        reply = await post(api, raw)
        refusal_is_good(reply)
        form = {"upload": ("job.json", raw)}
        refusal_is_good(await api.http.post("/job", files=form))
        await still_works(api)
    assert (await api.http.get("/job")).json()["total_count"] == 0


@pytest.mark.parametrize("totalwork", [0, -1, 1e9, 10**9, "many", 1.5, [], True])
async def test_X_10_counts_of_workunits(api: Api, totalwork: Any) -> None:
    """0 and less mean 1, as in AWE; the rest is refused with its path."""
    task = {"taskid": "0", "cmd": {"name": "x"}, "totalwork": totalwork}
    reply = await post(api, json.dumps({"tasks": [task]}).encode())
    if totalwork in (0, -1):
        assert reply.json()["data"]["tasks"][0]["totalwork"] == 1
    else:
        refusal_is_good(reply)
        assert "tasks[0].totalwork" in reply.json()["error"][0]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"dependsOn": "0"}, "tasks[0].dependsOn"),
        ({"dependsOn": ["9"]}, "tasks[0].dependsOn"),
        ({"cmd": None}, "tasks[0].cmd"),
        ({"cmd": "ls -l"}, "tasks[0].cmd"),
        ({"taskid": ""}, "tasks[0].taskid"),
        ({"taskid": 7.5}, "tasks[0].taskid"),
        ({"outputs": 5}, "tasks[0].outputs"),
        ({"totlwork": 5}, "totlwork"),
    ],
)
async def test_X_10_a_refusal_names_the_field(api: Api, change: dict[str, Any], path: str) -> None:
    task = {"taskid": "0", "cmd": {"name": "x"}, **change}
    reply = await post(api, json.dumps({"tasks": [task]}).encode())
    refusal_is_good(reply)
    assert any(path in text for text in reply.json()["error"]), reply.text


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in list(entries):
        yield value, key
        yield from places(child)


def mutated(chance: random.Random) -> bytes:
    """A valid document with one to three changes, or its text with some bytes damaged."""
    document = copy.deepcopy(VALID)
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(places(document)))
        kind = chance.random()
        if kind < 0.6:
            container[key] = copy.deepcopy(chance.choice(ODD))
        elif kind < 0.8:
            del container[key]
        elif isinstance(container, dict):
            container[chance.choice(["TaskID", "x", "", "_id", "$set", "a.b", "partinfo"])] = chance.choice(
                ODD
            )
        else:
            container.append(copy.deepcopy(container[key]))
    text = json.dumps(document).encode("utf-8", "surrogatepass")
    if chance.random() < 0.15:
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        text = bytes(damaged)
    return text


@pytest.mark.slow
async def test_X_10_five_thousand_mutations(api: Api) -> None:
    chance = random.Random(10)
    accepted = 0
    for i in range(5_000):
        raw = mutated(chance)
        reply = await post(api, raw)
        if reply.status_code == 200:
            accepted += 1
            await api.ok("DELETE", f"/job/{reply.json()['data']['id']}?full")
        else:
            refusal_is_good(reply)
        if i % 250 == 0:
            await still_works(api)
    await still_works(api)
    assert 100 < accepted < 4_500
    assert (await api.http.get("/job")).json()["total_count"] == 0
    assert api.services.engine.ready
