"""Outputs over a line that does not hold: they go on where they were cut, and arrive as they were made."""

import hashlib
import os
import random
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from awe_client.api import AweClient
from tests.support.cutting import CuttingProxy
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

SIZE = 20_000_000
MOST = 800_000  #: bytes that come through at once
_MAKE = (
    "import os, random, sys; "
    "sys.stdout.buffer.write(random.Random(int(os.environ['AWE_RANK']) + {seed}).randbytes({size}))"
)


def _made(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def _task(id: str, script: list[str], *outputs: str, **more: Any) -> dict[str, Any]:
    named = [{"filename": name} for name in outputs]
    return {"taskid": id, "cmd": {"cmd_script": script}, "outputs": named, **more}


def _make(path: str, size: int, seed: int = 0) -> str:
    return f'python3 -c "{_MAKE.format(seed=seed, size=size)}" > {path}'


def _content(env: AweEnv, output: dict[str, Any]) -> bytes:
    return env.http.get(f"/node/{output['node']}?download").content


def _waiting(env: AweEnv) -> list[Path]:
    """The files of uploads that have not ended."""
    return [path for path in (env.server.data / "nodes").rglob(".*") if path.is_file()]


def test_whole_files_parts_and_folders_arrive_over_a_line_that_is_cut_all_the_time() -> None:
    rng = random.Random(3)
    with AweEnv.temporary() as env:
        env.server.start()
        cuts = [rng.randrange(MOST // 8, MOST) for _ in range(400)]
        with CuttingProxy(env.server.url, up=cuts) as proxy:
            env.start_client(slots=1, server=proxy.url)
            folder = ["mkdir out", _make("out/a", 2_000_000, 7), _make("out/b", 1_000_000, 8)]
            tasks = [
                _task("0", [_make("big", SIZE)], "big"),
                _task("1", [_make("part", 2_000_000)], "part", totalwork=2),
                _task("2", folder, "out/"),
            ]
            job = env.wait_for(env.submit({"tasks": tasks}), within_s=180)
            assert proxy.cuts >= 50
            assert len(proxy.up) > 0
            assert SIZE < proxy.sent < 1.5 * (SIZE + 7_000_000)
        big, parts, packed = (_content(env, task["outputs"][0]) for task in job["tasks"])
        assert hashlib.md5(big).digest() == hashlib.md5(_made(0, SIZE)).digest()
        assert parts == _made(1, 2_000_000) + _made(2, 2_000_000)
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            files = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}  # type: ignore[union-attr]
        assert sorted(map(len, files.values())) == [1_000_000, 2_000_000]
        assert set(files.values()) == {_made(7, 2_000_000), _made(8, 1_000_000)}
        assert all(task["failed"] == 0 for task in job["tasks"] if "failed" in task)
        assert _waiting(env) == []


def test_a_cut_that_the_server_does_not_notice_costs_nothing() -> None:
    with AweEnv.temporary() as env:
        env.server.start()
        with CuttingProxy(env.server.url, up=[1_500_000] * 40, unnoticed=True) as proxy:
            env.start_client(slots=1, server=proxy.url)
            job = env.wait_for(env.submit({"tasks": [_task("0", [_make("big", 6_000_000)], "big")]}))
            assert proxy.cuts >= 4
            assert proxy.sent < 7_500_000
        assert _content(env, job["tasks"][0]["outputs"][0]) == _made(0, 6_000_000)


def test_a_persons_large_file_arrives_too_and_one_that_cannot_leaves_no_node(tmp_path: Path) -> None:
    path, rng, told = tmp_path / "reads", random.Random(6), list[tuple[int, int]]()
    path.write_bytes(_made(0, SIZE))
    with AweEnv.temporary() as env:
        env.server.start()
        cuts = [rng.randrange(MOST // 2, 2 * MOST) for _ in range(100)]
        with CuttingProxy(env.server.url, up=cuts) as proxy, AweClient(proxy.url) as awe:
            node = awe.create_node(
                path, name="r.fq", attributes={"a": 1}, on_progress=lambda *at: told.append(at)
            )
            assert proxy.cuts >= 15
            assert proxy.sent < 1.5 * SIZE
        assert node.file is not None
        assert (node.file.name, node.file.size, node.attributes) == ("r.fq", SIZE, {"a": 1})
        assert env.data("GET", f"/node/{node.id}")["expiration"].startswith("0001-")
        assert env.http.get(f"/node/{node.id}?download").content == _made(0, SIZE)
        assert told[-1] == (SIZE, SIZE)
        shorter = pytest.raises(OSError, match="changed while being read")
        with AweClient(env.server.url) as awe, shorter:
            awe.create_node(path, on_progress=lambda *_: os.truncate(path, 10))
        assert [one["id"] for one in env.data("GET", "/node")] == [node.id]
        assert _waiting(env) == []


def test_an_upload_begins_anew_after_the_server_was_killed() -> None:
    with AweEnv.temporary() as env:
        env.server.start()
        with CuttingProxy(env.server.url, up=[3_000_000] * 40) as proxy:
            env.start_client(slots=1, server=proxy.url)
            job_id = env.submit({"tasks": [_task("0", [_make("big", SIZE)], "big")]})
            eventually_sync(lambda: proxy.cuts >= 3, within_s=60)
            env.server.restart()
            job = env.wait_for(job_id, within_s=120)
        assert _content(env, job["tasks"][0]["outputs"][0]) == _made(0, SIZE)
        assert _waiting(env) == []
