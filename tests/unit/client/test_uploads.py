"""Uploads go on where they were cut, and only the bytes that are there count."""

import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.progress import MeteredBody
from awe_client.daemon.servers import Patience
from awe_client.sdk.bodies import CountedBody, FileBody, Rest
from tests.support.cutting import CuttingProxy
from tests.support.fake_server import FakeServer, refusal
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setitem(Patience.__init__.__kwdefaults__, "base_s", 0.01)  # type: ignore[arg-type]


async def _sent(body: CountedBody) -> bytes:
    return b"".join([chunk async for chunk in body])


@pytest.mark.parametrize("offset", [0, 1, 1_048_575, 1_048_576, 1_048_577, len(DATA) - 1, len(DATA)])
async def test_the_rest_of_a_body_has_the_checksum_of_the_whole(tmp_path: Path, offset: int) -> None:
    (tmp_path / "x").write_bytes(DATA)
    told: list[tuple[int, int]] = []
    rest = Rest(FileBody(tmp_path / "x"), offset)
    await rest.begin()
    body = MeteredBody(rest, lambda *at: told.append(at), offset)
    for _ in range(2):
        assert await _sent(body) == DATA[offset:]
        assert body.md5 == hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    assert body.headers["Content-Length"] == str(len(DATA) - offset)
    assert all(offset < done <= total == len(DATA) for done, total in told)


async def test_a_file_that_became_shorter_than_what_was_sent_of_it_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    body = FileBody(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(OSError, match="changed while being read"):
        await Rest(body, 2_000_000).begin()


async def _work(server: FakeServer, name: str = "out.bin", **more: Any) -> tuple[str, dict[str, Any]]:
    out = server.output(name, **more)
    inputs = [server.input("in.bin", DATA)]
    [work] = await server.add_task(script=["cp in.bin out.bin"], inputs=inputs, outputs=[out])
    return work, out


async def test_a_cut_upload_sends_no_byte_twice_that_the_server_has(
    server: FakeServer, start: MakeDaemon, hasty: None
) -> None:
    work, out = await _work(server)
    rng = random.Random(2)
    with CuttingProxy(server.url, up=[rng.randrange(50_000, 500_000) for _ in range(100)]) as proxy:
        start(servers=(proxy.url,))
        report = await server.result(work, 30)
        assert proxy.cuts >= 6
        assert proxy.sent < 1.5 * len(DATA)
    assert report["outcome"] == "done"
    assert server.uploads == {(out["node"], work, 1): DATA}
    assert report["outputs"][0]["md5"] == hashlib.md5(DATA, usedforsecurity=False).hexdigest()


async def test_what_the_server_let_go_meanwhile_is_sent_anew(
    server: FakeServer, start: MakeDaemon, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, gone = Rest.begin, []

    async def slow(rest: Rest) -> None:
        await begin(rest)
        if not gone:
            gone.extend(server.coming.values())
            server.coming.clear()

    monkeypatch.setattr(Rest, "begin", slow)
    work, out = await _work(server)
    with CuttingProxy(server.url, up=[1_000_000] * 40) as proxy:
        start(servers=(proxy.url,))
        assert (await server.result(work, 30))["outcome"] == "done"
    assert len(gone) == 1
    assert server.uploads == {(out["node"], work, 1): DATA}


async def test_bytes_that_were_damaged_before_the_cut_are_sent_anew(
    server: FakeServer, start: MakeDaemon, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, damaged = Rest.begin, []

    async def damaging(rest: Rest) -> None:
        await begin(rest)
        if not damaged:
            damaged.extend(server.coming.values())
            damaged[0][0] ^= 1

    monkeypatch.setattr(Rest, "begin", damaging)
    work, out = await _work(server)
    with CuttingProxy(server.url, up=[1_000_000] * 40) as proxy:
        start(servers=(proxy.url,))
        assert (await server.result(work, 30))["outcome"] == "done"
    assert len(damaged) == 1
    assert server.uploads == {(out["node"], work, 1): DATA}


async def test_a_lease_that_was_lost_at_the_cut_ends_the_upload(
    server: FakeServer, start: MakeDaemon, hasty: None
) -> None:
    server.upload_answers = [refusal(503, "unavailable", "not now"), refusal(409, "lease_lost", "lease lost")]
    start()
    work, _ = await _work(server)
    await server.until(lambda: not server.upload_answers)
    await server.until(lambda: bool(server.exchanges) and not server.exchanges[-1]["holds"])
    assert server.reports == []
    assert work not in server.results


async def test_progress_goes_on_from_what_the_server_has(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    told: list[int] = []
    body = MeteredBody(
        Rest(FileBody(tmp_path / "x"), 2_000_000), lambda done, _: told.append(done), 2_000_000
    )
    chunks: AsyncIterator[bytes] = aiter(body)
    await anext(chunks)
    assert await _sent(body) == DATA[2_000_000:]
    assert told[0] > 2_000_000
    assert told[-1] == len(DATA)


async def test_waits_grow_only_while_nothing_moves(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    async def noted(patience: Patience, error: Any) -> None:
        patience.failures += 1
        failures.append(patience.failures)

    monkeypatch.setattr(Patience, "wait", noted)
    work, _ = await _work(server)
    with CuttingProxy(server.url, up=[400_000] * 100) as proxy:
        start(servers=(proxy.url,))
        assert (await server.result(work, 30))["outcome"] == "done"
        assert proxy.cuts >= 7
    assert len(failures) >= 6
    assert max(failures) <= 2
