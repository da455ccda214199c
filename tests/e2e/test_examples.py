"""The pipelines in examples/ give the counts they promise, split = whole, and leave nothing behind."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.env import BIN, Process
from tests.support.eventually import eventually_sync
from tests.unit.client.processes import marked

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("mgrast-short", "mapping")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what is downloaded for one test stays for the next."""
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where an example makes its temporary folder; in the command line of whatever it starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def environment(place: Path, path: str | None = None) -> dict[str, str]:
    """What an example is run with: the programs under test come first."""
    return {**os.environ, "TMPDIR": str(place), "PATH": path or f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def run(name: str, place: Path, *options: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    return subprocess.run(
        [str(EXAMPLES / name / "run.sh"), *options], env=environment(place, path),
        capture_output=True, text=True, timeout=360, check=False,
    )  # fmt: skip


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest, place: Path, inputs: Path) -> str:
    """The name of an example that can be run here."""
    name = str(request.param)
    checked = run(name, place, "--check", "--inputs", str(inputs))
    if checked.returncode:
        pytest.skip(checked.stderr.strip())
    return name


def test_an_example_gives_its_counts_and_the_unsplit_answer(
    example: str, place: Path, inputs: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    ended = run(example, place, "--inputs", str(inputs), "--output", str(results))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    rows = [row.split() for row in ended.stdout.splitlines() if row.endswith(" ok")]
    assert all(row[-3] == row[-2] for row in rows)
    assert len(rows) == {"mgrast-short": 6, "mapping": 5}[example]
    assert ended.stdout.count("split = whole: ") == {"mgrast-short": 3, "mapping": 2}[example]
    assert any(results.rglob("*"))
    assert marked(str(place)) == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("example", ["mapping"], indirect=True)
def test_a_signal_ends_an_example_and_everything_it_started(example: str, place: Path, inputs: Path) -> None:
    process = Process(
        [str(EXAMPLES / example / "run.sh"), "--inputs", str(inputs)],
        place.parent / "example",
        environment(place),
    )
    try:
        eventually_sync(lambda: "in-progress" in process.output(), within_s=60.0, show=process.output)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60.0) == 128 + signal.SIGTERM
        assert process.output().endswith("\nserver and clients are stopped\n")
        assert marked(str(place)) == []
        assert list(place.iterdir()) == []
    finally:
        process.end()


@pytest.mark.parametrize(
    ("name", "packages"),
    [("mgrast-short", "bowtie2 cd-hit ncbi-blast+ prodigal seqtk vsearch"), ("mapping", "bowtie2 samtools")],
)
def test_missing_tools_are_named_with_what_installs_them(
    name: str, packages: str, place: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for tool in ("sh", "dirname", "basename", "sort", "tr"):
        (few / tool).symlink_to(shutil.which(tool) or tool)
    ended = run(name, place, path=str(few))
    assert ended.returncode == 1
    assert f"missing tools: apt-get install --no-install-recommends {packages} " in ended.stderr
    assert list(place.iterdir()) == []
