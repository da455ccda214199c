"""What commands do, and what the report says of it (P-02, P-04, P-05, P-07)."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import hashlib
import os
from pathlib import Path

import pytest

from shared_models.variables import ATTEMPT, set_variables
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


async def test_a_command_that_does_well_is_reported_done(server: FakeServer, start: MakeDaemon) -> None:
    start()
    [work] = await server.add_task("echo", "hello 'wide world'")
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert report["exit_code"] == 0
    assert report["stdout_tail"] == "hello wide world\n"
    assert report["perf"]["peak_memory_bytes"] > 0


@pytest.mark.parametrize(
    ("script", "kind", "exit_code", "signal", "says"),
    [
        ("exit 1", "command", 1, None, "exit code 1"),
        ("echo no such luck >&2; exit 1", "command", 1, None, "exit code 1: no such luck"),
        ("exit 42", "command", 42, None, "exit code 42"),
        ("exit 255", "command", 255, None, "exit code 255"),
        ("kill -9 $$", "signal", None, 9, "killed by signal 9 (SIGKILL)"),
        ("kill -SEGV $$", "signal", None, 11, "killed by signal 11 (SIGSEGV)"),
        ("sh -c 'kill -9 $$'", "command", 137, None, "killed by signal 9, SIGKILL"),
        ("nosuchcommand-x", "command", 127, None, "nosuchcommand-x"),
        ("touch f; ./f", "command", 126, None, "cannot be executed"),
    ],
)
async def test_P_02_only_exit_code_0_is_success(
    server: FakeServer,
    start: MakeDaemon,
    script: str,
    kind: str,
    exit_code: int | None,
    signal: int | None,
    says: str,
) -> None:
    start()
    [work] = await server.add_task(script=[script])
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", kind)
    assert (report["exit_code"], report["signal"]) == (exit_code, signal)
    assert says in report["message"]


async def test_P_02_a_broken_pipe_inside_a_command_is_the_commands_own_business(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task(script=["yes | head -1"])
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert report["stderr_tail"] == ""


@pytest.mark.parametrize(
    ("name", "exit_code", "says"),
    [
        ("no-such-program-here", 127, "command not found: no-such-program-here"),
        ("/etc/passwd", 126, "cannot execute /etc/passwd"),
        ("/no/such/file", 127, "command not found: /no/such/file"),
    ],
)
async def test_P_02_a_program_that_cannot_be_started_is_named(
    server: FakeServer, start: MakeDaemon, name: str, exit_code: int, says: str
) -> None:
    start()
    [work] = await server.add_task(name)
    report = await server.result(work)
    assert (report["outcome"], report["kind"], report["exit_code"]) == ("failed", "command", exit_code)
    assert says in report["message"]


async def test_an_unset_variable_in_the_arguments_is_a_failure_that_names_it(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task("echo", "${NOT_SET}")
    report = await server.result(work)
    assert report["kind"] == "command"
    assert "NOT_SET" in report["message"]


async def test_P_04_a_command_that_reads_standard_input_ends_at_once(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    works = [
        *await server.add_task("cat"),
        *await server.add_task("bash"),
        *await server.add_task(script=["read line; echo got:$line"]),
    ]
    reports = [await server.result(work) for work in works]
    assert [report["outcome"] for report in reports] == ["done"] * 3
    assert reports[2]["stdout_tail"] == "got:\n"


async def test_stdin_stdout_and_stderr_may_be_files(server: FakeServer, start: MakeDaemon) -> None:
    start()
    out = server.output("sub/out.txt")
    [work] = await server.add_task(
        script=["cat; echo oops >&2"],
        cmd={"stdin": "in.txt", "stdout": "sub/out.txt", "stderr": "err.txt"},
        inputs=[server.input("in.txt", b"from a file\n")],
        outputs=[out],
    )
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert server.uploads[out["node"], work, 1] == b"from a file\n"
    assert report["stderr_tail"] == "oops\n"


async def test_P_05_bytes_that_are_no_text_are_kept_in_files_and_replaced_in_reports(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    noise = os.urandom(1_000_000)
    out = server.output("awe_stdout.txt")
    [work] = await server.add_task(
        script=["cat in.bin; printf '\\300\\377\\000caf\\351' >&2"],
        inputs=[server.input("in.bin", noise)],
        outputs=[out],
    )
    report = await server.result(work)
    assert report["outcome"] == "done"
    stored = server.uploads[out["node"], work, 1]
    assert hashlib.sha256(stored).digest() == hashlib.sha256(noise).digest()
    assert server.logs[work, 1, "stdout"] == noise
    assert report["stderr_tail"] == "\ufffd\ufffd\x00caf\ufffd"


async def test_a_long_log_is_sent_whole_and_its_tail_reported(server: FakeServer, start: MakeDaemon) -> None:
    start()
    [work] = await server.add_task(script=["seq 1 30000"])
    report = await server.result(work)
    assert report["stdout_tail"].endswith("30000\n")
    assert len(report["stdout_tail"]) <= 65536
    assert server.logs[work, 1, "stdout"].startswith(b"1\n2\n")
    assert (work, 1, "stderr") not in server.logs


async def test_a_failed_command_s_logs_are_sent_however_short(server: FakeServer, start: MakeDaemon) -> None:
    start()
    [work] = await server.add_task(script=["echo one; echo two >&2; exit 3"])
    await server.result(work)
    assert server.logs == {(work, 1, "stdout"): b"one\n", (work, 1, "stderr"): b"two\n"}


async def test_a_script_runs_in_bash(server: FakeServer, start: MakeDaemon) -> None:
    start()
    lines = ["set -euo pipefail", 'words=(a "b c")', 'echo "${#words[@]} $1"']
    [work] = await server.add_task("", args_word := "'first word'", cmd={"cmd_script": lines})
    assert args_word
    assert (await server.result(work))["stdout_tail"] == "2 first word\n"


async def test_a_time_limit_ends_the_command_and_is_named(server: FakeServer, start: MakeDaemon) -> None:
    start(grace_s=0.2)
    [work] = await server.add_task(script=["echo started; sleep 60"], time_limit_s=0.3)
    report = await server.result(work)
    assert report["kind"] == "timeout"
    assert "time limit of 0.3 s" in report["message"]
    assert report["stdout_tail"] == "started\n"


async def test_P_07_the_environment_is_built_and_nothing_leaks(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_X", "classified")
    monkeypatch.setenv("AWE_CLIENT_TOKEN", "classified")
    start(slots=1, authorization="CG_TOKEN classified")
    script = ["env; umask; ulimit -c; tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline"]
    script.append("echo cwd:$PWD; ulimit -n; ls -A $TMPDIR")
    changes = "umask 077; ulimit -n 50; cd /; export VAR=a; touch $TMPDIR/left; env"
    [first] = await server.add_task(script=[changes], environ={"VAR": "b"})
    [second] = await server.add_task(script=script, private={"KB_AUTH_TOKEN": "mine"})
    text = (await server.result(first))["stdout_tail"]
    assert "VAR=a" in text
    text = (await server.result(second))["stdout_tail"]
    assert "classified" not in text
    assert "VAR=" not in text
    assert "KB_AUTH_TOKEN=mine" in text
    assert "0022" in text
    assert "\n50\n" not in text
    assert "left" not in text
    assert "cwd:/\n" not in text
    names = {line.partition("=")[0] for line in text.splitlines() if "=" in line}
    allowed = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}
    assert {n for n in names if not n.startswith("AWE_")} <= allowed | {"KB_AUTH_TOKEN", "LC_CTYPE"}


async def test_a_command_finds_the_variables_that_documents_may_name_and_no_other(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task(script=["env -0 | cut -z -d= -f1 | tr '\\0' ' '"])
    names = set((await server.result(work))["stdout_tail"].split())
    assert {name for name in names if name.startswith("AWE_")} == set(ATTEMPT)
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} <= set_variables([], in_container=False)
    assert {"PATH", "TMPDIR"} <= names


async def test_a_command_knows_who_it_is(server: FakeServer, start: MakeDaemon) -> None:
    start()
    works = await server.add_task(
        script=["echo $AWE_JOB_ID $AWE_TASK_ID $AWE_WORK_ID $AWE_RANK/$AWE_TOTALWORK $AWE_ATTEMPT $AWE_CORES"
                " $AWE_ARRAY_INDEX $AWE_SERVER"],
        ranks=3,
        environ={"AWE_ARRAY_FIRST": "10"},
    )  # fmt: skip
    for rank, work in enumerate(works, 1):
        task = work.rpartition("_")[0]
        expected = f"{server.job_id} {task} {work} {rank}/3 1 1 {9 + rank} {server.url}\n"
        assert (await server.result(work))["stdout_tail"] == expected


async def test_P_07_temporary_files_go_with_the_work_directory(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    [work] = await server.add_task(script=["mktemp"])
    path = Path((await server.result(work))["stdout_tail"].strip())
    assert path.is_relative_to(tmp_path / "work")
    assert not path.exists()


async def test_inputs_in_arguments_become_paths_and_foreign_at_signs_stay(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task(
        "echo", "-in=@reads.fna me@example.org", inputs=[server.input("reads.fna", b"x")]
    )
    words = (await server.result(work))["stdout_tail"].split()
    assert words[0].startswith("-in=/")
    assert words[0].endswith("/reads.fna")
    assert words[1] == "me@example.org"


async def test_a_container_is_left_to_clients_that_have_an_engine(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task("true", cmd={"Dockerimage": "ubuntu"})
    report = await server.result(work)
    assert (report["kind"], report["message"]) == ("node", "this client runs no containers")
