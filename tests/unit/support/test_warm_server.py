"""A server that was forked is one like any other: it serves, dies, stops, hangs and says how it ended."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.warm_server import WarmServers


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    with WarmServers() as warm, AweEnv(tmp_path, flags=["--lease-s", "11"]) as env:
        env.server.spawn = warm.spawn
        yield env


def test_it_serves_dies_and_serves_again(env: AweEnv) -> None:
    env.server.start(AWE_LOG_FORMAT="json")
    assert '{"' in env.server.running.stderr.read_text()
    job_id = env.submit({"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]})
    env.server.kill()
    assert env.server.running.returncode == -signal.SIGKILL
    with pytest.raises(httpx.TransportError):
        env.http.get("/health")
    began = time.monotonic()
    env.server.start()
    assert time.monotonic() - began < 20
    assert env.job(job_id)["state"] == "queued"
    env.server.stop()
    assert '{"' not in env.server.running.stderr.read_text()


def test_it_hangs_and_goes_on(env: AweEnv) -> None:
    env.server.start()
    env.server.running.pause()
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{env.server.url}/health", timeout=0.3, trust_env=False)
    env.server.running.resume()
    assert env.http.get("/health").status_code == 200
    env.server.running.pause()
    env.server.running.end()
    assert env.server.running.returncode == -signal.SIGKILL


def test_it_says_why_it_did_not_start(env: AweEnv) -> None:
    env.unchecked = "no server ever wrote anything"
    env.server.flags = ["--lease-s", "-1"]
    with pytest.raises(AssertionError, match="ended with 2"):
        env.server.start()
