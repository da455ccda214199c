"""Servers and clients of tests get the environment that they were given, and what they leave is looked at."""

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.support import tally
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.fake_client import FakeClient
from tests.support.invariants import Ledger
from tests.support.lines import close_lines
from tests.support.ports import HeldPort


def environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_server_and_clients_have_environments_of_their_own(tmp_path: Path) -> None:
    with AweEnv(tmp_path, server_env={"WHO": "server"}, client_env={"WHO": "client"}) as env:
        env.server.start()
        client = env.start_client()
        eventually_sync(lambda: b"WHO=client" in environment(client.pid))
        for _ in range(2):
            assert b"WHO=server" in environment(env.server.running.pid)
            env.server.restart()
    assert "WHO" not in os.environ


JOB = {"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}


def break_promises(env: AweEnv) -> None:
    with env:
        env.server.start()
        env.submit(JOB)
        env.server.stop()
        (env.server.data / ".tmp-1").touch()
        with sqlite3.connect(env.server.data / "awe.sqlite") as database:
            database.execute("DELETE FROM tasks")
            database.execute("DELETE FROM jobs")
        database.close()


def test_a_test_fails_if_what_it_was_promised_is_gone_or_something_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "_counts", Counter())  # of a run they would be failures
    with pytest.raises(AssertionError) as failure:
        break_promises(AweEnv(tmp_path))
    shown = str(failure.value)
    assert "was acknowledged and is not stored" in shown
    assert f"(6) {tmp_path / 'server' / '.tmp-1'} is left" in shown
    [place] = tally.places(tally.totals())
    assert place.startswith("lost in tests/unit/support/test_env.py::test_a_test_fails_if_what_it_was")
    assert tally.totals() == {"sites checked": 1, "lost": 1, "doubled": 0, place: 1}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_server_or_client_that_ended_by_itself_is_found(tmp_path: Path, is_replaced: bool) -> None:
    """Whoever was killed by a test, or waited for, is expected to have gone."""

    def crash(process: Process) -> None:
        os.kill(process.pid, signal.SIGSEGV)
        eventually_sync(lambda: process.returncode is not None)

    def run() -> None:
        with AweEnv(tmp_path) as env:
            env.server.start()
            crash(env.start_client())
            crash(env.server.running)
            if is_replaced:
                env.server.start()

    with pytest.raises(AssertionError) as failure:
        run()
    assert [line.split()[0] for line in str(failure.value).splitlines() if "by itself" in line] == [
        "server",
        "client",
    ]


def test_who_crashed_cannot_be_killed(tmp_path: Path) -> None:
    process = Process(["sleep", "60"], tmp_path / "log", {})
    os.kill(process.pid, signal.SIGSEGV)
    eventually_sync(lambda: process.returncode is not None)
    with pytest.raises(AssertionError, match="ended with -11, by itself"):
        process.kill()
    assert process.wait() == -signal.SIGSEGV
    process.kill()


def test_what_a_killed_server_left_is_cleared_up_by_the_next(tmp_path: Path) -> None:
    def run() -> None:
        with AweEnv(tmp_path) as env:
            env.server.start()
            env.server.restart()
            for name, age_s in ((".tmp-old", 100), (".tmp-new", -100)):
                (env.server.data / "nodes" / name).touch()
                at = env.server.ready_s - age_s
                os.utime(env.server.data / "nodes" / name, (at, at))

    with pytest.raises(AssertionError, match=r"\.tmp-old is left") as failure:
        run()
    assert ".tmp-new" not in str(failure.value)


def test_clients_with_work_directories_elsewhere_leave_no_process_either(tmp_path: Path) -> None:
    (home := tmp_path / "site").mkdir()
    with AweEnv(home) as env:
        env.server.start()
        work = tmp_path / "elsewhere"
        client = env.start_client("--work", str(work))
        assert env.works == {work: client}


def test_events_are_read_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"seq": seq} for seq in range(5, 12)]
    env = AweEnv(tmp_path)

    def page(method: str, path: str) -> list[dict[str, int]]:
        since = int(path.rpartition("since=")[2])
        return [event for event in told if event["seq"] > since][:3]

    monkeypatch.setattr(env, "data", page)
    assert env.events() == told
    env.close()


def test_fake_clients_write_down_what_they_are_promised_where_their_site_looks(tmp_path: Path) -> None:
    with AweEnv(tmp_path) as env:
        env.server.start()
        client = FakeClient(env.server.url)
        client.register()
        job_id = env.submit(JOB)
        assert client.work_off() == 1
        client.close()
        assert env.ledger.done == {f"{job_id}_0_0": (1, 0)}


def test_a_site_at_the_address_of_an_earlier_one_was_promised_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HeldPort() as port:
        monkeypatch.setattr("tests.support.env.HeldPort", lambda: port)
        url = f"http://127.0.0.1:{port.number}"
        earlier = Ledger.of(url)
        earlier.jobs.add("of another test")
        env = AweEnv(tmp_path)
        assert not env.ledger.jobs
        assert Ledger.of(url) is env.ledger, "who talks to it writes down there"
        assert earlier.jobs == {"of another test"}
        env.close()


def test_lines_of_a_test_that_fails_are_closed_after_it(tmp_path: Path) -> None:
    with AweEnv(tmp_path) as env:
        env.server.start()
        client = FakeClient(env.server.url)
        client.register()
        close_lines()
        assert client.http.is_closed


SAYS = "echo ready; trap 'exit {code}' TERM; while :; do sleep 0.05; done"


@pytest.mark.parametrize(("code", "wanted"), [(0, 0), (3, 3), (3, 0), (0, 3)])
def test_who_is_stopped_has_to_end_as_it_should(tmp_path: Path, code: int, wanted: int) -> None:
    process = Process(["sh", "-c", SAYS.format(code=code)], tmp_path / "log", {}, "server")
    eventually_sync(lambda: "ready" in process.output())
    if code == wanted:
        process.stop(wanted)
    else:
        with pytest.raises(AssertionError, match=rf"server \d+ .* ended with {code}, not {wanted}: ready"):
            process.stop(wanted)
    assert process.returncode == code


def test_who_does_not_stop_is_shown(tmp_path: Path) -> None:
    process = Process(["sh", "-c", "trap '' TERM; echo deaf; sleep 60"], tmp_path / "log", {}, "server")
    eventually_sync(lambda: "deaf" in process.output())
    with pytest.raises(AssertionError, match=r"told to stop and runs after 0\.1 s: deaf"):
        process.stop(within_s=0.1)
    process.end()


def test_a_test_that_fails_by_itself_or_says_why_is_not_looked_at(tmp_path: Path) -> None:
    def run(unchecked: str, failure: Exception | None) -> None:
        with AweEnv(tmp_path) as env:
            env.unchecked = unchecked
            env.server.starts = 1  # nothing was started: a look would fail
            if failure is not None:
                raise failure

    run("the test says so", None)
    with pytest.raises(ZeroDivisionError):
        run("", ZeroDivisionError())
    with pytest.raises(AssertionError, match="not started"):
        run("", None)
