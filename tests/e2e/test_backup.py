"""The commands of docs/operation.md make a backup of a busy server that can be restored."""

import itertools
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.env import BIN, AweEnv
from tests.support.eventually import eventually_sync

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operation.md"
#: What `check` may say of a copy: files that came after the database was copied.
HARMLESS = ("orphan_blob", "orphan_index", "orphan_parts", "temporary")
RANKS = 6


def documented(beginning: str) -> str:
    """The commands of the block that begins so, for folders of the test."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Backup and restore\n")[2]
    blocks: list[str] = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    [block] = [text for text in blocks if text.startswith(beginning)]
    return block.replace("awe-data", "server")


def shell(home: Path, script: str) -> subprocess.CompletedProcess[str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script], cwd=home, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def counting(name: str, pause_s: float = 0.0) -> dict[str, Any]:
    """A job of several parts, of which each says its rank."""
    script = [f"sleep {pause_s}", f'echo "{name} $AWE_RANK" > out']
    task = {
        "taskid": "count",
        "totalwork": RANKS,
        "cmd": {"cmd_script": script},
        "outputs": [{"filename": "out"}],
    }
    return {"info": {"name": name}, "tasks": [task]}


def merged(name: str) -> str:
    return "".join(f"{name} {rank}\n" for rank in range(1, RANKS + 1))


def output(env: AweEnv, job: dict[str, Any]) -> str:
    return env.http.get(f"/node/{job['tasks'][0]['outputs'][0]['node']}?download").text


@contextmanager
def traffic(env: AweEnv) -> Iterator[None]:
    """Files and jobs come in all the time."""
    ends = threading.Event()

    def send() -> None:
        for number in itertools.count():
            env.data("POST", "/node", files={"upload": ("more.txt", b"more" * 5_000)})
            env.submit(counting(f"more{number}"))
            if ends.wait(0.5):
                return

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield
        finally:
            ends.set()
        sending.result()


def finish(env: AweEnv, job_id: str) -> dict[str, Any]:
    """Wait until the job is completed; if parts of it are not in the backup, do as the page says."""
    seen: dict[str, Any] = {}

    def completed() -> bool:
        seen.update(env.job(job_id))
        if seen["state"] == "suspend":
            env.data("PUT", f"/job/{job_id}?resume")
        return bool(seen["state"] == "completed")

    eventually_sync(completed, within_s=180, every_s=0.1, show=lambda: seen)
    return seen


def test_a_backup_of_a_busy_server_is_restored_and_work_goes_on() -> None:
    with AweEnv.temporary() as env:
        env.server.start()
        env.start_client(slots=2)
        env.start_client(slots=2)
        before = [env.submit(counting(name)) for name in ("first", "second")]
        wanted = [output(env, env.wait_for(job_id)) for job_id in before]
        assert wanted == [merged("first"), merged("second")]
        under_way = env.submit(counting("long", 1.0))
        with traffic(env):
            eventually_sync(lambda: 0 < env.job(under_way)["tasks"][0]["remainwork"] < RANKS)
            copied = shell(env.home, documented("mkdir"))
            lost = env.submit(counting("lost"))
        assert all("No such file" in line for line in copied.stderr.splitlines()), copied.stderr
        env.wait_for(under_way, within_s=120)
        env.server.kill()
        _restore(env)
        assert env.http.get(f"/job/{lost}").status_code == 404
        jobs = env.data("GET", "/job?limit=0&verbosity=job")
        for job_id in before:
            job = env.job(job_id)
            assert job["state"] == "completed"
            assert output(env, job) == merged(job["info"]["name"])
        for job_id in {job["id"] for job in jobs} - set(before) | {env.submit(counting("new"))}:
            job = finish(env, job_id)
            assert output(env, job) == merged(job["info"]["name"])
        assert under_way in {job["id"] for job in jobs}


def _restore(env: AweEnv) -> None:
    """As the page says; then the server runs on the new folder."""
    copy, check, serve = documented("cp -a").splitlines()
    assert shell(env.home, copy).returncode == 0
    looked = shell(env.home, check.removesuffix(" --repair"))
    said = [line for line in looked.stdout.splitlines() if ": sound" not in line]
    harmless = [line for line in said if line.startswith(HARMLESS) or line.endswith("--repair removes them")]
    assert said == harmless, looked.stdout
    repaired = shell(env.home, check)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert serve == "awe-server serve --data awe-restored"
    env.server.data = env.home / "awe-restored"
    env.forget()  # what came after the backup
    env.server.start()
