"""The project's own promises about itself: top level, lock files, Makefile, change log."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower().replace("_", "-") for line in requirements}


def locked_names(path: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_dependency_is_locked_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = requirement_names(project["dependencies"])
    dev = requirement_names(project["optional-dependencies"]["dev"])
    assert runtime <= locked_names(ROOT / "requirements-runtime.lock")
    assert runtime | dev <= locked_names(ROOT / "requirements.lock")
    for name in ("requirements.lock", "requirements-runtime.lock"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert "file://" not in text


def test_every_dependency_has_its_line_of_justification() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").lower()
    for name in requirement_names(project["dependencies"] + project["optional-dependencies"]["dev"]):
        assert f"`{name}`" in architecture, f"ARCHITECTURE.md does not say why {name} is there"


def test_the_top_level_is_the_agreed_one() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    assert {
        "awe_server",
        "awe_client",
        "shared_models",
        "tests",
        "docker-compose.yml",
        "pyproject.toml",
    } <= top
    extra = top - {
        "awe_server", "awe_client", "shared_models", "tests", "docker-compose.yml", "pyproject.toml",
        "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile",
        "Dockerfile",
        ".dockerignore", ".gitignore", ".pre-commit-config.yaml", ".ci", "docs", "examples",
        "requirements.lock", "requirements-runtime.lock",
    }  # fmt: skip
    assert extra == set()
