"""What `awe-server` says before it serves; `check` and `export` look at what is there and make nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from awe_server.cli import cli


@pytest.mark.parametrize("command", ["check", "export"])
def test_a_directory_without_a_database_is_refused_and_stays_as_it_is(command: str, tmp_path: Path) -> None:
    ended = CliRunner().invoke(cli, [command, "--data", str(tmp_path)])
    assert ended.exit_code == 1
    assert "there is no database in" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["500X", "-1", "1.5G", "500 G", ""])
def test_a_quota_that_is_no_size_is_told_what_one_is(text: str, tmp_path: Path) -> None:
    ended = CliRunner().invoke(cli, ["serve", "--data", str(tmp_path), f"--quota={text}"])
    told = "awe-server: setting quota_bytes: expected bytes, or a size such as 500G (K, M, G or T)\n"
    assert (ended.exit_code, ended.stderr) == (2, told)
