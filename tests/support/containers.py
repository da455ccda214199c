"""Container engines that work on a plain test machine, each with images and containers of its own.

They are set up by files and variables, as a site would, so the client needs to know nothing of it. Both need
root here; podman with runc, cgroupfs and plain copies (vfs), docker with a daemon of the test's own.
"""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.env import Process
from tests.support.eventually import NeverHappened, eventually_sync

IMAGE = "localhost/awe-test:1"
_APPLETS = (
    "sh",
    "cat",
    "echo",
    "env",
    "id",
    "sleep",
    "sed",
    "wc",
    "tr",
    "true",
    "touch",
    "ls",
    "head",
    "tail",
)
#: No image of a few MB brings a bash; a script of plain lines does not know the difference.
_BASH = '#!/bin/sh\nexec /bin/sh "$@"\n'
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=1000:1000"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
_STORAGE_CONF = """
[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


class TestEngine:
    """One store of images and containers. `variables` lead to it, with `broken` there is none."""

    __test__ = False

    def __init__(
        self, name: str, folder: Path, variables: Mapping[str, str], broken: Mapping[str, str]
    ) -> None:
        self.name = name
        self.variables = variables
        self.broken = broken
        #: In no registry, and found out without asking any.
        self.absent = {"podman": "nowhere:1", "docker": "localhost/nowhere:1"}[name]
        self._folder = folder

    def call(self, *words: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        with (stdin or Path(os.devnull)).open("rb") as source:
            return subprocess.run(
                [self.name, *words],
                stdin=source,
                env={**os.environ, **self.variables},
                cwd=self._folder,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

    def containers(self) -> list[str]:
        """Names of all containers there are, running or not."""
        return self.call("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def make_image(self, name: str = IMAGE) -> None:
        """Import an image of busybox."""
        root = self._folder / "root"
        (root / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/busybox", root / "bin" / "busybox")
        for applet in _APPLETS:
            (root / "bin" / applet).unlink(missing_ok=True)
            (root / "bin" / applet).symlink_to("busybox")
        (root / "bin" / "bash").write_text(_BASH)
        (root / "bin" / "bash").chmod(0o755)
        archive = self._folder / "root.tar"
        with tarfile.open(archive, "w") as file:
            file.add(root, arcname=".")
        done = self.call("import", "-", name, stdin=archive)
        assert done.returncode == 0, done.stderr


@contextmanager
def engine_or_skip(name: str, folder: Path) -> Iterator[TestEngine]:
    """An engine with a test image; a skip that says why if there is none."""
    programs = {"podman": ("podman", "runc", "busybox"), "docker": ("docker", "dockerd", "runc", "busybox")}
    for program in programs[name]:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine (see .ci/run for the packages)")
    if os.geteuid() != 0:
        pytest.skip(f"not root: the test set-up of {name} needs root")
    with {"podman": _podman, "docker": _docker}[name](folder) as engine:
        engine.make_image()
        tried = engine.call("run", "--rm", IMAGE, "true")
        if tried.returncode != 0:
            pytest.skip(f"{name} cannot run a container here: {tried.stderr.strip().splitlines()[-1]}")
        yield engine


@contextmanager
def _podman(folder: Path) -> Iterator[TestEngine]:
    containers, storage = folder / "containers.conf", folder / "storage.conf"
    containers.write_text(_CONTAINERS_CONF)
    storage.write_text(_STORAGE_CONF.format(folder=folder))
    variables = {"CONTAINERS_CONF": str(containers), "CONTAINERS_STORAGE_CONF": str(storage)}
    engine = TestEngine("podman", folder, variables, {"CONTAINERS_STORAGE_CONF": "/nowhere"})
    yield engine
    engine.call("rm", "--force", "--all", "--time", "0")


@contextmanager
def _docker(folder: Path) -> Iterator[TestEngine]:
    address = f"unix://{folder}/docker.sock"
    words = ["dockerd", "--host", address, "--pidfile", f"{folder}/pid", "--data-root", f"{folder}/data"]
    words += [
        "--exec-root",
        f"{folder}/exec",
        "--storage-driver",
        "vfs",
        "--bridge",
        "none",
        "--iptables=false",
    ]
    daemon = Process(words, folder / "dockerd", {})
    try:
        engine = TestEngine("docker", folder, {"DOCKER_HOST": address}, {"DOCKER_HOST": "unix:///nowhere"})
        try:
            eventually_sync(lambda: engine.call("info").returncode == 0, within_s=30, every_s=0.2)
        except NeverHappened:
            pytest.skip(f"dockerd does not start here: {daemon.output().strip().splitlines()[-1]}")
        yield engine
        if names := engine.containers():
            engine.call("rm", "--force", *names)
        daemon.stop()
    finally:
        daemon.end()
