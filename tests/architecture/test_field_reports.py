"""docs/field-reports.md: what it names exists, and every test that bears the number of a case is listed.

A new case is a new row of its table: `| X-01 | title | tests | differences |`. Tests are `file::name`, the
file below tests/; `*` in a name stands for any characters, so that a row need not name each of many alike.
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

#: The cases that concern what there is, by kind.
WANTED = {
    "D": (1, 2, 4, 5, 7, 8),
    "F": (1, 2, 4, 5, 7, 8, 10, 11, 13),
    "L": (1, 2, 4, 5, 7, 8, 10, 11),
}

#: Each case with the tests that its row names.
ROWS = {case: _TEST.findall(row) for case, row in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


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
    assert cases == sorted(set(cases))
    assert {f"{kind}-{number:02}" for kind, numbers in WANTED.items() for number in numbers} <= set(cases)


@pytest.mark.parametrize("case", ROWS)
def test_what_a_row_names_exists(case: str) -> None:
    assert ROWS[case], "it names no test"
    assert [name for name in ROWS[case] if not any(fnmatchcase(test, name) for test in TESTS)] == []


@pytest.mark.parametrize("case", ROWS)
def test_every_test_with_the_number_of_a_case_is_in_its_row(case: str) -> None:
    mine = sorted(test for test in TESTS if case in cases_of(test))
    assert [test for test in mine if not any(fnmatchcase(test, name) for name in ROWS[case])] == []


def test_architecture_leads_to_the_page() -> None:
    assert "(docs/field-reports.md)" in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
