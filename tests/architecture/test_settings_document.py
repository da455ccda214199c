"""docs/settings.md names every setting of server and client, with its default."""

import inspect
import re
from pathlib import Path

import typer

from awe_client.cli.options import DEFAULT_SERVER
from awe_client.daemon.main import build_parser
from awe_server import cli
from awe_server.settings import Settings

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
#: Shown instead of a default that means "find out" or "no limit".
IN_WORDS = {"all", "never", "host name", "those in sight", "off", DEFAULT_SERVER}


def table(section: str) -> list[list[str]]:
    """The rows of a section's table, cells without their quotes."""
    body = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_setting_of_the_server_is_there_with_its_sources_and_default() -> None:
    rows = {key: (flag, variable, default) for flag, variable, key, default, _, _ in table("Server")}
    flags = _server_flags()
    assert list(flags.keys() - Settings.model_fields.keys()) == []
    assert rows.keys() == Settings.model_fields.keys()
    for key, field in Settings.model_fields.items():
        default = field.default
        text = str(default).lower() if isinstance(default, bool) else re.sub(r"\.0$|^\(\)$", "", str(default))
        assert rows[key] == (flags.get(key, ""), f"AWE_{key.upper()}", text), key


def _server_flags() -> dict[str, str]:
    """The flags of `awe-server serve` by the setting that they set."""
    command = typer.main.get_command(cli.cli).commands["serve"]  # type: ignore[attr-defined]
    passed = re.search(r"_settings\((.*?)\)", inspect.getsource(cli.serve), re.DOTALL)
    assert passed is not None
    setting = {name: key for key, name in re.findall(r"(\w+)=(\w+)", passed[1])}
    return {
        setting[parameter.name]: parameter.opts[0]
        for parameter in command.params
        if parameter.name not in ("config", "help")
    }


def test_every_flag_of_the_client_is_there_with_its_default() -> None:
    rows = {flag: default for flag, _, default, _, _ in table("Client")}
    subparsers = build_parser()._subparsers
    assert subparsers is not None
    run = subparsers._group_actions[0].choices["run"]  # type: ignore[index]
    actions = {action.option_strings[0]: action for action in run._actions if action.dest != "help"}
    assert rows.keys() == actions.keys()
    for flag, action in actions.items():
        if rows[flag] not in IN_WORDS:
            assert rows[flag] == str(action.default or ""), flag
        else:
            assert action.default in (None, 0, "0", "", False), flag


def test_the_variables_of_the_client_are_those_it_reads() -> None:
    main = Path(inspect.getfile(build_parser)).read_text(encoding="utf-8")
    assert {variable for _, variable, *_ in table("Client")} - {""} == set(
        re.findall(r'environ\.\w+\("(\w+)"', main)
    )
    assert DEFAULT_SERVER in TEXT
