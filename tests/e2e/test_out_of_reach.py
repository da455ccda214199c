"""An input that one client may not read or does not see is fetched by another; if none can, that is said."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.s3 import S3Server, s3_server

__all__ = ["s3_server"]

Kind = Literal["credentials", "mount"]
SAYS = {
    "credentials": "the store refuses access with the credentials of this machine",
    "mount": "no such file or directory",
}
#: Runs a command where something else is mounted at a directory.
ELSEWHERE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none "$0" && exec "$@"',
)


@dataclass
class Site:
    """A server, and clients of which some can read what others cannot."""

    env: AweEnv
    shared: Path
    s3: S3Server

    def put(self, kind: Kind) -> str:
        if kind == "credentials":
            return self.s3.put(self.s3.bucket(), "in.txt", b"hello\n")
        (self.shared / "in.txt").write_bytes(b"hello\n")
        return f"file://{self.shared}/in.txt"

    def start(self, kind: Kind, *, able: bool) -> Process:
        anonymous = {"AWS_SKIP_SIGNATURE": "true"} if kind == "credentials" and not able else {}
        self.env.client_env = {**self.s3.env(), **anonymous}
        under = (*ELSEWHERE, str(self.shared)) if kind == "mount" and not able else ()
        return self.env.start_client("--file-root", str(self.shared), under=under)

    def submit(self, url: str, **keys: Any) -> str:
        """More tasks than failures that suspend a client, each of which reads the file."""
        task = {
            "cmd": {"name": "cat", "args": "@in.txt"},
            "inputs": [{"filename": "in.txt", "url": url}],
            **keys,
        }
        return self.env.submit({"tasks": [{"taskid": str(i), **task} for i in range(6)]})

    def why(self, job_id: str) -> str:
        return str(self.env.data("GET", f"/job/{job_id}?why"))

    def suspended(self) -> list[str]:
        return [client["name"] for client in self.env.data("GET", "/client") if client["suspended"]]


@pytest.fixture
def site(s3_server: S3Server, tmp_path: Path) -> Iterator[Site]:
    shared = tmp_path / "shared"
    shared.mkdir()
    flags = ["--file-root", str(shared)]
    with AweEnv.temporary(flags=flags, server_env=s3_server.env()) as env:
        env.server.start()
        yield Site(env, shared, s3_server)


@pytest.fixture(params=["credentials", "mount"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "mount":
        tried = subprocess.run(
            [*ELSEWHERE, str(tmp_path), "true"], capture_output=True, text=True, check=False
        )
        if tried.returncode:
            pytest.skip(f"cannot mount anything: {tried.stderr.strip()}")
    found: Kind = request.param
    return found


def test_another_client_does_it(site: Site, kind: Kind) -> None:
    site.start(kind, able=False)
    job_id = site.submit(site.put(kind))
    eventually_sync(lambda: SAYS[kind] in site.why(job_id), show=lambda: site.why(job_id))
    site.start(kind, able=True)
    site.env.wait_for(job_id)
    assert site.suspended() == []


def test_if_none_can_the_job_says_so_and_ends(site: Site) -> None:
    for _ in range(2):
        site.start("credentials", able=False)
    job_id = site.submit(site.put("credentials"), retry_delay_s=0.01)
    job = site.env.wait_for(job_id, "suspend", 120.0)
    assert "10 attempts that clients could not carry out, the last: cannot fetch " in job["notes"]
    assert SAYS["credentials"] in job["notes"]
    assert SAYS["credentials"] in site.why(job_id)
    assert site.suspended() == []
