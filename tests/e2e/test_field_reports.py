"""Cases from the field that need real processes: a server, clients, commands, and people who look on."""

import hashlib
import json
import os
import resource
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import FaultProxy
from tests.unit.client.processes import marked

#: Ways to stop a job, and the state it is in then.
STOPS = {"suspend": ("PUT", "?suspend", "suspend"), "delete": ("DELETE", "", "deleted")}


@pytest.fixture(scope="module")
def site() -> Iterator[AweEnv]:
    """A server; each test starts clients of a group of its own."""
    with AweEnv.temporary() as env:
        env.server.start()
        yield env


def submit(site: AweEnv, group: str, *script: str, info: dict[str, Any] | None = None, **keys: Any) -> str:
    """A job of one task of some script lines, for clients of this group."""
    task = {"taskid": "0", "cmd": {"cmd_script": list(script)}, **keys}
    return site.submit({"info": {"clientgroups": group, **(info or {})}, "tasks": [task]})


# -- S-07, S-08 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", STOPS)
def test_S_07_a_job_whose_client_was_killed_is_over_at_once(site: AweEnv, tmp_path: Path, how: str) -> None:
    method, query, state = STOPS[how]
    group, mended = f"gone-{how}", tmp_path / "mended"
    client = site.start_client(group=group)
    job_id = submit(site, group, f"[ -e {mended} ] || sleep 1000")
    site.wait_for(job_id, "in-progress")
    client.kill("kill client, its job is stopped then")
    site.data(method, f"/job/{job_id}{query}")
    assert site.job(job_id)["state"] == state
    if how == "suspend":
        mended.touch()
        site.data("PUT", f"/job/{job_id}?resume")
        site.start_client(group=group)
        assert site.wait_for(job_id)["resumed"] == 1


@pytest.mark.parametrize("how", STOPS)
def test_S_08_P_01_after_a_cancel_nothing_starts_and_no_process_is_left(
    site: AweEnv, tmp_path: Path, how: str
) -> None:
    method, query, state = STOPS[how]
    group, starts, mark = f"cancel-{how}", tmp_path / "starts", "mark" + secrets.token_hex(8)
    starts.touch()
    client = site.start_client("--grace", "1", group=group, slots=4)
    job_id = submit(
        site, group,
        f"echo $AWE_RANK >> {starts}",
        "trap 'exit 1' TERM",
        f"bash -c 'exec -a {mark} sleep 1000' &",
        f"setsid bash -c \"trap '' TERM; exec -a {mark} sleep 1000\" &",
        "wait",
        totalwork=10, max_failures=5, retry_delay_s=0,
    )  # fmt: skip
    eventually_sync(lambda: len(marked(mark)) == 8, show=client.output)
    site.data(method, f"/job/{job_id}{query}")
    assert len(starts.read_text().split()) == 4
    eventually_sync(lambda: not marked(mark), show=lambda: marked(mark))
    site.wait_for(submit(site, group, "true", totalwork=8, partinfo={"index": "none"}))  # in all the slots
    assert len(starts.read_text().split()) == 4
    job = site.job(job_id)
    assert (job["state"], job["lastfailed"]) == (state, "")
    units = site.data("GET", "/work", params={"query": "", "jobid": job_id})
    assert {unit["failed"] for unit in units} == {0}, "what a cancelled attempt says counts nowhere"
    client.end()


# -- P-02 ------------------------------------------------------------------------------------------------

#: A script line; the job's state, kind, exit code, signal, and words of what is said.
ENDS: dict[str, tuple[str, str, int | None, int | None, str]] = {
    "exit 1": ("suspend", "command", 1, None, "exit code 1"),
    "exit 42": ("failed-permanent", "command", 42, None, "exit code 42"),
    "exit 255": ("suspend", "command", 255, None, "exit code 255"),
    "touch f; ./f": ("suspend", "command", 126, None, "./f"),
    "no-such-command-x": ("suspend", "command", 127, None, "no-such-command-x"),
    "bash -c 'kill -9 $$'; exit $?": ("suspend", "command", 137, None, "killed by signal 9, SIGKILL"),
    "kill -9 $$": ("suspend", "signal", None, 9, "killed by signal 9 (SIGKILL)"),
    "kill -SEGV $$": ("suspend", "signal", None, 11, "killed by signal 11 (SIGSEGV)"),
}


def test_P_02_how_a_command_ended_is_kept_and_shown(site: AweEnv) -> None:
    client = site.start_client(group="ends", slots=4)
    jobs = {line: submit(site, "ends", line, info={"noretry": True}) for line in ENDS}
    fine = [submit(site, "ends", line) for line in ("exit 0", "yes | head -1 > /dev/null")]
    for line, (state, kind, exit_code, signal, says) in ENDS.items():
        job = site.wait_for(jobs[line], state)
        work = site.data("GET", f"/work/{jobs[line]}_0_0")
        ended = work["exit"]
        assert (ended["kind"], ended["exit_code"], ended["signal"]) == (kind, exit_code, signal), line
        assert work["failed"] == 1
        assert says in ended["message"]
        assert says in job["notes"]
        assert says in str(site.data("GET", f"/job/{jobs[line]}?why"))
    for job_id in fine:
        site.wait_for(job_id)
    assert not site.data("GET", "/client?group=ends")[0]["suspended"]
    client.end()


# -- P-05 ------------------------------------------------------------------------------------------------


def noise() -> bytes:
    """Bytes of no encoding, characters cut where buffers end, what moves a terminal, and chance."""
    rocket = "\U0001f680".encode()
    text = b"\xc0\xff\x00 caf\xe9 "
    text += b"x" * (4_096 - len(text) - 2) + rocket
    text += b"y" * (65_536 - len(text) - 2) + rocket
    bars = b"".join(b"\r%3d %%" % done for done in range(101))
    return text + bars + b"\n\x1b[31mred\x1b[0m\x1b]0;title\x07\n" + os.urandom(2**20)


def test_P_05_output_of_any_bytes_arrives_whole_and_is_shown_as_text(site: AweEnv, tmp_path: Path) -> None:
    sent = {name: noise() for name in ("stdout", "stderr")}
    for name, data in sent.items():
        (tmp_path / name).write_bytes(data)
    client = site.start_client(group="noise")
    outputs = [{"filename": f"awe_{name}.txt"} for name in sent]
    both = f"cat {tmp_path}/stderr >&2 & cat {tmp_path}/stdout; wait"
    job_id = submit(site, "noise", both, outputs=outputs)
    job = site.wait_for(job_id)
    for output, (name, data) in zip(job["tasks"][0]["outputs"], sent.items(), strict=True):
        stored = site.http.get(f"/node/{output['node']}?download").content
        assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest(), name
        assert site.http.get(f"/work/{job_id}_0_0/log/{name}").content == data
        shown = site.data("GET", f"/work/{job_id}_0_0?report={name}")
        assert shown == data.decode("utf-8", "replace")
    site.data("GET", f"/job/{job_id}?report")
    ran = site.awe("logs", job_id, "--json")
    assert ran.returncode == 0
    assert "\ufffd" in str(json.loads(ran.stdout))
    assert client.returncode is None
    site.wait_for(submit(site, "noise", "true"))
    client.end()


# -- P-08 ------------------------------------------------------------------------------------------------


@contextmanager
def watchers(url: str, paths: list[str], count: int = 5) -> Iterator[Counter[int]]:
    """So many who look at all of these every 100 ms; how often which status was answered."""
    over, seen = threading.Event(), Counter[int]()

    def watch() -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            while not over.wait(0.1):
                for path in paths:
                    seen[http.get(path).status_code] += 1

    threads = [threading.Thread(target=watch) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
def test_P_08_thousands_of_short_commands_on_few_descriptors_while_many_look_on(site: AweEnv) -> None:
    """Fewer descriptors than slots: a command costs its client none, so that no start is ever refused."""
    client = site.start_client(group="many", slots=100, under=("prlimit", "--nofile=64"))
    job_id = submit(site, "many", "true", totalwork=5_000, partinfo={"index": "none"})
    paths = [f"/job/{job_id}", f"/job/{job_id}?why", "/job", "/client", "/events?since=0"]
    with watchers(site.server.url, paths) as seen:
        job = site.wait_for(job_id, within_s=250)
    assert set(seen) == {200}
    assert job["tasks"][0]["remainwork"] == 0
    where = {"query": "", "jobid": job_id, "state": "completed", "limit": "1"}
    assert site.http.get("/work", params=where).json()["total_count"] == 5_000
    [shown] = site.data("GET", "/client?group=many")
    assert (shown["total_completed"], shown["total_failed"], shown["trouble"]) == (5_000, 0, "")
    assert resource.prlimit(client.pid, resource.RLIMIT_NOFILE) == (64, 64), "the limit held"
    assert "start_refused" not in client.output()
    assert site.server.running.returncode is None
    client.end()


@pytest.mark.slow
def test_P_08_what_fails_at_once_ends_at_its_threshold(site: AweEnv, tmp_path: Path) -> None:
    """`max_failures` is one workunit's, and what failed goes before what never ran: those of one round are
    tried ten times each, and the thousands behind them are not begun."""
    starts = tmp_path / "starts"
    starts.touch()
    client = site.start_client(group="threshold", slots=4)
    job_id = submit(
        site, "threshold", f"echo $AWE_RANK >> {starts}; exit 1",
        totalwork=5_000, max_failures=10, retry_delay_s=0, partinfo={"index": "none"},
    )  # fmt: skip
    with watchers(site.server.url, [f"/job/{job_id}"]) as seen:
        job = site.wait_for(job_id, "suspend")
    assert set(seen) == {200}
    assert "failed 10 time(s)" in job["notes"]
    ran = Counter(starts.read_text().split())
    assert max(ran.values()) <= 10
    assert ran.total() <= 10 * 64
    assert not site.data("GET", "/client?group=threshold")[0]["suspended"]
    client.end()


# -- X-05 ------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file with one line, of a name that no other test has."""
    file = tmp_path / f"lines-{secrets.token_hex(4)}.txt"
    file.write_text("x\n")
    return file


@pytest.mark.parametrize("word", ["submit", "run"])
def test_X_05_a_job_whose_reply_was_lost_is_there_once(site: AweEnv, lines: Path, word: str) -> None:
    user = f"once-{word}"
    task = {
        "taskid": "0",
        "cmd": {"name": "cat", "args": f"@{lines.name}"},
        "inputs": [{"filename": lines.name}],
    }
    document = lines.with_name("job.json")
    document.write_text(json.dumps({"info": {"user": user, "clientgroups": "nobody"}, "tasks": [task]}))
    with FaultProxy(site.server.url) as proxy:
        proxy.faults.drop_reply(2, method="POST", where="/job")
        if word == "submit":
            given = ("submit", str(document), "--upload", f"{lines.name}={lines}")
        else:
            given = ("run", "--user", user, "--group", "nobody", "--input", str(lines))
        command = ("--", "cat", lines.name) if word == "run" else ()
        ran = site.awe(*given, "--server", proxy.url, *command)
        assert proxy.counts["drop-reply"] == 2
    assert ran.returncode == 0, ran.stderr
    assert [job["id"] for job in site.data("GET", "/job", params={"user": user})] == ran.stdout.split()


def test_X_05_a_node_whose_reply_was_lost_is_not_made_again_blindly(site: AweEnv, lines: Path) -> None:
    """POST /node has no key: whoever repeats it makes another node, so nobody does."""
    with FaultProxy(site.server.url) as proxy:
        proxy.faults.drop_reply(method="POST", where="/node")
        ran = site.awe("node", "put", str(lines), "--server", proxy.url)
    assert ran.returncode == 3, ran.stderr
    found = site.http.get("/node", params={"file.name": lines.name}).json()
    assert found["total_count"] == 1


# -- X-07 ------------------------------------------------------------------------------------------------


def command_lines() -> bytes:
    """Those of all processes, as `ps` shows them to everybody."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(process.read_bytes())
    return b"\n".join(found)


def test_X_07_no_secret_is_in_a_log_a_file_or_a_command_line(tmp_path: Path) -> None:
    """Logs are as talkative as can be; a job ends well and one fails. Only the store keeps secrets."""
    secret = {kind: f"canary-{kind}-{secrets.token_hex(8)}" for kind in ("client", "user", "data", "private")}
    go, began = tmp_path / "go", tmp_path / "began"
    with AweEnv.temporary(
        flags=("--log-level", "debug"), client_env={"AWE_CLIENT_TOKEN": secret["client"]}
    ) as env:
        env.server.start()
        client = env.start_client("--verbose")
        environ = {"private": {"KEY": secret["private"]}}
        wait = f'[ -n "$KEY" ] && touch {began} && until [ -e {go} ]; do sleep 0.05; done'
        headers = {"Authorization": f"OAuth {secret['user']}", "Datatoken": secret["data"]}
        jobs = []
        for end in ("exit 0", "exit 1"):
            task = {"taskid": "0", "cmd": {"cmd_script": [wait, end], "environ": environ}}
            document = {"info": {"noretry": True}, "tasks": [task]}
            jobs.append(env.data("POST", "/job", json=document, headers=headers)["id"])
        eventually_sync(began.exists, show=client.output)
        seen = command_lines()
        go.touch()
        env.wait_for(jobs[0])
        env.wait_for(jobs[1], "suspend")
        client.stop()
        kept = [path for path in env.home.rglob("*") if path.is_file()]
        store = [path for path in kept if path.name.startswith("awe.sqlite")]
        for path in set(kept) - set(store):
            data = path.read_bytes()
            assert [kind for kind, word in secret.items() if word.encode() in data] == [], path
        assert [kind for kind, word in secret.items() if word.encode() in seen] == []
        written = b"".join(path.read_bytes() for path in store)
        assert secret["private"].encode() in written, "this is where it is kept"
        assert secret["client"].encode() not in written
        assert secret["user"].encode() not in written
        assert {path.stat().st_mode & 0o077 for path in store} == {0}, "only the server's user reads it"
