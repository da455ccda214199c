"""`awe-server export`: document by document what is stored, but for secrets, and these are marked."""

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from awe_server.cli import cli
from tests.support.invariants import read_sqlite
from tests.support.used_store import SECRETS, use

#: What may be missing from a document.
SECRET = {"jobs": "_datatoken", "tasks": "_private_env", "workunits": "_token"}


def export(*flags: str) -> tuple[str, list[dict[str, Any]]]:
    """What it writes, and that line by line."""
    ended = CliRunner().invoke(cli, ["export", *flags])
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout, [json.loads(line) for line in ended.stdout.splitlines()]


def check_export(stored: dict[str, list[dict[str, Any]]], text: str, lines: list[dict[str, Any]]) -> None:
    """Every document that is stored is there once, and of the secrets nothing."""
    assert [line["collection"] for line in lines] == [name for name, held in stored.items() for _ in held]
    hidden = list(SECRETS)
    for line in lines:
        name, shown = line["collection"], line["document"]
        (document,) = (document for document in stored[name] if document["id"] == shown["id"])
        key = SECRET.get(name, "")
        if document.get(key):
            hidden.append(document[key] if isinstance(document[key], str) else SECRETS[0])
            assert line == {"collection": name, "document": shown, "left_out": [key]}
            assert shown == {k: v for k, v in document.items() if k != key}
        else:
            assert line == {"collection": name, "document": document}
    assert len(hidden) > 10, "tokens of attempts, and those of the submitter"
    assert not [secret for secret in hidden if secret in text]


def test_an_export_is_the_store_without_its_secrets(tmp_path: Path) -> None:
    asyncio.run(use(tmp_path))
    text, lines = export("--data", str(tmp_path))
    stored = read_sqlite(tmp_path)
    assert all(secret in json.dumps(stored) for secret in SECRETS)
    check_export(stored, text, lines)


def test_the_help_says_what_is_left_out() -> None:
    told = " ".join(CliRunner().invoke(cli, ["export", "--help"]).stdout.split())
    assert "Secrets are left out: lease tokens, private environment, data tokens." in told
