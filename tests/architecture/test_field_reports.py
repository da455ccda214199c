"""docs/field-reports.md: has all cases; what it names exists; each test with a case's number is listed.

A new case is a new row of its table: `| X-01 | title | tests | differences |`. Tests are `file::name`, the
file below tests/; `*` in a name stands for any characters, so that a row need not name each of many alike.
A case about what does not exist yet has `waits` in place of tests, and says for what.
"""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "field-reports.md"

_ROW = re.compile(r"^\| ([A-Z]-\d\d) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py::[\w*]+)`")
_NUMBERS = re.compile(r"test((?:_[A-Z]_\d\d)+)(?:_|$)")

#: The numbers of all cases, by what they are about: stores, files, leases, commands, policies, jobs,
#: schedules, and the interface.
WANTED = {
    "D": "01 02 04 05 07 08",
    "F": "01 02 04 05 07 08 10 11 13",
    "L": "01 02 04 05 07 08 10 11",
    "P": "01 02 04 05 07 08",
    "Q": "01 03 04",
    "S": "01 02 04 05 07 08",
    "T": "02 03",
    "X": "01 02 04 05 07 08 10 11",
}

#: Cases about what does not exist yet.
WAITING = {"T-02", "T-03"}

#: Each case with the columns of its row.
_COLUMNS = {
    case: [column.strip() for column in row.split("|")]
    for case, row in _ROW.findall(PAGE.read_text(encoding="utf-8"))
}

#: Each case with the tests that its row names.
ROWS = {case: _TEST.findall(tests) for case, (_, tests, _) in _COLUMNS.items()}


def all_tests() -> set[str]:
    """Every test function as `file::name`."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        file = path.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(f"{file}::{node.name}")
    return found


TESTS = all_tests()


def cases_of(test: str) -> list[str]:
    """The cases whose numbers a test bears: F-08 and F-10 of `test_F_08_F_10_…`."""
    numbers = _NUMBERS.match(test.partition("::")[2])
    return [case.replace("_", "-") for case in re.findall(r"[A-Z]_\d\d", numbers[1])] if numbers else []


def test_the_page_has_each_case_once_and_in_order() -> None:
    cases = [case for case, _ in _ROW.findall(PAGE.read_text(encoding="utf-8"))]
    assert cases == [f"{kind}-{number}" for kind, numbers in WANTED.items() for number in numbers.split()]
    assert len(cases) == 48


@pytest.mark.parametrize("case", ROWS)
def test_what_a_row_names_exists(case: str) -> None:
    title, tests, differs = _COLUMNS[case]
    assert "](https://github.com/" in title, "it does not say who reported it"
    if case in WAITING:
        assert tests == "waits"
        assert differs, "it does not say for what"
        return
    assert ROWS[case], "it names no test"
    assert not _TEST.sub("", tests).strip(), "what is no test belongs into the last column"
    assert [name for name in ROWS[case] if not any(fnmatchcase(test, name) for test in TESTS)] == []


@pytest.mark.parametrize("case", ROWS)
def test_every_test_with_the_number_of_a_case_is_in_its_row(case: str) -> None:
    mine = sorted(test for test in TESTS if case in cases_of(test))
    assert [test for test in mine if not any(fnmatchcase(test, name) for name in ROWS[case])] == []


def test_architecture_leads_to_the_page() -> None:
    assert "(docs/field-reports.md)" in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
