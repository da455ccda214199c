"""Files that change, or go, while they are sent: said once, in clear words, as an output's fault."""

import os
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import upload
from awe_client.daemon.outputs import Found
from awe_client.daemon.progress import MeteredBody
from awe_client.sdk.bodies import CHUNK_BYTES, FileBody
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


async def sent(body: FileBody) -> bytes:
    return b"".join([chunk async for chunk in body])


@pytest.mark.parametrize("size", [10, 2 * CHUNK_BYTES + 10])
async def test_a_file_that_becomes_shorter_is_not_sent_as_if_it_were_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(size))
    body = FileBody(path)
    os.truncate(path, size - 1)
    with pytest.raises(OSError, match="the file changed while being read") as caught:
        await sent(body)
    assert caught.value.filename == str(path)
    assert body.md5 == ""


async def test_of_a_file_that_grows_the_announced_bytes_are_sent_also_when_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    whole, piece = FileBody(path), FileBody(path, offset=3, max_bytes=4)
    for _ in range(2):
        with path.open("ab") as file:
            file.write(b"more")
        assert (await sent(whole), await sent(piece)) == (b"0123456789", b"3456")


async def test_an_output_that_becomes_shorter_while_it_is_sent_fails_the_attempt(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def truncated(body: FileBody, *args: Any) -> MeteredBody:
        os.truncate(body.path, 1)
        return MeteredBody(body, *args)

    monkeypatch.setattr(upload, "MeteredBody", truncated)
    start()
    [work] = await server.add_task(script=["echo hello > out.txt"], outputs=[server.output("out.txt")])
    report = await server.result(work, 10.0)
    assert (report["outcome"], report["kind"]) == ("failed", "output")
    assert "the file changed while being read" in report["message"]


@pytest.mark.parametrize("when", ["looked at", "sent"])
async def test_an_output_that_goes_after_it_was_found_fails_the_attempt(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    looks = 0

    def gone(found: Found) -> Any:
        nonlocal looks
        looks += 1
        assert found.path is not None
        if looks == (1 if when == "looked at" else 2):
            found.path.unlink()
        return FileBody(found.path)

    monkeypatch.setattr(Found, "body", gone)
    start()
    [work] = await server.add_task(
        script=["mkdir out; echo x > out/x.txt"], outputs=[server.output("x.txt", directory="out")]
    )
    report = await server.result(work, 10.0)
    assert (report["outcome"], report["kind"]) == ("failed", "output")
    assert "output out/x.txt cannot be read any more: no such file or directory" in report["message"]


async def test_an_output_that_goes_before_it_is_put_on_a_shared_file_system_fails_the_attempt(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def gone(found: Found) -> Any:
        assert found.path is not None
        body = FileBody(found.path)
        found.path.unlink()
        return body

    monkeypatch.setattr(Found, "body", gone)
    (tmp_path / "shared").mkdir()
    start(file_roots=(str(tmp_path / "shared"),))
    out = {**server.output("x.txt"), "url": f"file://{tmp_path}/shared/x.txt"}
    [work] = await server.add_task(script=["echo x > x.txt"], outputs=[out], generation=1)
    report = await server.result(work, 10.0)
    assert (report["outcome"], report["kind"]) == ("failed", "output")
    assert report["message"] == "output x.txt: cannot read what the command wrote: no such file or directory"
