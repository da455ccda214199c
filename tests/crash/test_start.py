"""What keeps a server from starting is said in one line, with an exit code, and the data is left as it is."""

import contextlib
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.crash.documents import plain
from tests.support.env import BIN, AweEnv, Process
from tests.support.eventually import PATIENCE_S, eventually_sync
from tests.support.fake_client import FakeClient


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    """The program itself is started, not a fork that has imported it."""
    with AweEnv(tmp_path) as env:
        env.server.start()
        yield env


def serve(*arguments: str, within_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "awe-server"), "serve", "--port", "0", *arguments],
        capture_output=True, text=True, timeout=within_s, check=False,
    )  # fmt: skip


def says(process: Process, word: str) -> bool:
    """Whether its log has the word; fails once it has ended."""
    assert process.returncode is None, process.output()
    return word in process.stderr.read_text()


def one_line(ended: subprocess.CompletedProcess[str]) -> str:
    """The line a person reads; log lines aside."""
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("awe-server: ")]
    assert "Traceback" not in ended.stderr
    assert ended.returncode != 0
    assert "listening" not in ended.stdout
    return line


def test_a_data_directory_in_use(env: AweEnv) -> None:
    assert "is in use by another server" in one_line(serve("--data", str(env.server.data)))


def test_a_port_in_use(env: AweEnv, tmp_path: Path) -> None:
    ended = serve("--data", str(tmp_path / "new"), "--port", str(env.server.port))
    assert one_line(ended).endswith("Address already in use")
    assert not (tmp_path / "new").exists(), "the data is not touched before the port is ours"


@pytest.mark.parametrize("url", ["redis://x", "mongodb:/", "mongodb://user:pa:ss@host/db"])
def test_a_store_url_that_is_none(tmp_path: Path, url: str) -> None:
    line = one_line(serve("--data", str(tmp_path), "--store", url))
    assert "pa:ss" not in line


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot use the data directory" in one_line(serve("--data", str(tmp_path / "file" / "x")))


def test_files_whose_file_system_is_not_mounted(env: AweEnv, tmp_path: Path) -> None:
    """The start is refused, and works again once they are there."""
    node = env.http.post("/node", content=b"x").json()["data"]["id"]
    env.server.stop()
    nodes = env.server.data / "nodes"
    nodes.rename(tmp_path / "elsewhere")
    ended = serve("--data", str(env.server.data))
    assert one_line(ended).startswith(
        f"awe-server: {nodes} does not hold the files of this store, which has 1"
    )
    assert ended.returncode == 1
    assert not nodes.exists()
    (tmp_path / "elsewhere").rename(nodes)
    env.server.start()
    assert env.http.get(f"/node/{node}?download").content == b"x"


@pytest.mark.parametrize("store", ["", "memory:"])
def test_a_data_directory_with_files_of_somebody_elses(tmp_path: Path, store: str) -> None:
    for name in ("logs/run-1/x", "memory/x", "nodes/ab/x", "x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    before = sorted(tmp_path.rglob("*"))
    line = one_line(serve("--data", str(tmp_path), "--store", store))
    assert line.startswith(f"awe-server: cannot use the data directory {tmp_path}: it is not empty")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_D_04_a_damaged_store_is_refused_in_one_line_and_not_touched(env: AweEnv, damage: str) -> None:
    for _ in range(5):
        env.submit(plain("x" * 2000, tasks=5))
    env.server.stop()
    (database,) = env.server.data.glob("*.sqlite")
    whole = database.read_bytes()
    broken = whole[:-100] if damage == "cut" else whole[:-16384] + bytes(8192) + whole[-8192:]
    database.write_bytes(broken)
    line = one_line(serve("--data", str(env.server.data)))
    assert str(database) in line
    assert "damaged" in line
    assert database.read_bytes() == broken
    database.write_bytes(whole)
    env.server.start()
    assert len(env.data("GET", "/job")) == 5


@pytest.mark.parametrize("left", ["as it is", "no shm", "draft", "torn wal"])
def test_D_04_what_a_kill_under_load_left_starts_clean(env: AweEnv, left: str) -> None:
    document = plain("x" * 2000, tasks=3)
    acknowledged = [env.submit(document)]
    killer = threading.Timer(0.3, env.server.kill, ("kill server, while jobs are submitted",))
    killer.start()
    with contextlib.suppress(httpx.TransportError):
        while True:
            acknowledged.append(env.submit(document))
    killer.join()
    data = env.server.data
    wal = data / "awe.sqlite-wal"
    assert wal.stat().st_size
    if left == "no shm":
        (data / "awe.sqlite-shm").unlink()
    elif left == "draft":
        (data / "awe.sqlite.new").write_bytes(b"half a database")
    elif left == "torn wal":
        with wal.open("ab") as file:  # a page that was being written: no commit of it was acknowledged
            file.write(b"\x17" * 5000)
    env.server.start()
    listed = env.data("GET", "/job?limit=1000")
    assert {job["id"] for job in listed} >= set(acknowledged[-1000:])
    assert all(len(job["tasks"]) == 3 for job in listed)
    assert "Traceback" not in env.server.running.output()
    env.server.stop()
    checked = env.check_store()
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_bad_settings(tmp_path: Path) -> None:
    config = tmp_path / "awe.toml"
    config.write_text("leese_s = 3\n")
    for flags in (["--config", str(config)], ["--lease-s", "-1"], ["--policy", "dice"]):
        ended = serve("--data", str(tmp_path / "data"), *flags)
        assert ended.returncode == 2
        assert one_line(ended)


def test_settings_come_from_flags_environment_and_file_in_this_order(env: AweEnv, tmp_path: Path) -> None:
    config = tmp_path / "awe.toml"
    config.write_text('lease_s = 11.0\nmax_lost = 7\npolicy = "fair"\n')
    script = (
        "import sys; from pathlib import Path; from awe_server.settings import Settings;"
        "s = Settings.load(Path(sys.argv[1]), {'max_lost': 9}); print(s.lease_s, s.max_lost, s.policy)"
    )
    ended = subprocess.run(
        [str(BIN / "python"), "-c", script, str(config)],
        env={**os.environ, "AWE_LEASE_S": "22", "AWE_MAX_LOST": "8"},
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ended.stdout.split() == ["22.0", "9", "fair"]


def test_D_02_a_store_that_is_busy_at_the_start_is_waited_for(env: AweEnv) -> None:
    """Somebody holds the database for a while; one start brings all jobs back."""
    jobs = {env.submit(plain(f"job {i}")) for i in range(20)}
    env.server.kill()
    (database,) = env.server.data.glob("*.sqlite")
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    process = env.server.launch()
    eventually_sync(lambda: says(process, "store_waits"), show=process.output)
    began = time.monotonic()
    while time.monotonic() - began < 1:
        assert httpx.get(f"{env.server.url}/health", timeout=PATIENCE_S, trust_env=False).status_code == 503
        assert process.returncode is None, process.output()
        assert "listening on" not in process.stdout.read_text()
        time.sleep(0.1)
    holder.execute("ROLLBACK")
    holder.close()
    env.server.await_ready()
    listed = env.data("GET", "/job?limit=100")
    assert {job["id"] for job in listed} == jobs
    assert all(job["registered"] for job in listed)
    client = FakeClient(env.server.url)
    client.register()
    assert client.work_off() == 20, "one start is enough"
    client.close()
    assert {job["state"] for job in env.data("GET", "/job?limit=100")} == {"completed"}


def test_a_standby_takes_over(env: AweEnv) -> None:
    job_id = env.submit(plain("survives"))
    standby = AweEnv(env.home / "standby", flags=["--standby"])
    standby.home.mkdir()
    standby.server.data = env.server.data
    with standby:
        process = standby.server.launch()
        eventually_sync(lambda: says(process, "standing_by"), show=process.output)
        assert process.returncode is None
        env.server.kill()
        standby.server.await_ready()
        assert standby.job(job_id)["state"] == "queued"


def test_check_and_export_read_what_is_stored(env: AweEnv) -> None:
    job_id = env.submit(plain("exported"))
    env.server.stop()
    data = ["--data", str(env.server.data)]
    checked = subprocess.run([BIN / "awe-server", "check", *data], capture_output=True, text=True, check=True)
    assert "sound" in checked.stdout
    exported = subprocess.run(
        [BIN / "awe-server", "export", *data], capture_output=True, text=True, check=True
    )
    assert f'"id":"{job_id}"' in exported.stdout
