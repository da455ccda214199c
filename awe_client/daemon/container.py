"""How a command is started in a container: its facts in, the engine's words and environment out. Pure.

The executor starts the engine's command line (`docker run …`) like any other command, in the attempt's
directory, so its streams, time limit and kill are those of every command. What is special:

* The directory is seen inside as /workdir, with predata read-only at the very paths its links name.
* Variables are named in the words and valued in the environment of the engine's process (`-e NAME`): what is
  in its words everybody on the machine can read. The few that the engine itself obeys (PATH, HOME, …) have to
  stand in its words; a private one of these is refused.
* The image's entry point is not used, so the words of a task are the command, whatever the image.
* Whoever the command is inside, its files belong to the daemon's user: by user id, or, where the engine runs
  without root and maps its root to us, as root.

docker and podman keep a container with a life of its own, which has to be removed; with apptainer and
singularity the command is an ordinary descendant of theirs.
"""

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from shared_models.errors import InvalidDocument

#: The attempt's directory as the command sees it; as in AWE.
WORKDIR = "/workdir"
LABEL = "awe.work"  #: its value is the daemon's work directory
NAMES = ("docker", "podman", "apptainer", "singularity")  #: engines, the first one that works is taken

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@\-]{0,511}")
#: Variables that an engine's command line itself obeys.
_OBEYED = re.compile(
    r"PATH|HOME|TMPDIR|NOTIFY_SOCKET|REGISTRY_AUTH_FILE|DBUS_SESSION_BUS_ADDRESS"
    r"|(LD|XDG|DOCKER|BUILDKIT|PODMAN|CONTAINER|CONTAINERS|STORAGE|LISTEN|APPTAINER|SINGULARITY)_.*|_.*"
)
#: Of the daemon's environment, what says how an engine is set up. Not: what would get into containers.
_SETUP = re.compile(
    r"PATH|HOME|USER|LANG|TMPDIR|REGISTRY_AUTH_FILE|DBUS_SESSION_BUS_ADDRESS"
    r"|(XDG|DOCKER|CONTAINER|CONTAINERS|STORAGE|APPTAINER|SINGULARITY)_.*"
)
_PROXIES = re.compile(r"(HTTP|HTTPS|NO|ALL)_PROXY", re.IGNORECASE)
_KILLED = 128 + signal.SIGKILL  #: exit code of a container whose command was killed
_LEAST_MEMORY = 6 * 1024 * 1024  #: docker takes no lower limit


@dataclass(slots=True, frozen=True)
class Engine:
    """A container engine that works here."""

    name: str  #: one of NAMES
    program: str  #: path of its command line
    version: str = ""
    root_is_us: bool = False  #: it runs without root: root inside is our user outside
    maps_users: bool = False  #: it maps user ids unless told not to
    limits_cpu: bool = True
    limits_memory: bool = True

    @property
    def keeps_containers(self) -> bool:
        """Whether a container outlives the command line that started it."""
        return self.name in ("docker", "podman")

    def removal(self, *names: str) -> list[str]:
        """Words that end and remove containers, at once."""
        at_once = ["--time", "0"] if self.name == "podman" and _major(self.version) >= 4 else []
        return [self.program, "rm", "--force", "--volumes", *at_once, *names]

    def look(self, name: str) -> list[str]:
        """Words that print the state of a container as JSON."""
        return [self.program, "inspect", "--type", "container", "--format", "{{json .State}}", name]

    def listing(self, work_root: str) -> list[str]:
        """Words that print the names of a daemon's containers."""
        labelled = f"label={LABEL}={work_root}"
        return [self.program, "ps", "--all", "--filter", labelled, "--format", "{{.Names}}"]


@dataclass(slots=True, frozen=True)
class Boxed:
    """A command and the container it is to run in."""

    image: str
    name: str  #: of the container
    labels: Mapping[str, str]
    directory: str  #: the attempt's, outside
    read_only: Sequence[str]  #: files, seen inside under the same path
    words: Sequence[str]
    env: Mapping[str, str]
    private: Collection[str]  #: names of variables that nobody may read
    reads_stdin: bool
    cores: int
    memory_bytes: int
    gpus: int
    user: str  #: "uid:gid" of the daemon


@dataclass(slots=True, frozen=True)
class Start:
    """How to start a command in a container, and how to remove that if nobody else does."""

    words: list[str]
    env: dict[str, str]  #: of the engine's process
    cleanup: list[str]  #: empty if there is nothing to remove
    limits_memory: bool  #: the engine sees to it


@dataclass(slots=True, frozen=True)
class State:
    """What docker or podman says of a container after its command line has ended."""

    is_running: bool
    has_run: bool
    exit_code: int
    oom: bool


def check_image(image: str) -> None:
    """Refuse what is no name of an image; as a word it could pass for an option. Raises InvalidDocument."""
    if not _IMAGE.fullmatch(image):
        raise InvalidDocument(f"cmd.Dockerimage: '{image[:200]}' is not the name of an image")


def engine_environment(environ: Mapping[str, str], *, proxies: bool = False) -> dict[str, str]:
    """What an engine's command line gets of the daemon's environment; proxies only to fetch images."""
    return {
        name: value
        for name, value in environ.items()
        if _SETUP.fullmatch(name) or (proxies and _PROXIES.fullmatch(name))
    }


def launch(engine: Engine, box: Boxed, image: str, setup: Mapping[str, str], cpus: int) -> Start:
    """Words and environment of the engine's process. Raises InvalidDocument.

    `image` is what the engine knows the image by, `setup` its own environment; this machine has `cpus`.
    """
    check_image(box.image)
    env = dict(setup)
    if engine.keeps_containers:
        words = [*_isolation(engine, box), *_limits(engine, box, cpus), *_variables(engine, box, env)]
        words = [engine.program, "run", *words, "--entrypoint", "", image, *box.words]
        return Start(words, env, engine.removal(box.name), engine.limits_memory)
    env |= _prefixed_variables(engine, box)
    words = [engine.program, "exec", *_apptainer_options(engine, box), image, *box.words]
    return Start(words, env, [], False)


def _isolation(engine: Engine, box: Boxed) -> list[str]:
    words = ["--name", box.name, "--pull", "never", "--log-driver", "none"]
    for name, value in box.labels.items():
        words += ["--label", f"{name}={value}"]
    # SELinux would keep a container from files that are not labelled as its own.
    words += ["--security-opt", "label=disable", "--security-opt", "no-new-privileges"]
    words += ["--user", "0:0" if engine.root_is_us else box.user]
    if engine.maps_users and not engine.root_is_us:
        words += ["--userns", "host"]
    words += ["--mount", _mount(box.directory, WORKDIR), "--workdir", WORKDIR]
    for path in box.read_only:
        words += ["--mount", _mount(path, path) + ",readonly"]
    if box.reads_stdin:
        words += ["--interactive"]
    return words


def _limits(engine: Engine, box: Boxed, cpus: int) -> list[str]:
    words = []
    if engine.limits_cpu and box.cores < cpus:
        words += ["--cpus", str(box.cores)]
    if engine.limits_memory and box.memory_bytes > 0:
        words += ["--memory", str(max(box.memory_bytes, _LEAST_MEMORY))]
    if box.gpus > 0:
        words += ["--gpus", "all"] if engine.name == "docker" else ["--device", "nvidia.com/gpu=all"]
    return words


def _variables(engine: Engine, box: Boxed, env: dict[str, str]) -> list[str]:
    """Words that give the command its variables; the values go into `env`, the engine's."""
    words = []
    for name, value in box.env.items():
        if not _OBEYED.fullmatch(name):
            words += ["--env", name]
            env[name] = value
        elif name in box.private:
            raise InvalidDocument(
                f"cmd.environ.private.{name}: cannot be kept secret in a container, because {engine.name} "
                "obeys it itself; use another name, or make it public"
            )
        else:
            words += ["--env", f"{name}={value}"]
    return words


def _apptainer_options(engine: Engine, box: Boxed) -> list[str]:
    for path in (box.directory, *box.read_only):
        if ":" in path or "," in path:
            raise InvalidDocument(f"{engine.name} cannot mount {path}: a ':' or ',' in a path divides it")
    words = ["--containall", "--cleanenv", "--no-home", "--pwd", WORKDIR]
    words += ["--bind", f"{box.directory}:{WORKDIR}"]
    for path in box.read_only:
        words += ["--bind", f"{path}:{path}:ro"]
    if box.gpus > 0:
        words += ["--nv"]
    return words


def _prefixed_variables(engine: Engine, box: Boxed) -> dict[str, str]:
    prefix = "APPTAINER" if engine.name == "apptainer" else "SINGULARITY"
    env = {f"{prefix}_NO_EVAL": "1"}
    env |= {f"{prefix}ENV_{name}": value for name, value in box.env.items()}
    # By these the executor knows its own; inside they are set by the others.
    env |= {name: box.env[name] for name in ("AWE_WORK_ID", "AWE_ATTEMPT") if name in box.env}
    return env


def _mount(source: str, target: str) -> str:
    return ",".join(("type=bind", _field(f"source={source}"), _field(f"target={target}")))


def _field(text: str) -> str:
    """As a field of a line of CSV, as which engines read a mount."""
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0


# --- what came of it -----------------------------------------------------------------------------


def state_of(document: Mapping[str, Any]) -> State:
    """Read the state that `look` prints."""
    return State(
        is_running=bool(document.get("Running")),
        has_run=not str(document.get("StartedAt") or "0001-").startswith("0001-"),
        exit_code=int(document.get("ExitCode") or 0),
        oom=bool(document.get("OOMKilled")),
    )


def judge(
    engine: Engine, end: CommandEnd, state: State | None, *, oom_seen: bool
) -> CommandEnd | SpawnRefusal:
    """Tell the command's end from the engine's trouble.

    `oom_seen`: the kernel killed somebody for memory meanwhile; not every engine says that it was this one.
    What was measured is the engine's command line's, so it does not count; the tails are the command's.
    """
    if not engine.keeps_containers:
        return _judge_exec(end)
    end = replace(end, user_s=0.0, system_s=0.0, peak_bytes=0, strays=0)
    if end.reason:
        return end
    if end.exit_code and ((state is not None and state.oom) or (oom_seen and end.exit_code == _KILLED)):
        return replace(end, exit_code=None, signal=signal.SIGKILL, oom=True)
    own = state is not None and state.has_run and not state.is_running and state.exit_code == end.exit_code
    if end.exit_code == 125 and not own:
        return _trouble(end)
    # Before the command runs, what is said is the engine's: of that, what is wrong comes last.
    return end if own else replace(end, stderr_tail=b"\n".join(_said(end)))


def _judge_exec(end: CommandEnd) -> CommandEnd | SpawnRefusal:
    last = _last_line(end)
    if end.reason or end.exit_code != 255 or b"FATAL:" not in last:
        return end
    if b"executable file not found" in last or b"no such file" in last:
        return replace(end, exit_code=127)
    if b"permission denied" in last:
        return replace(end, exit_code=126)
    return _trouble(end)


def _trouble(end: CommandEnd) -> SpawnRefusal:
    return SpawnRefusal("container", 0, _last_line(end))


def _last_line(end: CommandEnd) -> bytes:
    said = _said(end)
    return said[-1].strip()[-500:] if said else b""


def _said(end: CommandEnd) -> list[bytes]:
    """Lines of standard error, without docker's hint where to find help."""
    return [line for line in end.stderr_tail.splitlines() if line.strip() and b" --help" not in line]
