"""docker-compose.yml and the Dockerfile are right, as far as that shows without a Docker engine.

Their health checks are run in tests/e2e/test_health_checks.py.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return document


def test_compose_itself_accepts_the_file() -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        pytest.skip("docker-compose is not installed (Debian package docker-compose)")
    done = subprocess.run(
        [tool, "-f", str(ROOT / "docker-compose.yml"), "config", "--quiet"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_site_has_a_replica_set_with_its_init_a_server_and_two_clients(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"mongo", "mongo-init", "server", "client-1", "client-2"}
    assert "--replSet" in services["mongo"]["command"]
    assert "rs.initiate" in " ".join(services["mongo-init"]["command"])
    replica_set = services["mongo"]["command"][services["mongo"]["command"].index("--replSet") + 1]
    assert f"_id: '{replica_set}'" in " ".join(services["mongo-init"]["command"])
    assert any(f"replicaSet={replica_set}" in word for word in services["server"]["command"])


def test_every_lasting_service_has_a_health_check_a_volume_and_restarts(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "mongo-init":
            continue
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name
        assert service["volumes"], name
        for volume in service["volumes"]:
            assert volume.split(":")[0] in compose["volumes"], f"{name}: {volume} is not declared"


def test_what_a_service_waits_for_exists_and_can_come_true(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, f"{name} waits for {needed}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[needed], f"{needed} can never be healthy"


def test_only_loopback_is_published(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("service", ["server", "client-1", "client-2"])
def test_every_command_is_one_that_our_programs_understand(compose: dict[str, Any], service: str) -> None:
    program, verb, *arguments = compose["services"][service]["command"]
    here = Path(sys.executable).with_name(program)
    help_text = subprocess.run([str(here), verb, "--help"], capture_output=True, text=True, check=True).stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", help_text)
    for word in arguments:
        if word.startswith("--"):
            assert re.search(rf"{re.escape(word)}\b", plain), f"{program} {verb} has no {word}"


def test_the_image_is_non_root_and_copies_only_what_exists() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users, "the image runs as root"
    assert users[-1] not in {"root", "0"}
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
        if line.startswith("!")
    }
    for line in lines:
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            for source in words[1:-1]:
                assert (ROOT / source).exists(), source
                assert source in allowed, f".dockerignore hides {source}"
