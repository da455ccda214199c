"""The server's disk is full: clear refusals, nothing half there; work goes on when there is room again."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.tmpfs import fill, tmpfs

MIB = 1024 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Iterator[AweEnv]:
    """A server whose data directory has 32 MiB."""
    with tmpfs(tmp_path / "server", 32 * MIB):
        env = AweEnv(tmp_path, server_env={"AWE_FREE_FLOOR_BYTES": "0", "AWE_COMMIT_WAIT_S": "1"})
        with env:
            env.server.start()
            yield env


def nodes(env: AweEnv) -> list[str]:
    return sorted(node["id"] for node in env.data("GET", "/node?limit=0"))


def job(node: str) -> dict[str, Any]:
    task = {
        "taskid": "0",
        "cmd": {"name": "cp", "args": "@in.txt out.txt"},
        "inputs": [{"filename": "in.txt", "node": node}],
        "outputs": [{"filename": "out.txt"}],
    }
    return {"info": {}, "tasks": [task]}


def fill_up(folder: Path) -> Path:
    """Take all the room there is, beside a server that takes and gives some at the same time."""
    ballast = fill(folder, MIB)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def temporary(root: Path) -> list[Path]:
    return [path for path in (root / "nodes").rglob(".tmp-*") if path.is_file()]


def test_F_13_b_an_upload_that_finds_no_room_is_refused_and_not_listed(small: AweEnv) -> None:
    kept = small.data("POST", "/node", files={"upload": ("a", b"x" * MIB)})["id"]
    big = b"y" * (40 * MIB)

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(big), MIB):
            yield big[start : start + MIB]

    for body in ({"content": big}, {"content": chunks()}, {"files": {"upload": ("b", big)}}):
        reply = small.http.post("/node", **body)
        assert reply.status_code in (503, 507), reply.text
        assert reply.json()["error"]
        assert nodes(small) == [kept]
        assert temporary(small.server.data) == []
    assert small.http.get(f"/node/{kept}?download").content == b"x" * MIB
    made = small.data("POST", "/node", files={"upload": ("b", b"y" * MIB)})["id"]
    assert nodes(small) == sorted((kept, made))


def test_F_13_c_a_full_disk_refuses_writes_and_loses_nothing(small: AweEnv) -> None:
    node = small.data("POST", "/node", files={"upload": ("in.txt", b"hello\n")})["id"]
    first = small.submit(job(node))
    ballast = fill_up(small.server.data)
    answered = 0
    refused: list[int] = []
    deadline = time.monotonic() + 60
    while len(refused) < 3 and time.monotonic() < deadline:
        reply = small.http.post("/job", json=job(node))
        answered += reply.is_success
        if not reply.is_success:
            refused.append(reply.status_code)
    assert refused == [503] * 3
    assert small.http.post("/node", content=b"z" * MIB).status_code in (503, 507)
    health = small.http.get("/health")
    assert (health.status_code, "disk is full" in health.text) == (503, True), health.text

    ballast.unlink()
    eventually_sync(lambda: small.http.get("/health").status_code == 200)
    second = small.submit(job(node))
    small.start_client()
    for job_id in (first, second):
        done = small.wait_for(job_id)
        output = done["tasks"][0]["outputs"][0]["node"]
        assert small.http.get(f"/node/{output}?download").content == b"hello\n"
    small.server.restart()
    # What was refused may have been kept: that is what 503 and its advice to repeat say. Nothing else is.
    total = small.http.get("/job").json()["total_count"]
    assert 2 + answered <= total <= 2 + answered + len(refused)


def script(*lines: str) -> dict[str, Any]:
    return {"info": {}, "tasks": [{"taskid": "0", "cmd": {"cmd_script": ["set -e", *lines]}}]}


def test_F_13_a_log_is_whole_or_not_there_on_a_full_disk(tmp_path: Path) -> None:
    """Only the logs' disk is full: the store works, so reports are accepted."""
    grow, end = tmp_path / "grow", tmp_path / "end"
    with AweEnv(tmp_path) as env:
        env.server.start()
        logs = env.server.data / "logs"
        with tmpfs(logs, 4 * MIB):
            client = env.start_client()
            long = env.submit(
                script(
                    "echo first", f"while [ ! -e {grow} ]; do sleep 0.05; done",
                    "head -c 200000 /dev/zero | tr '\\0' x", f"while [ ! -e {end} ]; do sleep 0.05; done",
                )
            )  # fmt: skip
            log = f"/work/{long}_0_0/log/stdout"
            eventually_sync(lambda: env.http.get(log).content == b"first\n", show=client.output)
            ballast = fill_up(logs)
            grow.touch()
            short = env.submit(script("echo out", "echo err >&2"))
            env.wait_for(short)
            assert files(logs, but=ballast) == [f"{long}_0_0.1.stdout"]
            for words in ([short], [f"{short}_0_0"], ["-f", short]):
                said = env.awe("logs", *words)
                assert (said.returncode, said.stdout) == (0, "")
                for stream in ("stdout", "stderr"):
                    assert f"{stream} was not kept: no space left on the server's disk" in said.stderr
            end.touch()
            eventually_sync(lambda: "push_retried what='full stdout'" in client.output(), show=client.output)
            assert env.http.get(log).content == b"first\n"
            assert files(logs, but=ballast) == [f"{long}_0_0.1.stdout"]
            ballast.unlink()
            env.wait_for(long)
            assert env.http.get(log).content == b"first\n" + b"x" * 200_000
            assert env.data("GET", f"/work/{long}_0_0")["notes"] == ""
            env.wait_for(after := env.submit(script("echo out")))
            assert env.awe("logs", after).stdout == "out\n"
            assert files(logs) == sorted(f"{name}_0_0.1.stdout" for name in (long, after))


def files(folder: Path, *, but: Path | None = None) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path != but)


def test_a_quota_refuses_before_the_disk_is_full_and_is_counted_again_after_a_restart(tmp_path: Path) -> None:
    with AweEnv(tmp_path, flags=["--quota", "4M"]) as env:
        env.server.start()

        def used() -> int:
            return int(env.data("GET", "/health")["node_store"]["used_bytes"])

        first = env.data("POST", "/node", content=b"x" * 3 * MIB)["id"]
        env.data("POST", "/node", files={"copy_data": (None, first.encode())})
        assert used() == 3 * MIB
        env.server.restart()
        assert used() == 3 * MIB
        reply = env.http.post("/node", content=b"y" * 2 * MIB)
        assert (reply.status_code, reply.json()["code"]) == (507, "quota_exceeded")
        env.data("DELETE", f"/node/{first}")
        assert used() == 3 * MIB, "its copy needs the bytes"


def test_a_job_says_that_the_quota_keeps_its_output_waiting_and_what_never_fits_fails(tmp_path: Path) -> None:
    def makes(size: int) -> dict[str, Any]:
        made = script(f"head -c {size} /dev/zero > big.bin")
        made["tasks"][0]["outputs"] = [{"filename": "big.bin"}]
        return made

    with AweEnv(tmp_path, flags=["--quota", "3M"]) as env:
        env.server.start()
        taken = env.data("POST", "/node", content=b"x" * 2 * MIB)["id"]
        client = env.start_client()
        job = env.submit(makes(2_000_000))

        def says_why() -> bool:
            said = env.awe("why", job).stdout
            waits = (
                "its output big.bin (2.0 MB) is refused for now: 2000000 bytes more do not fit into the quota"
            )
            return f"{waits}: {2 * MIB} of {3 * MIB} bytes are taken" in " ".join(said.split())

        eventually_sync(says_why, within_s=60, show=client.output)
        env.data("DELETE", f"/node/{taken}")
        env.wait_for(job)
        never = env.submit(makes(4_000_000))
        env.wait_for(never, state="suspend")
        notes = env.data("GET", f"/job/{never}")["notes"]
        assert f"it has 4000000 bytes: the node store's whole quota is {3 * MIB}" in notes


def test_the_command_line_shares_and_shows_when_nodes_go(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"same")
    with AweEnv(tmp_path) as env:
        env.server.start()
        kept = env.awe("node", "put", str(file)).stdout.strip()
        wrong = env.awe("node", "put", str(file), "--expiration", "soon")
        assert (wrong.returncode, "30M, 12H or 3D" in wrong.stderr) == (2, True)
        goes = env.awe("node", "put", str(file), "--dedup", "--expiration", "3d").stdout.strip()
        rows = {row.split()[0]: row.split()[-1] for row in env.awe("node", "ls").stdout.splitlines()}
        when = env.data("GET", f"/node/{goes}")["expiration"]
        assert rows == {"ID": "EXPIRES", kept: "never", goes: f"{when[:19]}Z"}
        assert env.data("GET", "/health")["node_store"]["used_bytes"] == 4


def test_bytes_of_an_upload_that_is_cut_by_kill_9_are_gone_after_the_restart(tmp_path: Path) -> None:
    with AweEnv(tmp_path) as env:
        env.server.start()

        def endless() -> Iterator[bytes]:
            for _ in range(1000):
                yield b"x" * MIB
                if len(temporary(env.server.data)) == 1:
                    env.server.kill()
                    return

        with pytest.raises(httpx.TransportError):
            env.http.post("/node", content=endless())
        assert len(temporary(env.server.data)) == 1
        env.server.start()
        assert temporary(env.server.data) == []
        assert env.data("GET", "/health")["node_store"]["used_bytes"] == 0
        assert nodes(env) == []
