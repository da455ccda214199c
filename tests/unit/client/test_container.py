"""What starts a command in a container, and what its end means: three engines, none of them needed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.container import (
    Boxed,
    Engine,
    State,
    check_image,
    engine_environment,
    judge,
    launch,
    state_of,
)
from awe_client.daemon.engine import EngineMissing, detect, read_answer
from awe_client.daemon.images import _loaded_name
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal, judge_end, judge_refusal, report_of
from shared_models.errors import InvalidDocument
from shared_models.states import FailureKind
from tests.unit.client.test_machine import GOOD

DOCKER = Engine("docker", "/bin/docker", "28.2.2")
PODMAN = Engine("podman", "/bin/podman", "4.3.1")
APPTAINER = Engine("apptainer", "/bin/apptainer", "1.3.4")
SETUP = {"PATH": "/usr/bin", "HOME": "/home/awe"}


def box(**changes: Any) -> Boxed:
    """A plain command."""
    plain = Boxed(
        image="repo/tool:1",
        name="awe_j_0_0.1",
        labels={"awe.work": "/awe"},
        directory="/awe/j/j_0_0.1",
        read_only=[],
        words=["tool", "-x", "/workdir/in"],
        env={"AWE_WORK_ID": "j_0_0", "AWE_ATTEMPT": "1"},
        private=set(),
        reads_stdin=False,
        cores=1,
        memory_bytes=0,
        gpus=0,
        user="1000:100",
    )
    return replace(plain, **changes)


def start(
    engine: Engine, image: str = "repo/tool:1", cpus: int = 8, **changes: Any
) -> tuple[str, Mapping[str, str]]:
    """The words as one text, and the environment."""
    found = launch(engine, box(**changes), image, SETUP, cpus)
    return " ".join(found.words), found.env


@pytest.mark.parametrize("engine", [DOCKER, PODMAN], ids=lambda e: e.name)
def test_a_whole_start_with_docker_and_podman(engine: Engine) -> None:
    found = launch(engine, box(), "repo/tool:1", SETUP, 8)
    assert found.words == [
        engine.program, "run", "--name", "awe_j_0_0.1", "--pull", "never", "--log-driver", "none",
        "--label", "awe.work=/awe",
        "--security-opt", "label=disable", "--security-opt", "no-new-privileges",
        "--user", "1000:100",
        "--mount", "type=bind,source=/awe/j/j_0_0.1,target=/workdir", "--workdir", "/workdir",
        "--cpus", "1",
        "--env", "AWE_WORK_ID", "--env", "AWE_ATTEMPT",
        "--entrypoint", "", "repo/tool:1", "tool", "-x", "/workdir/in",
    ]  # fmt: skip
    assert found.env == {**SETUP, "AWE_WORK_ID": "j_0_0", "AWE_ATTEMPT": "1"}
    assert found.cleanup == engine.removal("awe_j_0_0.1")
    assert found.limits_memory


def test_a_whole_start_with_apptainer() -> None:
    found = launch(APPTAINER, box(gpus=1, read_only=["/awe/predata/x"]), "/awe/images/1.sif", SETUP, 8)
    assert found.words == [
        "/bin/apptainer", "exec", "--containall", "--cleanenv", "--no-home", "--pwd", "/workdir",
        "--bind", "/awe/j/j_0_0.1:/workdir", "--bind", "/awe/predata/x:/awe/predata/x:ro", "--nv",
        "/awe/images/1.sif", "tool", "-x", "/workdir/in",
    ]  # fmt: skip
    assert found.env == {
        **SETUP,
        "APPTAINER_NO_EVAL": "1",
        "APPTAINERENV_AWE_WORK_ID": "j_0_0",
        "APPTAINERENV_AWE_ATTEMPT": "1",
        "AWE_WORK_ID": "j_0_0",
        "AWE_ATTEMPT": "1",
    }
    assert found.cleanup == []
    assert not found.limits_memory, "the executor sees to it"


def test_singularity_reads_variables_under_its_own_name() -> None:
    _, env = start(Engine("singularity", "/bin/singularity"), env={"A": "1"})
    assert (env["SINGULARITYENV_A"], env["SINGULARITY_NO_EVAL"]) == ("1", "1")


def test_only_what_a_task_asks_for_is_added() -> None:
    full = {
        "reads_stdin": True,
        "memory_bytes": 2**30,
        "gpus": 2,
        "cores": 4,
        "read_only": ["/awe/predata/x"],
    }
    words, _ = start(DOCKER, **full)
    for part in (
        "--interactive",
        "--cpus 4",
        f"--memory {2**30}",
        "--gpus all",
        "--mount type=bind,source=/awe/predata/x,target=/awe/predata/x,readonly",
    ):
        assert part in words
    assert "--device nvidia.com/gpu=all" in start(PODMAN, **full)[0]


def test_limits_are_such_as_the_engine_takes() -> None:
    assert "--cpus" not in start(DOCKER, cpus=4, cores=4)[0], "more than there are would be refused"
    assert f"--memory {6 * 2**20}" in start(DOCKER, memory_bytes=1)[0]
    bare = replace(PODMAN, limits_cpu=False, limits_memory=False)
    words = start(bare, memory_bytes=2**30)[0]
    assert "--cpus" not in words
    assert "--memory" not in words
    assert not launch(bare, box(), "i", SETUP, 8).limits_memory


def test_outputs_belong_to_the_daemons_user_whatever_the_engine_maps() -> None:
    assert "--user 0:0" in start(replace(PODMAN, root_is_us=True))[0]
    assert "--user 1000:100 --userns host" in start(replace(DOCKER, maps_users=True))[0]


def test_a_comma_in_a_path_does_not_divide_a_mount() -> None:
    found = launch(DOCKER, box(directory='/a,b/"c"'), "i", SETUP, 8).words
    assert 'type=bind,"source=/a,b/""c""",target=/workdir' in found
    with pytest.raises(InvalidDocument, match="cannot mount"):
        start(APPTAINER, directory="/a:b")


@pytest.mark.parametrize("engine", [DOCKER, PODMAN, APPTAINER], ids=lambda e: e.name)
def test_values_of_variables_are_in_no_words(engine: Engine) -> None:
    words, env = start(engine, env={"TOKEN": "secret", "LINES": "a\nb"}, private={"TOKEN"})
    assert "secret" not in words
    assert "secret" in env.values()
    assert "a\nb" in env.values()


def test_what_the_engine_itself_obeys_stays_its_own() -> None:
    names = ("PATH", "HOME", "LD_PRELOAD", "DOCKER_HOST", "CONTAINERS_CONF", "TMPDIR", "_CONTAINERS_X")
    for name in names:
        words, env = start(PODMAN, env={name: "/odd"})
        assert f"--env {name}=/odd" in words
        assert env.get(name) == SETUP.get(name)
        with pytest.raises(InvalidDocument, match="cannot be kept secret"):
            start(PODMAN, env={name: "/odd"}, private={name})


def test_an_engine_sees_how_it_is_set_up_and_none_of_our_secrets() -> None:
    environ = {
        "PATH": "/bin", "AWE_CLIENT_TOKEN": "t", "DOCKER_HOST": "h", "XDG_RUNTIME_DIR": "r",
        "APPTAINERENV_X": "leaks", "https_proxy": "p", "LD_PRELOAD": "x",
    }  # fmt: skip
    assert set(engine_environment(environ)) == {"PATH", "DOCKER_HOST", "XDG_RUNTIME_DIR"}
    assert "https_proxy" in engine_environment(environ, proxies=True)


@pytest.mark.parametrize("image", ["", "-v/:/host", "--privileged", "a b", "a,b", "x" * 600, "/etc"])
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(InvalidDocument, match="Dockerimage"):
        check_image(image)
    with pytest.raises(InvalidDocument):
        launch(DOCKER, box(image=image), image, SETUP, 8)


@pytest.mark.parametrize("image", ["ubuntu", "quay.io/a/b:1--h5_0", "host:5000/x@sha256:ab", "docker://a/b"])
def test_names_of_images_are_taken(image: str) -> None:
    check_image(image)


def test_removal_does_not_wait_for_a_grace() -> None:
    assert PODMAN.removal("a", "b")[1:] == ["rm", "--force", "--volumes", "--time", "0", "a", "b"]
    assert replace(PODMAN, version="3.4.4").removal("a")[1:] == ["rm", "--force", "--volumes", "a"]
    assert DOCKER.removal("a")[1:] == ["rm", "--force", "--volumes", "a"]


# --- ends ----------------------------------------------------------------------------------------

RAN = State(is_running=False, has_run=True, exit_code=0, oom=False)


def ended(code: int | None, stderr: bytes = b"", **changes: Any) -> CommandEnd:
    return replace(GOOD, exit_code=code, stderr_tail=stderr, **changes)


def kind_of(engine: Engine, end: CommandEnd, state: State | None, *, oom_seen: bool = False) -> Any:
    """Kind and exit code of the failure, None for success."""
    what = judge(engine, end, state, oom_seen=oom_seen)
    failure = judge_refusal(what) if isinstance(what, SpawnRefusal) else judge_end(what, 1)
    return failure and (failure.kind, failure.exit_code)


def test_success_and_the_commands_own_exit_codes() -> None:
    assert kind_of(DOCKER, ended(0), RAN) is None
    for code in (1, 42, 125, 126, 127, 137):
        assert kind_of(DOCKER, ended(code), replace(RAN, exit_code=code)) == (FailureKind.COMMAND, code)


def test_trouble_of_the_engine_is_the_machines() -> None:
    trouble = ended(125, b"docker: Error: No such image: x.\nRun 'docker run --help' for more information\n")
    for state in (None, replace(RAN, has_run=False), replace(RAN, is_running=True)):
        assert kind_of(DOCKER, trouble, state) == (FailureKind.NODE, None)
    what = judge(DOCKER, trouble, None, oom_seen=False)
    assert isinstance(what, SpawnRefusal)
    assert judge_refusal(what).message == "cannot start a container here: docker: Error: No such image: x."


def test_a_program_that_is_not_in_the_image_is_the_commands() -> None:
    for code in (126, 127):
        assert kind_of(PODMAN, ended(code), replace(RAN, has_run=False)) == (FailureKind.COMMAND, code)
    hinted = ended(127, b"exec: \"foo\": not found\n\nRun 'docker run --help' for more information\n")
    what = judge(DOCKER, hinted, replace(RAN, has_run=False), oom_seen=False)
    assert isinstance(what, CommandEnd)
    assert what.stderr_tail == b'exec: "foo": not found'


def test_out_of_memory_by_the_engines_word_or_the_kernels_count() -> None:
    told = replace(RAN, exit_code=1, oom=True)
    assert kind_of(DOCKER, ended(1), told) == (FailureKind.OOM, None)
    assert kind_of(DOCKER, ended(0), replace(told, exit_code=0)) is None, "it went on without what was killed"
    killed = replace(RAN, exit_code=137)
    assert kind_of(PODMAN, ended(137), killed, oom_seen=True) == (FailureKind.OOM, None)
    assert kind_of(PODMAN, ended(1), replace(RAN, exit_code=1), oom_seen=True) == (FailureKind.COMMAND, 1)


def test_a_time_limit_is_a_timeout_whatever_the_engine_says() -> None:
    for engine in (DOCKER, APPTAINER):
        end = ended(125, b"FATAL: x", reason="timeout")
        assert kind_of(engine, end, None, oom_seen=True) == (FailureKind.TIMEOUT, 125)


def test_apptainers_trouble_is_told_by_its_words() -> None:
    assert kind_of(APPTAINER, ended(255, b"FATAL:   while extracting: no space"), None) == (
        FailureKind.NODE,
        None,
    )
    missing = b'FATAL:   "foo": executable file not found in $PATH'
    assert kind_of(APPTAINER, ended(255, missing), None) == (FailureKind.COMMAND, 127)
    assert kind_of(APPTAINER, ended(255, b"FATAL: stat foo: permission denied"), None) == (
        FailureKind.COMMAND,
        126,
    )
    assert kind_of(APPTAINER, ended(255, b"my own"), None) == (FailureKind.COMMAND, 255)


def test_what_was_measured_is_the_engines_and_does_not_count() -> None:
    what = judge(DOCKER, ended(0, peak_bytes=5, user_s=1.0, strays=2), RAN, oom_seen=False)
    assert isinstance(what, CommandEnd)
    perf = report_of(("w", 1), "t", end=what)["perf"]
    assert set(perf) == {"wall_s", "stdout_bytes", "stderr_bytes"}


def test_states_are_read_as_both_engines_write_them() -> None:
    never = {"Running": False, "ExitCode": 128, "StartedAt": "0001-01-01T00:00:00Z", "OOMKilled": False}
    assert state_of(never) == State(False, False, 128, False)
    assert state_of({**never, "StartedAt": "2026-01-01T00:00:00Z", "OOMKilled": True}) == State(
        False, True, 128, True
    )


# --- which engine --------------------------------------------------------------------------------

DOCKER_INFO = {
    "ServerVersion": "28.2.2",
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "SecurityOptions": ["name=seccomp"],
}
PODMAN_INFO = {
    "host": {"cgroupControllers": ["memory"], "security": {"rootless": True}},
    "version": {"Version": "5.1.0"},
}


def test_answers_of_engines_are_understood() -> None:
    assert read_answer("docker", "/d", json.dumps(DOCKER_INFO)) == Engine("docker", "/d", "28.2.2")
    rootless = {**DOCKER_INFO, "SecurityOptions": ["name=rootless"], "MemoryLimit": False}
    assert read_answer("docker", "/d", json.dumps(rootless)) == Engine(
        "docker", "/d", "28.2.2", root_is_us=True, limits_memory=False
    )
    podman = Engine("podman", "/p", "5.1.0", root_is_us=True, limits_cpu=False)
    assert read_answer("podman", "/p", json.dumps(PODMAN_INFO)) == podman
    found = read_answer("apptainer", "/a", "apptainer version 1.3.4")
    assert found == Engine("apptainer", "/a", "1.3.4")


def test_a_command_line_without_a_daemon_is_no_engine() -> None:
    answer = {"ServerVersion": "", "ServerErrors": ["Cannot connect to the Docker daemon"]}
    assert read_answer("docker", "/d", json.dumps(answer)) == (
        "docker has no daemon: Cannot connect to the Docker daemon"
    )
    assert "cannot make out" in str(read_answer("podman", "/p", "[]"))


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)


def test_the_first_engine_that_works_is_taken(tmp_path: Path) -> None:
    environ = {"PATH": f"{tmp_path}:/bin"}
    program(tmp_path, "docker", "echo no daemon >&2; exit 1")
    program(tmp_path, "podman", f"echo '{json.dumps(PODMAN_INFO)}'")
    program(tmp_path, "singularity", "echo singularity version 3.8.0")
    for choice, name in {"auto": "podman", "podman": "podman", "apptainer": "singularity"}.items():
        found = detect(choice, {**environ, "PATH": str(tmp_path)})
        assert found is not None
        assert found.name == name
    assert detect("none", environ) is None
    with pytest.raises(EngineMissing, match="--containers docker: docker does not work: no daemon"):
        detect("docker", environ)


def test_a_machine_without_engines_offers_none(tmp_path: Path) -> None:
    assert detect("auto", {"PATH": str(tmp_path)}) is None
    with pytest.raises(EngineMissing, match="there is no program podman"):
        detect("podman", {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("Loaded image: a/b:1\n", "a/b:1"),
        ("Loaded image: localhost/x:2\n", "localhost/x:2"),
        ("Loaded image ID: sha256:abc\n", "sha256:abc"),
        ("", ""),
    ],
)
def test_what_an_archive_held_is_read_from_what_the_engine_says(output: str, name: str) -> None:
    assert _loaded_name(output) == name
