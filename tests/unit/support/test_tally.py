"""What the tests did is counted, over all processes of a run, and told at its end."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import tally
from tests.support.env import Process

ROOT = Path(__file__).parents[3]

HOOKS = "from tests.conftest import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown\n"
TESTS = """
import pytest
from tests.support import tally

@pytest.mark.parametrize("number", range(6))
def test_kill(number):
    tally.count("kill server, random moment")
    tally.count("fault drop reply", 2)
    tally.count("sites checked")
"""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What this test counts, which is not of the run."""
    mine: Counter[str] = Counter()
    monkeypatch.setattr(tally, "_counts", mine)
    return mine


def figures(text: str) -> dict[str, str]:
    """Each line `number kind` of the summary."""
    pairs = (
        line.split(maxsplit=1) for line in text.splitlines() if line[:7].strip().replace(",", "").isdigit()
    )
    return {kind: number for number, kind in pairs}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_ends_with_one_block_of_what_all_its_workers_counted(tmp_path: Path, workers: str) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("kills, faults and promises") == 1
    assert figures(run.stdout) == {
        "kill server, random moment": "6",
        "kills in all": "6",
        "fault drop reply": "12",
        "faults in all": "12",
        "sites checked": "6",
        "lost": "0",
        "doubled": "0",
    }


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_lost_something_fails_and_no_repetition_of_its_failures_mends_that(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    test = tmp_path / "test_it.py"
    test.write_text("from tests.support import tally\ndef test_it():\n    tally.count('lost')\n")
    again = ("--last-failed", "--last-failed-no-failures", "none")
    for arguments in ((), again, again):
        run = run_in(tmp_path, "-n", workers, *arguments)
        assert run.returncode == 1, run.stdout + run.stderr
        assert "1 promises broken" in run.stdout
    test.write_text("def test_it():\n    pass\n")
    assert run_in(tmp_path, "-n", workers).returncode == 0


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_whole_suite_fails_and_says_so_if_it_kills_too_seldom(tmp_path: Path, workers: str) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (tmp_path / "test_them.py").write_text(TESTS)
    says = "only 6 kills: the whole suite is to make 200"
    run = run_in(tmp_path, "-n", workers)
    assert (run.returncode, says in run.stdout) == (1, True), run.stdout + run.stderr


def test_what_is_not_the_whole_suite_may_kill_as_seldom_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "test_others.py").touch()
    for chosen in (
        ("-k", "test_kill"),
        ("test_them.py",),
        ("--deselect", "test_them.py::test_kill[0]"),
        ("--ignore", "test_others.py"),
        ("--collect-only",),
    ):
        run = run_in(tmp_path, "-n", "0", *chosen)
        assert (run.returncode, "only 6 kills" in run.stdout) == (0, False), run.stdout + run.stderr


def test_the_whole_suite_passes_if_it_kills_often_enough(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (tmp_path / "test_them.py").write_text(TESTS.replace('random moment"', 'random moment", 50'))
    run = run_in(tmp_path, "-n", "0")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_lost_something_and_what_repeats_its_failures_say_which_test_that_was(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    test = tmp_path / "test_it.py"
    test.write_text(
        "from tests.support.invariants import counted\n"
        "def test_it():\n"
        "    assert not counted(['(5) job x is gone', '(5) job y is gone', 'server 1 ended with (1)'])\n"
    )
    where = "lost in test_it.py::test_it: (5) job x is gone"
    run = run_in(tmp_path, "-n", workers)
    assert {kind: number for kind, number in figures(run.stdout).items() if "in test" in kind} == {where: "2"}
    test.write_text("def test_it():\n    pass\n")
    again = run_in(tmp_path, "-n", workers, "--last-failed", "--last-failed-no-failures", "none")
    assert again.returncode == 1
    assert figures(again.stdout)[f"{where}, in the run before"] == "2"


def test_what_nobody_counted_is_not_told() -> None:
    assert tally.summary({}) == []
    assert figures("\n".join(tally.summary({"stall server": 2, "lost": 0}))) == {"stall server": "2"}


def test_every_kind_has_a_line_and_kills_and_faults_a_sum() -> None:
    seen = {
        "kill client": 2,
        "kill server": 1200,
        "fault 503": 5,
        "lost": 1,
        "sites checked": 3,
        "doubled": 2,
    }
    assert figures("\n".join(tally.summary(seen))) == {
        "fault 503": "5",
        "kill client": "2",
        "kill server": "1,200",
        "kills in all": "1,202",
        "faults in all": "5",
        "sites checked": "3",
        "lost": "1",
        "doubled": "2",
    }


def test_totals_are_a_copy(counts: Counter[str]) -> None:
    tally.count("kill server")
    tally.add({"kill server": 2, "kill client": 1})
    seen = tally.totals()
    seen["kill server"] = 0
    assert tally.totals() == {"kill server": 3, "kill client": 1} == counts


def test_processes_count_how_they_were_killed_once(tmp_path: Path, counts: Counter[str]) -> None:
    def sleeper(name: str, fault_point: str = "") -> Process:
        return Process(["sleep", "60"], tmp_path / name, {}, name, fault_point)

    client = sleeper("client")
    client.pause()
    client.kill()
    client.kill()
    sleeper("server").kill("kill server, random moment")
    at_a_point = sleeper("server", "after-commit")
    os.kill(at_a_point.pid, signal.SIGKILL)
    assert at_a_point.wait() == at_a_point.returncode == -signal.SIGKILL
    sleeper("client").end()
    assert counts == {
        "stall client": 1,
        "kill client": 1,
        "kill server, random moment": 1,
        "kill server, after-commit": 1,
    }
