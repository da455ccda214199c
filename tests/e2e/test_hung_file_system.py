"""A shared file system that hangs: the server serves everybody else, and ends when it is told to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

#: Loaded by the server's interpreter at its start: what is asked about these names is never answered.
HANGS = """
import os, threading

def hanging(plain, name):
    def call(path, *args, **kwargs):
        if name in str(path):
            with open({log!r}, "a") as log:
                log.write(name + "\\n")
            threading.Event().wait()
        return plain(path, *args, **kwargs)
    return call

os.path.realpath = hanging(os.path.realpath, "hung-at-submit")
os.open = hanging(os.open, "hung-at-look")
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[AweEnv]:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(HANGS.format(log=str(tmp_path / "asked")))
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "hung-at-look").write_text("1\n")
    server_env = {"PYTHONPATH": str(tmp_path / "python")}
    with AweEnv(tmp_path, flags=["--file-root", str(shared)], server_env=server_env) as env:
        env.server.start()
        yield env


def asked(env: AweEnv, name: str) -> int:
    try:
        return (env.home / "asked").read_text().split().count(name)
    except FileNotFoundError:
        return 0


def hung(env: AweEnv) -> int:
    """How many threads hang: at looks, and at submissions."""
    return asked(env, "hung-at-look") + asked(env, "hung-at-submit")


def job(env: AweEnv, name: str) -> dict[str, Any]:
    inputs = [{"filename": "a", "url": f"file://{env.home}/shared/{name}"}]
    return {"tasks": [{"taskid": "0", "cmd": {"name": "true"}, "inputs": inputs}]}


def test_a_server_with_hung_threads_serves_others_and_ends_at_sigterm(site: AweEnv) -> None:
    looked_at = site.submit(job(site, "hung-at-look"))
    eventually_sync(lambda: asked(site, "hung-at-look") > 0)
    url, document = f"{site.server.url}/job", job(site, "hung-at-submit")
    with ThreadPoolExecutor(50) as callers:
        posts = [
            callers.submit(httpx.post, url, json=document, timeout=60, trust_env=False) for _ in range(50)
        ]
        eventually_sync(lambda: hung(site) >= 8)
        node = site.data("POST", "/node", content=b"1234", timeout=30)["id"]
        assert site.http.get(f"/node/{node}?download", timeout=30).content == b"1234"
        assert site.http.get("/health", timeout=30).status_code == 200
        assert site.job(looked_at)["state"] in ("init", "queued")
        site.server.stop()
        assert {post.result().status_code for post in posts} == {503}
    assert hung(site) == 8, "a root has so many threads, whoever asks"
