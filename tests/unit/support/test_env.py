"""Servers and clients of tests get the environment that they were given."""

import os
from pathlib import Path

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync


def environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_server_and_clients_have_environments_of_their_own(tmp_path: Path) -> None:
    with AweEnv(tmp_path, server_env={"WHO": "server"}, client_env={"WHO": "client"}) as env:
        env.server.start()
        client = env.start_client()
        eventually_sync(lambda: b"WHO=client" in environment(client.pid))
        for _ in range(2):
            assert b"WHO=server" in environment(env.server.running.pid)
            env.server.restart()
    assert "WHO" not in os.environ
