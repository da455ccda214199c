"""A podman that works on a plain test machine, with its images and containers in a folder of their own.

It is set up by files and variables, as a site would, so the client needs to know nothing of it.
"""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

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


class Podman:
    """One store of images and containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.variables = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=1000:1000"]\nnetns = "none"\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
        )

    def call(self, *words: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        with (stdin or Path(os.devnull)).open("rb") as source:
            return subprocess.run(
                ["podman", *words],
                stdin=source,
                env=self.environ(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

    def environ(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables}

    def containers(self) -> list[str]:
        """Names of all containers there are, running or not."""
        return self.call("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def make_image(self, name: str = IMAGE) -> None:
        """Import an image of busybox."""
        root = self._folder / "root"
        (root / "bin").mkdir(parents=True, exist_ok=True)
        (root / "tmp").mkdir(exist_ok=True)
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


def podman_or_skip(folder: Path) -> Podman:
    """A podman with a test image, or a skip that says why there is none."""
    for program in ("podman", "runc", "busybox"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine (apt-get install podman runc busybox-static)")
    if os.geteuid() != 0:
        pytest.skip("not root: the test set-up of podman (vfs, runc, cgroupfs) needs root")
    podman = Podman(folder)
    podman.make_image()
    tried = podman.call("run", "--rm", IMAGE, "true")
    if tried.returncode != 0:
        pytest.skip(f"podman cannot run a container here: {tried.stderr.strip().splitlines()[-1]}")
    return podman
