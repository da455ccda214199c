"""Lines of a test that fails are closed before the next test runs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = """
from tests.support.fake_client import FakeClient

kept = []

def test_that_fails():
    kept.append(FakeClient("http://127.0.0.1:9").http)
    assert kept[0].is_closed, "not yet"

def test_after_it():
    assert kept[0].is_closed
"""


def test_what_a_test_that_fails_left_open_is_closed_when_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import lines\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_them.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert "not yet" in run.stdout
