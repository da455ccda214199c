"""The arithmetic of the benchmarks, and that each command can be asked what it does. Nothing is timed."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import FIGURES, OTHERS
from tests.bench.harness.document import document
from tests.bench.harness.figure import Figure, Goal, Row, Table, medians, percentile, ratio, spread
from tests.bench.harness.http import Refused, data_of, read_head, request_bytes
from tests.bench.harness.machine import file_system
from tests.bench.harness.mongo_counter import command_name

ROWS: list[Row] = [
    {"case": "a", "rate": 3.0, "fs": "ext4"},
    {"case": "a", "rate": 1.0, "fs": "ext4"},
    {"case": "b", "rate": 7},
    {"case": "a", "rate": 2.0, "fs": "ext4"},
]


def test_medians_are_taken_of_the_numbers_of_each_case() -> None:
    assert medians(ROWS) == {"a": {"rate": 2.0}, "b": {"rate": 7}}
    assert spread(ROWS) == {"a": {"rate": [2.0, 1.0, 3.0]}, "b": {"rate": [7.0, 7.0, 7.0]}}


@pytest.mark.parametrize(("percent", "value"), [(50, 100), (99, 198), (100, 200), (0.1, 1)])
def test_a_percentile_is_the_nearest_rank(percent: float, value: int) -> None:
    assert percentile(list(range(200, 0, -1)), percent) == value


def test_a_ratio_to_what_was_not_measured_is_nothing() -> None:
    assert ratio(6.0, 3.0) == 2.0
    assert ratio(6.0, 0.0) == 0.0


def test_a_goal_is_met_at_its_limit_and_not_beyond_it() -> None:
    assert Goal("fast", "a", "rate", 2.0, at_least=True).judge(medians(ROWS)).met is True
    assert Goal("fast", "a", "rate", 2.1, at_least=True).judge(medians(ROWS)).met is False
    assert Goal("small", "a", "rate", 2.0).judge(medians(ROWS)).met is True
    assert Goal("small", "a", "rate", 1.9).judge(medians(ROWS)).met is False
    assert Goal("small", "c", "rate", 1.9).judge(medians(ROWS)).met is None


def lines_of(capsys: pytest.CaptureFixture[str], runs: int) -> list[dict[str, Any]]:
    figure = Figure("example", 3, "An example", [Goal("rate ≥ 2", "a", "rate", 2.0, at_least=True)])
    figure.main(
        lambda _, number: [{"case": "a", "rate": number + 1.0, "keeps": "all", "version": "7"}],
        argv=["--runs", str(runs)],
    )
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_figure_prints_its_runs_then_medians_then_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, 3)
    assert [line.get("rate") for line in lines] == [1.0, 2.0, 3.0, None, None]
    assert lines[3]["median_min_max"] == {"rate": [2.0, 1.0, 3.0]}
    assert lines[4] == {"figure": 3, "bench": "example", "goal": "rate ≥ 2", "measured": 2.0, "met": True}


def test_the_table_has_a_row_for_each_goal_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    for line in ({"figure": 4, "goal": "later", "measured": None, "met": None}, *lines_of(capsys, 1)):
        table.add(line)
    assert list(table.lines())[2:] == ["| 3 | rate ≥ 2 | 1 | no |", "| 4 | later | not measured | – |"]


def test_the_document_shows_goals_medians_and_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    lines, table = lines_of(capsys, 3), Table()
    for line in lines:
        table.add(line)
    text = document({"cores": "2 × some"}, lines, table, 3)
    for part in (
        "* cores: 2 × some",
        "| 3 | rate ≥ 2 | 2 | yes |",
        "| a | all | 7 |",
        "| a | rate | 2 | 1 – 3 |",
    ):
        assert part in text


@pytest.mark.parametrize("name", [*FIGURES, *OTHERS])
def test_each_command_says_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"tests.bench.{name}")
    assert module.FIGURE.name == name
    with pytest.raises(SystemExit) as end:
        module.FIGURE.main(module.measure, module.arguments, ["--help"])
    assert end.value.code == 0
    assert "--runs" in capsys.readouterr().out


def test_every_module_is_a_command_and_the_figures_are_numbered_in_order() -> None:
    modules = {path.stem for path in Path(__file__).parents[2].joinpath("bench").glob("[a-z]*.py")}
    assert modules == {*FIGURES, *OTHERS}
    figures = [importlib.import_module(f"tests.bench.{name}").FIGURE for name in FIGURES]
    assert [figure.number for figure in figures] == list(range(1, 16))
    assert all(figure.goals for figure in figures)


def test_requests_and_replies_are_those_of_http() -> None:
    assert request_bytes("POST", "/job", b"{}").startswith(b"POST /job HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert b"Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}" in request_bytes(
        "POST", "/", b"{}"
    )
    assert read_head(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n") == (200, 12)
    assert data_of(200, b'{"data": {"a": 1}}') == {"a": 1}
    with pytest.raises(Refused):
        data_of(404, b"{}")
    with pytest.raises(Refused):
        read_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n")


def test_the_name_of_a_command_is_found_behind_its_documents() -> None:
    body = b"\x12update\x00" + bytes(8) + b"\x00"
    body = struct.pack("<i", len(body) + 4) + body
    documents = b"\x01" + struct.pack("<i", 4 + 8 + 5) + b"updates\0" + b"\x05\0\0\0\0"
    head = struct.pack("<iiii", 0, 1, 0, 2013) + bytes(4)
    assert command_name(head + b"\x00" + body) == "update"
    assert command_name(head + documents + b"\x00" + body) == "update"


def test_the_file_system_of_a_folder_is_known() -> None:
    assert file_system(Path("/proc")) == "proc"
