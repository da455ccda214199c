"""`awe demo`, the first thing that a newcomer runs: it works, again and again, and leaves nothing."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.env import BIN, Process
from tests.support.eventually import eventually_sync
from tests.unit.client.processes import marked

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the demo makes its temporary folder; in the command line of whatever it starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def test_the_demo_gives_the_unsplit_answer_each_time_and_leaves_nothing(place: Path) -> None:
    for _ in range(2):
        ended = subprocess.run(
            [str(BIN / "awe"), "demo"], cwd=ROOT, env={**os.environ, "TMPDIR": str(place)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert "task gc ran as 8 workunits; summary.tsv:" in ended.stderr
        assert "the same bytes as the unsplit answer: trimmed.fastq, gc.tsv, summary.tsv" in ended.stderr
        assert ended.stdout.splitlines()[0].split() == ["30%", "4"]
        assert marked(str(place)) == []
        assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGTERM, "client: demo-1"), (signal.SIGHUP, "$ awe submit"), (signal.SIGINT, "server: ")],
)
def test_a_signal_ends_the_demo_and_everything_it_started(
    place: Path, number: signal.Signals, moment: str
) -> None:
    demo = Process(
        [str(BIN / "awe"), "demo", "--examples", str(ROOT / "examples")],
        place.parent / "demo",
        {"TMPDIR": str(place)},
    )
    try:
        eventually_sync(lambda: moment in demo.output(), within_s=60.0, show=demo.output)
        os.kill(demo.pid, number)
        assert demo.wait(60.0) == 128 + number
        assert demo.output().endswith("\nserver and clients are stopped\n")
        assert marked(str(place)) == []
        assert list(place.iterdir()) == []
    finally:
        demo.end()
