"""Commands in containers: real podman and docker, real client and server."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import IMAGE, TestEngine, engine_or_skip
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync

#: Known in a process list by its number, also while others run these tests.
LONG_S = 1_000_000 + os.getpid()


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEngine]:
    """An engine with a busybox image; clients find it as they would find a site's."""
    with (
        pytest.MonkeyPatch.context() as patch,
        engine_or_skip(request.param, tmp_path_factory.mktemp(request.param)) as found,
    ):
        for name, value in found.variables.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def server(engine: TestEngine) -> Iterator[AweEnv]:
    with AweEnv.temporary() as env:
        env.server.start()
        yield env


@pytest.fixture(scope="module")
def site(server: AweEnv, engine: TestEngine) -> AweEnv:
    """A server with a client that offers the engine."""
    server.start_client("--containers", engine.name, "--grace", "0.3", slots=2)
    eventually_sync(lambda: [c["containers"] for c in server.data("GET", "/client")] == [[engine.name]])
    return server


def boxed(args: str = "", name: str = "sh", **keys: Any) -> dict[str, Any]:
    """A job of one task in a container."""
    cmd = {"name": name, "args": args, "Dockerimage": IMAGE, **keys.pop("cmd", {})}
    return {"tasks": [{"taskid": "0", "cmd": cmd, "retry_delay_s": 0, **keys}]}


def output(site: AweEnv, job: dict[str, Any], number: int = 0) -> str:
    node = job["tasks"][0]["outputs"][number]["node"]
    return site.http.get(f"/node/{node}?download").text


def upload(site: AweEnv, content: bytes, attributes: dict[str, str] | None = None) -> str:
    """Make a node with a file."""
    parts = {"upload": ("file", content), "attributes_str": (None, json.dumps(attributes or {}))}
    return str(site.data("POST", "/node", files=parts)["id"])


def test_inputs_are_read_and_outputs_come_back_owned_by_the_daemon(site: AweEnv, engine: TestEngine) -> None:
    node = upload(site, b"acgt\n")
    script = '{ cat "$1"; echo "$1 $PWD $HOME"; id -u; }'
    job_id = site.submit(
        boxed(
            f"-c '{script} > out' sh @reads.fna",
            inputs=[{"filename": "reads.fna", "node": node, "host": site.server.url}],
            outputs=[{"filename": "out"}],
        )
    )
    job = site.wait_for(job_id)
    uid = os.geteuid()
    assert output(site, job) == f"acgt\n/workdir/reads.fna /workdir /workdir\n{uid}\n"
    assert engine.containers() == []


def test_predata_standard_input_and_scripts_work_as_without_a_container(site: AweEnv) -> None:
    reference, reads = upload(site, b"reference\n"), upload(site, b"one\ntwo\n")
    job_id = site.submit(
        boxed(
            cmd={"name": "", "cmd_script": ["cat data/ref", "wc -l", "echo told >&2"], "stdin": "reads"},
            predata=[{"filename": "data/ref", "node": reference, "host": site.server.url}],
            inputs=[{"filename": "reads", "node": reads, "host": site.server.url}],
            outputs=[{"filename": "awe_stdout.txt"}, {"filename": "awe_stderr.txt"}],
        )
    )
    job = site.wait_for(job_id)
    assert output(site, job).split() == ["reference", "2"]
    assert output(site, job, 1) == "told\n"


def test_the_environment_is_built_and_secrets_are_in_no_process_list(site: AweEnv) -> None:
    environ = {"public": {"LINES": "a b\n'c'", "PATH": "/bin:/odd"}, "private": {"TOKEN": "s3cr3t-word"}}
    script = 'echo "$TOKEN|$PATH|$TMPDIR|$AWE_RANK|$LINES|$USER" > out; sleep 1'
    job_id = site.submit(boxed(f"-c '{script}'", outputs=[{"filename": "out"}], cmd={"environ": environ}))
    lines: set[str] = set()

    def is_over() -> bool:
        lines.update(process_list())
        return bool(site.job(job_id)["state"] == "completed")

    eventually_sync(is_over, every_s=0.05)
    assert output(site, site.job(job_id)) == "s3cr3t-word|/bin:/odd|/workdir|0|a b\n'c'|\n"
    assert any(f"awe_{job_id}_0_0" in line for line in lines)
    assert not any("s3cr3t-word" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "kind", "code", "message"),
    [
        ("sh -c 'echo broken >&2; exit 3'", "command", 3, "broken"),
        ("sh -c 'exit 125'", "command", 125, "exit code 125"),
        ("no-such-program", "command", 127, "no-such-program"),
        ("sh -c 'head -c 99m /dev/zero | tail -c 90m > /dev/null'", "oom", None, "ran out of memory"),
    ],
)
def test_failures_are_told_apart(
    site: AweEnv, engine: TestEngine, words: str, kind: str, code: int | None, message: str
) -> None:
    name, _, args = words.partition(" ")
    task = {"max_failures": 1, "resources": {"memory_bytes": 32 * 1024 * 1024}}
    job_id = site.submit(boxed(args, name, **task))
    site.wait_for(job_id, "suspend")
    ended = site.data("GET", f"/work/{job_id}_0_0")["exit"]
    assert (ended["kind"], ended["exit_code"]) == (kind, code), ended
    assert message in ended["message"]
    assert engine.containers() == []


def test_a_time_limit_ends_the_container_whatever_it_ignores(site: AweEnv, engine: TestEngine) -> None:
    job_id = site.submit(
        boxed(f"-c 'trap \"\" TERM; sleep {LONG_S}; sleep {LONG_S}'", time_limit_s=1, max_failures=1)
    )
    site.wait_for(job_id, "suspend")
    assert site.data("GET", f"/work/{job_id}_0_0")["exit"]["kind"] == "timeout"
    assert engine.containers() == []
    assert not [line for line in process_list() if f"sleep {LONG_S}" in line]


def test_a_deleted_job_takes_its_container_along(site: AweEnv, engine: TestEngine) -> None:
    job_id = site.submit(boxed(f"-c 'sleep {LONG_S}; true'"))
    eventually_sync(lambda: engine.containers() == [f"awe_{job_id}_0_0.1"], show=engine.containers)
    site.data("DELETE", f"/job/{job_id}")
    eventually_sync(lambda: engine.containers() == [])


def test_an_image_comes_from_the_node_store(site: AweEnv, engine: TestEngine, tmp_path: Path) -> None:
    name = "localhost/stored:1"
    engine.make_image(name)
    archive = tmp_path / "image.tar"
    assert engine.call("save", "--output", str(archive), name).returncode == 0
    assert engine.call("rmi", "--force", name).returncode == 0
    upload(site, archive.read_bytes(), {"type": "dockerimage", "name": name})
    job = site.wait_for(
        site.submit(boxed("-c 'echo here > out'", outputs=[{"filename": "out"}], cmd={"Dockerimage": name}))
    )
    assert output(site, job) == "here\n"


def test_an_image_that_is_nowhere_is_the_machines_failure(server: AweEnv, engine: TestEngine) -> None:
    server.start_client("--containers", engine.name, group="lonely", slots=1)
    job = boxed(cmd={"dockerPull": engine.absent, "Dockerimage": ""})
    job_id = server.submit({**job, "info": {"clientgroups": "lonely"}})
    server.wait_for(job_id, "suspend")
    ended = server.data("GET", f"/work/{job_id}_0_0")["exit"]
    assert ended["kind"] == "node"
    assert ended["message"].startswith(f"{engine.name} cannot pull the image {engine.absent}: ")


def test_without_an_engine_a_client_is_not_eligible_and_why_says_so(server: AweEnv) -> None:
    server.start_client("--containers", "none", group="plain", slots=1)
    eventually_sync(lambda: any(c["group"] == "plain" for c in server.data("GET", "/client")))
    job_id = server.submit({**boxed("-c true"), "info": {"clientgroups": "plain"}})
    told = server.awe("why", job_id)
    assert "no live client in group `plain` that offers app `sh` has a container engine" in told.stdout
    server.data("DELETE", f"/job/{job_id}")


def test_an_engine_that_does_not_work_is_refused_by_name(engine: TestEngine, server: AweEnv) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.broken.items():
            patch.setenv(name, value)
        client = server.start_client("--containers", engine.name)
        assert client.wait() == 2
    assert f"awe-client: --containers {engine.name}: {engine.name} does not work: " in client.output()


def running_alone(server: AweEnv, engine: TestEngine, group: str) -> tuple[Process, str]:
    """A client and a job whose container runs on it."""
    client = server.start_client("--containers", engine.name, group=group, slots=1)
    job = boxed(
        f"-c 'echo $AWE_ATTEMPT > out; test $AWE_ATTEMPT = 2 || sleep {LONG_S}'",
        outputs=[{"filename": "out"}],
    )
    job_id = server.submit({**job, "info": {"clientgroups": group}})
    eventually_sync(lambda: engine.containers() == [f"awe_{job_id}_0_0.1"])
    return client, job_id


def test_a_killed_daemon_leaves_no_container(server: AweEnv, engine: TestEngine) -> None:
    client, job_id = running_alone(server, engine, "killed")
    client.kill()
    eventually_sync(lambda: engine.containers() == [], show=engine.containers)
    assert not [line for line in process_list() if f"sleep {LONG_S}" in line]
    server.data("DELETE", f"/job/{job_id}")


def test_a_restarted_daemon_removes_what_a_dead_machine_left(server: AweEnv, engine: TestEngine) -> None:
    client, job_id = running_alone(server, engine, "dead")
    work = server.home / f"client-{len(server.clients)}"
    client.pause()
    for pid in children_of(client.pid):
        os.kill(pid, signal.SIGKILL)
    client.kill()
    assert engine.containers() == [f"awe_{job_id}_0_0.1"]
    server.start_client("--containers", engine.name, "--work", str(work), group="dead", slots=1)
    job = server.wait_for(job_id)
    assert output(server, job) == "2\n"
    assert engine.containers() == []


def process_list() -> list[str]:
    """What everybody may see of everybody's command line."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return lines


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
