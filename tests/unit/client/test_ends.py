"""How a daemon ends, and what the next one finds: drain, kill -9, spool, wall time."""

import asyncio
import errno
import json
import logging
import os
import pty
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from awe_client.cli.options import DEFAULT_SERVER
from awe_client.daemon import logs, main
from awe_client.daemon.daemon import Daemon, wall_limits
from awe_client.daemon.helper import Helper
from awe_client.daemon.identity import WorkRootBusy
from awe_client.daemon.proc import descendants
from awe_client.daemon.spool import Spool
from tests.support.descriptors import open_below
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import Launch, MakeDaemon, settings_for
from tests.unit.client.processes import appears, marked, no_more

pytestmark = pytest.mark.anyio


async def test_P_01_no_command_survives_a_daemon_that_is_killed(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    daemon = await launch("--executors", "2")
    mark = "mark" + secrets.token_hex(8)
    args = ["-c", f"trap '' TERM; setsid bash -c 'exec -a {mark} sleep 1000' & exec -a {mark} sleep 1000"]
    await server.add_task("bash", cmd={"args_array": args}, ranks=2)
    await appears(mark, 4)
    daemon.kill()
    await daemon.wait()
    await no_more(mark, 5.0)
    await no_more(str(tmp_path / "work" / "fresh"), 5.0)


async def test_P_01_commands_whose_daemon_and_executors_were_killed_at_once_end_with_the_next_start(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    daemon = await launch("--executors", "1")
    mark = "mark" + secrets.token_hex(8)
    await server.add_task("bash", cmd={"args_array": ["-c", f"exec -a {mark} sleep 1000"]})
    await appears(mark)
    [executor] = marked(str(tmp_path / "work" / "fresh"))
    os.kill(daemon.pid, signal.SIGSTOP)
    os.kill(executor, signal.SIGKILL)
    daemon.kill()
    await daemon.wait()
    assert len(marked(mark)) == 1
    server.suspended = True
    await launch()
    await server.until(lambda: len(server.profiles) == 2)
    assert marked(mark) == []


async def test_L_02_a_result_survives_kill_9_and_unfinished_work_is_requeued(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    daemon = await launch()
    [finished] = await server.add_task(script=["sleep 0.4; echo result"])
    [unfinished] = await server.add_task("sleep", "30")
    await server.until(lambda: finished in server.leased and unfinished in server.leased)
    server.black_hole = True
    spool = tmp_path / "work" / "spool" / "reports.log"
    async with asyncio.timeout(10):
        while b"result" not in spool.read_bytes():  # noqa: ASYNC110 — a file tells nobody that it grew
            await asyncio.sleep(0.02)
    daemon.kill()
    await daemon.wait()
    server.black_hole = False
    client_id = server.profiles[0]["id"]
    leftovers = list((tmp_path / "work").glob("attempts/??/??/??/*"))
    assert leftovers

    await launch()
    report = await server.result(finished)
    assert (report["outcome"], report["attempt"], report["stdout_tail"]) == ("done", 1, "result\n")
    profile = server.profiles[-1]
    assert profile["id"] == client_id
    assert profile["incarnation"] != server.profiles[0]["incarnation"]
    assert profile["spooled"] == [[finished, 1]]
    await server.until(lambda: unfinished in server.leased and server.leased[unfinished].attempt == 2)
    assert not any(path.exists() for path in leftovers)


async def test_L_08_sigterm_drains_and_a_second_one_releases(server: FakeServer, launch: Launch) -> None:
    daemon = await launch("--slots", "1")
    mark = "mark" + secrets.token_hex(8)
    [running] = await server.add_task("bash", cmd={"args_array": ["-c", f"exec -a {mark} sleep 1000"]})
    await appears(mark)
    [ahead] = await server.add_task("true")
    await server.until(lambda: [ahead, 1] in server.exchanges[-1]["holds"])
    daemon.send_signal(signal.SIGTERM)
    assert (await server.result(ahead))["outcome"] == "released"
    await server.until(lambda: server.exchanges[-1]["draining"])
    assert server.exchanges[-1]["want"] == 0
    assert len(marked(mark)) == 1
    daemon.send_signal(signal.SIGTERM)
    assert (await server.result(running))["outcome"] == "released"
    assert await asyncio.wait_for(daemon.wait(), 10) == 0
    assert marked(mark) == []


async def test_work_that_comes_while_draining_is_given_back(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for before, and its reply may be on the way."""
    daemon = start()
    await server.until(lambda: bool(server.exchanges))
    monkeypatch.setattr(daemon._loop, "notify", lambda: None)
    daemon.drain("test")
    [work] = await server.add_task()
    assert (await server.result(work))["outcome"] == "released"


async def test_draining_finishes_what_runs(server: FakeServer, launch: Launch) -> None:
    daemon = await launch("--slots", "1")
    [work] = await server.add_task(script=["sleep 0.5; echo finished"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    daemon.send_signal(signal.SIGINT)
    assert (await server.result(work))["stdout_tail"] == "finished\n"
    assert await asyncio.wait_for(daemon.wait(), 10) == 0


async def test_a_drained_client_leaves_undelivered_results_in_the_spool(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.daemon.DELIVER_S", 0.3)
    daemon = start()
    [work] = await server.add_task(script=["sleep 0.3"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    await server.shut()
    daemon.drain("test")
    assert await asyncio.wait_for(daemon.task, 15) == 0  # type: ignore[attr-defined]
    spool = Spool(tmp_path / "work" / "spool")
    assert spool.open() == [(work, 1)]
    spool.close()
    await server.start()


async def test_a_client_that_never_found_a_server_ends_at_once(tmp_path: Path) -> None:
    daemon = Daemon(settings_for("http://127.0.0.1:9", tmp_path / "w"))
    task = asyncio.ensure_future(daemon.run())
    await asyncio.sleep(0.1)
    daemon.drain("test")
    assert await asyncio.wait_for(task, 5) == 0


async def test_two_daemons_cannot_share_a_work_directory(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    await server.until(lambda: bool(server.exchanges))
    with pytest.raises(WorkRootBusy, match="another awe-client uses"):
        await Daemon(settings_for(server.url, tmp_path / "work")).run()


async def test_an_idle_daemon_ends_when_told_to(server: FakeServer, start: MakeDaemon) -> None:
    daemon = start(idle_exit_s=0.3)
    [work] = await server.add_task()
    await server.result(work)
    assert await asyncio.wait_for(daemon.task, 5) == 0  # type: ignore[attr-defined]


async def test_the_wall_time_ends_a_daemon_and_gives_back_what_runs(
    server: FakeServer, start: MakeDaemon
) -> None:
    daemon = start(wall_time_s=1.0, grace_s=0.1)
    [work] = await server.add_task("sleep", "100")
    assert (await server.result(work, 5.0))["outcome"] == "released"
    assert await asyncio.wait_for(daemon.task, 5) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("wall_s", "grace_s"), [(1.0, 10.0), (600.0, 10.0), (86400.0, 30.0), (0.0, 10.0)])
def test_draining_comes_before_releasing_before_the_wall(wall_s: float, grace_s: float) -> None:
    drain, release = wall_limits(wall_s, grace_s)
    assert 0 <= drain <= release <= wall_s
    if wall_s >= 600:
        assert wall_s - release >= grace_s


async def test_file_names_are_utf8_in_any_locale(server: FakeServer, launch: Launch) -> None:
    await launch(prefix=("env", "LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0"))
    name, out = "déjà vu.txt", server.output("報告.txt")
    [work] = await server.add_task(
        script=[f"cat '{name}' > 報告.txt"], inputs=[server.input(name, b"x")], outputs=[out]
    )
    assert (await server.result(work))["outcome"] == "done"
    assert server.uploads[out["node"], work, 1] == b"x"


async def test_P_08_a_low_file_limit_costs_slots_but_no_attempts(server: FakeServer, launch: Launch) -> None:
    await launch("--slots", "60", "--executors", "1", prefix=("prlimit", "--nofile=40"))
    works = await server.add_task("sleep", "0.01", ranks=150)
    for work in works:
        await server.result(work, 60.0)
    kinds = {(r["outcome"], r.get("kind")) for r in server.reports}
    assert ("done", None) in kinds
    assert not {k for k in kinds if k[0] == "failed" and k[1] != "node"}


async def test_P_08_refused_starts_are_tried_again_with_fewer_slots(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    from awe_client.daemon import executor, frames, helper
    from awe_client.daemon.outcome import SpawnRefusal

    refusals = [24, 11, 12]
    original = executor.ExecutorPool.run

    def run(
        pool: executor.ExecutorPool,
        spec: frames.CommandSpec,
        on_end: helper.OnEnd,
        size: frames.Size,
    ) -> int:
        if refusals:
            refusal = SpawnRefusal("spawn", refusals.pop(), b"true")
            asyncio.get_running_loop().call_soon(on_end, refusal)
            return 0
        return original(pool, spec, on_end, size)

    monkeypatch.setattr(executor.ExecutorPool, "run", run)
    monkeypatch.setattr("awe_client.daemon.workshop.START_PAUSE_S", 0.02)
    start(slots=8)
    works = await server.add_task(ranks=12)
    for work in works:
        assert (await server.result(work))["outcome"] == "done"
    # None of them is reported as a failure; a grant whose reply was superseded may make a second attempt.
    assert {report["outcome"] for report in server.reports} == {"done"}
    assert any("could not start processes" in x.get("trouble", "") for x in server.exchanges)


#: Runs a command as the first process of a session with its standard input as its terminal.
TERMINAL = (
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


@pytest.mark.parametrize("stdin", ["null", "closed", "terminal"])
async def test_P_04_who_reads_standard_input_finds_its_end_however_the_daemon_was_started(
    server: FakeServer, launch: Launch, stdin: str
) -> None:
    theirs, ours = pty.openpty()
    try:
        if stdin == "terminal":
            os.write(theirs, b"typed by somebody\n")
            daemon = await launch(prefix=TERMINAL, stdin=ours)
        else:
            daemon = await launch(prefix=("sh", "-c", 'exec "$@" <&-', "sh") if stdin == "closed" else ())
        quiet = [
            *await server.add_task("cat"),
            *await server.add_task("bash"),
            *await server.add_task(script=["read line; echo got:$line"]),
            *await server.add_task(script=["read line </dev/tty; echo got:$line"]),
        ]
        [asks] = await server.add_task(sys.executable, cmd={"args_array": ["-c", "input('password: ')"]})
        reports = [await server.result(work) for work in quiet]
        assert [report["outcome"] for report in reports] == ["done"] * 4
        assert [report["stdout_tail"] for report in reports] == ["", "", "got:\n", "got:\n"]
        report = await server.result(asks)
        assert (report["kind"], report["exit_code"]) == ("command", 1)
        assert "EOFError" in report["stderr_tail"]
        daemon.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(daemon.wait(), 10) == 0
    finally:
        os.close(theirs)
        os.close(ours)


def powerless() -> tuple[str, ...]:
    """What runs a command as a user that is like any other: root without what makes it more."""
    return () if os.getuid() else ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


async def test_P_07_commands_do_not_find_the_token_in_processes_of_their_own_user(
    server: FakeServer, launch: Launch
) -> None:
    """Not of root's: whoever is root reads everything."""
    token, secret = secrets.token_hex(12), secrets.token_hex(12)
    hidden = ("env", f"AWE_CLIENT_TOKEN={token}", f"SECRET_X={secret}")
    daemon = await launch(prefix=(*hidden, *powerless()))
    look = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    memory = "cat /proc/$PPID/maps >/dev/null 2>&1 && echo open || echo closed"
    [work] = await server.add_task(script=[f"env; {look}; {memory}; exit 1"])
    assert (await server.result(work))["exit_code"] == 1
    seen = server.logs[work, 1, "stdout"].decode(errors="replace")
    assert f"AWE_WORK_ID={work}" in seen, "its own environment it does see"
    assert token not in seen
    assert secret not in seen
    assert seen.splitlines()[-1] == "closed", "the memory of its executor"
    assert server.requests[-1][3]["authorization"] == f"CG_TOKEN {token}"
    daemon.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(daemon.wait(), 10) == 0


def cpu_s(pids: list[int]) -> float:
    """What these processes have had of the processors."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def test_Q_03_an_idle_client_costs_no_processor_time(server: FakeServer, launch: Launch) -> None:
    daemon = await launch()
    [work] = await server.add_task()
    await server.result(work)
    await asyncio.sleep(1.0)
    pids = [daemon.pid, *descendants(daemon.pid)]
    before = cpu_s(pids)
    await asyncio.sleep(3.0)
    assert cpu_s(pids) - before < 0.1


async def test_a_drained_daemon_says_goodbye_in_its_last_exchange(
    server: FakeServer, start: MakeDaemon
) -> None:
    daemon = start()
    [work] = await server.add_task(script=["sleep 0.3"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    daemon.drain("a test")
    assert await asyncio.wait_for(daemon.task, 10) == 0  # type: ignore[attr-defined]
    assert server.results[work]
    *before, last = server.exchanges
    assert last["leaving"] is True
    assert (last["holds"], last["reports"], last["want"], last["draining"]) == ([], [], 0, True)
    assert not any("leaving" in x for x in before)


async def test_a_server_that_is_away_does_not_hold_up_the_end(server: FakeServer, start: MakeDaemon) -> None:
    daemon = start()
    await server.until(lambda: bool(server.exchanges))
    server.black_hole = True
    daemon.drain("a test")
    assert await asyncio.wait_for(daemon.task, 5) == 0  # type: ignore[attr-defined]


def test_log_lines_for_people_tell_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    record = logging.makeLogRecord({"levelname": "INFO", "msg": "draining", "created": 1_767_268_800.0})
    try:
        assert logs.TextFormatter().format(record) == "2026-01-01T12:00:00Z INFO draining"
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_living_daemon_shows_it_also_while_suspended_or_without_a_server(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.work_disk.ALIVE_S", 0.05)
    alive = tmp_path / "work" / "alive"

    async def is_shown() -> None:
        os.utime(alive, (0, 0))
        async with asyncio.timeout(10):
            while time.time() - alive.stat().st_mtime > 5:  # noqa: ASYNC110 — a file tells nobody
                await asyncio.sleep(0.01)

    start()
    await server.until(lambda: bool(server.exchanges))
    await is_shown()
    server.suspended = True
    await is_shown()
    server.black_hole = True
    await is_shown()


async def test_log_lines_are_json_when_asked_for_and_hold_no_token(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("very-secret\n")
    token.chmod(0o600)
    daemon = await launch("--json-logs", "--token-file", str(token))
    [work] = await server.add_task(script=["exit 1"])
    await server.result(work)
    daemon.send_signal(signal.SIGTERM)
    await asyncio.wait_for(daemon.wait(), 10)
    text = (tmp_path / "daemon.log").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert {"registered", "attempt_failed", "draining", "stopped"} <= {e["event"] for e in events}
    assert "not_left" not in text
    assert "very-secret" not in text
    assert server.requests[-1][3]["authorization"] == "CG_TOKEN very-secret"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--server", "localhost:1"], "has to begin with http://"),
        (["--server", "http://127.0.0.1:99999"], "a port lies between 1 and 65535"),
        (["--server", "http://[::1"], "cannot be read"),
        (["--server", "http://"], "has to name a host"),
        (["--server", "http://x", "--slots", "0"], "--slots: must be at least 1"),
        (["--server", "http://x", "--memory", "much"], "--memory: 'much' is not a size"),
        (["--server", "http://x", "--wall-time", "soon"], "--wall-time: 'soon' is not a time"),
        (["--server", "http://x", "--apps", ","], "--apps: names no app"),
        (["--server", "http://x", "--token-file", "/etc/passwd"], "others may read it"),
        (["--slots", "1000001"], "--slots: must be a whole number, between 0 and 1000000"),
        (["--slots", "some"], "argument --slots: invalid int value: 'some'"),
        (["--gpus", "-1"], "--gpus: must be a whole number, between 0 and 1000000"),
        (["--executors", "0"], "--executors: must be at least 1"),
        (["--group", ""], "--group: names no group"),
        (["--group", "two words"], "--group: 'two words' is not a group name"),
        (["--name", "a\nb"], "--name: has a control character"),
        (["--instance-id", "x" * 256], "--instance-id: is longer than 255 characters"),
        (["--memory", "9" * 400], "is more than there is"),
        (["--wall-time", "9" * 400], "is longer than a hundred years"),
        (["--transfer-timeout", "0"], "--transfer-timeout: must be more than 0"),
        (["--work", ""], "--work: names nothing"),
        (["--work", "~nobody-of-that-name/x"], "--work: ~nobody-of-that-name/x: there is no such user"),
        (["--token-file", "/dev/null"], "--token-file /dev/null: "),
        (["--token", "x"], "unrecognized arguments: --token x"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_options_are_usage_errors(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["run", *options])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("awe-client: ")
    assert says in line


@pytest.mark.parametrize("token", [b"", b"\n", b"two\nlines", b"\xff"])
def test_a_file_without_a_token_is_a_usage_error(
    token: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    file.chmod(0o600)
    assert main.run(["run", "--token-file", str(file)]) == 2
    assert f"--token-file {file}: holds no token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "variable", "servers"),
    [
        ([], None, (DEFAULT_SERVER,)),
        ([], " ", (DEFAULT_SERVER,)),
        ([], "http://a http://b", ("http://a", "http://b")),
        (["--server", "http://c"], "http://a", ("http://c",)),
    ],
)
def test_the_server_is_the_flags_then_the_variables_then_the_one_of_awe(
    options: list[str], variable: str | None, servers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWE_SERVER", raising=False)
    if variable is not None:
        monkeypatch.setenv("AWE_SERVER", variable)
    parsed = main.build_parser().parse_args(["run", *options])
    assert main.settings_of(parsed).servers == servers


async def test_a_daemon_that_cannot_start_all_its_executors_leaves_nothing(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[int]()
    start = Helper.start

    def refused(*args: Any) -> Helper:
        if started:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        helper = start(*args)
        started.append(helper.pid)
        return helper

    monkeypatch.setattr(Helper, "start", refused)
    with pytest.raises(BlockingIOError):
        await Daemon(settings_for(server.url, tmp_path / "work", executors=2)).run()
    assert marked(str(tmp_path / "work" / "fresh")) == []
    assert open_below(tmp_path) == []


async def test_a_daemon_that_cannot_start_the_thread_for_its_disk_gives_its_directory_back(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="starts no more threads"):
            await Daemon(settings_for(server.url, tmp_path / "work")).run()
    assert open_below(tmp_path) == []
