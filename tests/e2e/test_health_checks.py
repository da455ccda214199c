"""The health checks of docker-compose.yml, run as they stand there, against real processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text(encoding="utf-8"))


def check(service: str, in_compose: str, here: str) -> int:
    """The exit code of a service's check, with the address or folder of this machine in it."""
    kind, python, *words = COMPOSE["services"][service]["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    assert in_compose in words[-1]
    command = [sys.executable, *words[:-1], words[-1].replace(in_compose, here)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def test_the_server_is_healthy_while_it_answers() -> None:
    with AweEnv.temporary() as site:
        site.server.start()
        assert check("server", "http://127.0.0.1:8001", site.server.url) == 0
        site.server.kill()
        assert check("server", "http://127.0.0.1:8001", site.server.url) != 0


@pytest.mark.parametrize("service", ["client-1", "client-2"])
def test_a_client_is_healthy_while_it_lives_also_without_a_server(service: str) -> None:
    with AweEnv.temporary() as site:
        [work_folder] = [volume.partition(":")[2] for volume in COMPOSE["services"][service]["volumes"]]
        work = site.home / "client-1"
        alive = work / "alive"

        def is_healthy() -> bool:
            return check(service, work_folder, str(work)) == 0

        def is_touched_again() -> bool:
            return time.time() - alive.stat().st_mtime < 100

        assert not is_healthy()
        site.server.start()
        client = site.start_client(slots=1)
        eventually_sync(alive.exists)
        assert is_healthy()
        site.server.kill()
        client.pause()
        os.utime(alive, (time.time() - 121,) * 2)
        assert not is_healthy()
        client.resume()
        eventually_sync(is_touched_again, within_s=60.0)
        assert is_healthy()
