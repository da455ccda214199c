"""Files of Debian packages for tests, got the way the examples get theirs."""

import os
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: How a script of the examples ends where tools or reads are missing, and nothing is wrong with itself.
LACKING = 77

_FROM_PACKAGE = '. "$1"; inputs=$2 home=$3; from_package "$4" "$5"'


def shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder of this run of the suite, the same for all its workers."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def need(ended: subprocess.CompletedProcess[str]) -> None:
    """Skip the test if a script lacks what it needs here, and say what; fail if it ended badly otherwise.

    With AWE_TEST_EXAMPLES=required everything has to be here.
    """
    said = ended.stderr.strip()
    if ended.returncode == LACKING and os.environ.get("AWE_TEST_EXAMPLES") != "required":
        pytest.skip(said)
    assert ended.returncode == 0, f"ended with {ended.returncode}: {said}"


def file_of_package(package: str, path: str, inputs: Path, scratch: Path) -> Path:
    """A file of a Debian package, which is downloaded into `inputs` unless it lies there or is installed.

    The test is skipped where it cannot be had, see `need`.
    """
    run = EXAMPLES / "mapping" / "run.sh"  # any will do: it says where `common.sh` is
    words = [str(word) for word in (run, EXAMPLES / "common.sh", inputs, scratch, package, path)]
    ended = subprocess.run(["sh", "-euc", _FROM_PACKAGE, *words], capture_output=True, text=True, check=False)
    need(ended)
    return Path(ended.stdout.strip())
