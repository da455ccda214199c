"""Files that end anywhere: the server's log of commits (`-wal`), and what a client wrote down of its results.

What was acknowledged is on the disk, so bytes that are missing there are damage below that promise. What is
asked then: the start of what was there, in order and whole, or a refusal; never half a document.
"""

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_server.store.base import Query
from awe_server.store.errors import StoreCorrupt
from awe_server.store.sqlite import SqliteStore
from tests.crash.documents import plain
from tests.support import tally
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.wal import FRAME_HEADER_BYTES, HEADER_BYTES, frame_bytes, used_bytes

TASKS = 3
MOST_FRAMES = 150  #: that are tried; of a longer log every second, third … one


@pytest.fixture
def killed(env: AweEnv) -> list[str]:
    """Jobs in the order in which they were acknowledged, until the server was killed."""
    acknowledged = [env.submit(plain("x" * 2000, tasks=TASKS))]
    killer = threading.Timer(0.3, env.server.kill, ("kill server, while jobs are submitted",))
    killer.start()
    with contextlib.suppress(httpx.TransportError):
        while True:
            acknowledged.append(env.submit(plain("x" * 2000, tasks=TASKS)))
    killer.join()
    return acknowledged


def cuts(wal: Path) -> list[int]:
    """Lengths of the log: at the border of each frame, and somewhere inside it."""
    frame = frame_bytes(wal)
    count = (used_bytes(wal) - HEADER_BYTES) // frame
    found = [0, HEADER_BYTES - 1]
    for number in range(0, count, count // MOST_FRAMES + 1):
        border = HEADER_BYTES + number * frame
        found += [border, border + (7, FRAME_HEADER_BYTES, frame // 2, frame - 1)[number % 4]]
    return found


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_log_of_commits_that_ends_anywhere_gives_the_start_of_what_was_there(
    env: AweEnv, killed: list[str], tmp_path: Path
) -> None:
    database, wal = (env.server.data / name for name in ("awe.sqlite", "awe.sqlite-wal"))
    lengths = set[int]()
    for length in [*cuts(wal), wal.stat().st_size]:
        folder = tmp_path / "cut"
        folder.mkdir()
        shutil.copy(database, folder)
        shutil.copy(wal, folder)
        os.truncate(folder / wal.name, length)
        tally.count("fault log of commits cut")
        lengths.add(await _assert_prefix(folder, killed))
        shutil.rmtree(folder)
    assert len(killed) in lengths or len(killed) + 1 in lengths, "nothing is cut: all is there"
    assert len(lengths) > len(killed) // 2, "cuts between most commits were met"


async def _assert_prefix(folder: Path, acknowledged: list[str]) -> int:
    """How many jobs are there. The last may be one that was never acknowledged."""
    store = SqliteStore(folder)
    try:
        await store.open()
    except StoreCorrupt:
        return 0  # contract/test_sqlite_damage.py looks at how it is refused
    jobs = (await store.find("jobs", Query(order="info.submittime"))).documents
    tasks = (await store.find("tasks", Query())).documents
    assert await store.check() == []
    await store.close()
    there = {job["id"] for job in jobs}
    known = there & set(acknowledged)
    assert known == set(acknowledged[: len(known)]), "an earlier one is missing"
    assert len(there - known) <= (len(known) == len(acknowledged))
    of_job = [task["jobid"] for task in tasks]
    assert sorted(of_job) == sorted([*there] * TASKS), "a job without its tasks, or tasks without their job"
    return len(there)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_server_starts_with_what_a_cut_log_still_says(env: AweEnv, killed: list[str], keep: float) -> None:
    wal = env.server.data / "awe.sqlite-wal"
    env.forget()  # what was acknowledged is cut off
    os.truncate(wal, int(used_bytes(wal) * keep))
    tally.count("fault log of commits cut")
    env.server.start()
    jobs = {job["id"]: job for job in env.data("GET", "/job?limit=1000")}
    assert set(jobs) == set(killed[: len(jobs)])
    assert all(len(job["tasks"]) == TASKS for job in jobs.values())
    again = env.data("GET", f"/job/{env.submit(plain('goes on'))}")
    assert again["jid"] not in {job["jid"] for job in jobs.values()}
    env.server.stop()
    checked = env.check_store()
    assert checked.returncode == 0, checked.stdout + checked.stderr


# -- what a client has written down --------------------------------------------------------------------------

RANKS = 3


def at_its_end(lines: list[bytes]) -> bytes:
    return b"".join(lines)[:-20]


def in_the_middle(lines: list[bytes]) -> bytes:
    first, second, third = lines
    return first + bytes(len(second) - 1) + b"\n" + third


def after_its_end(lines: list[bytes]) -> bytes:
    return b"".join(lines) + lines[0][:50]


def by_nothing(lines: list[bytes]) -> bytes:
    return b"".join(lines)


@pytest.mark.parametrize(
    ("torn", "lost"), [(by_nothing, 0), (after_its_end, 0), (at_its_end, 1), (in_the_middle, 1)]
)
def test_of_results_that_a_client_wrote_down_only_a_torn_one_is_made_again(
    env: AweEnv, tmp_path: Path, torn: Any, lost: int
) -> None:
    """They were finished while the server was down, and the client was killed then."""
    log, go = tmp_path / "starts", tmp_path / "go"
    log.touch()
    script = [f'echo "$AWE_RANK" >> {log}', f"until [ -e {go} ]; do sleep 0.05; done"]
    task = {"taskid": "0", "cmd": {"cmd_script": script}, "totalwork": RANKS}
    spool = tmp_path / "work" / "spool" / "reports.log"

    def start_client() -> Process:
        return env.start_client("--work", str(tmp_path / "work"), slots=RANKS)

    def written() -> list[bytes]:
        lines = spool.read_bytes().splitlines(keepends=True) if spool.exists() else []
        return [line for line in lines if "r" in json.loads(line)]

    client = start_client()
    job_id = env.submit({"tasks": [task]})
    eventually_sync(lambda: len(log.read_text().split()) == RANKS, show=client.output)
    env.server.kill()
    go.touch()
    eventually_sync(lambda: len(written()) == RANKS, show=client.output)
    client.kill("kill client, results written down")
    spool.write_bytes(torn(written()))
    if torn is not by_nothing:
        tally.count("fault results of a client torn")
    env.server.start()
    client = start_client()
    job = env.wait_for(job_id)
    assert job["tasks"][0]["remainwork"] == 0
    assert len(log.read_text().split()) == RANKS + lost
    assert len(set(log.read_text().split())) == RANKS
    eventually_sync(lambda: spool.stat().st_size == 0, show=client.output)
