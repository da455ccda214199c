"""The pipelines in examples/ give the counts they promise, split = whole, and leave nothing behind.

They are the end-to-end oracles E1 (mgrast-short) and E2 (mapping), measured with the tools of Debian 12.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.env import BIN, Process
from tests.support.eventually import eventually_sync
from tests.support.packages import EXAMPLES, LACKING, file_of_package, need, shared
from tests.unit.client.processes import marked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what is downloaded for one test stays for the next."""
    return shared(tmp_path_factory, "packages")


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


def results_of(name: str, place: Path, inputs: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an example, which checks itself: all it found is as expected, and nothing is left of it."""
    need(run(name, place, "--check", "--inputs", str(inputs)))
    results = place.parent / "results"
    ended = run(name, place, "--inputs", str(inputs), "--output", str(results), *options)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    rows = [row.split() for row in ended.stdout.splitlines() if row.endswith(" ok")]
    assert all(row[-3] == row[-2] for row in rows)
    assert any(results.rglob("*"))
    assert marked(str(place)) == []
    assert list(place.iterdir()) == []
    return ended


def test_E1_a_short_metagenome_pipeline_gives_its_counts_and_the_unsplit_answer(
    place: Path, inputs: Path
) -> None:
    said = results_of("mgrast-short", place, inputs).stdout
    assert [said.count(mark) for mark in (" ok\n", "sha256 as expected: ", "split = whole: ")] == [6, 1, 6]


def test_E2_mapping_gives_its_counts_and_the_unsplit_answer(place: Path, inputs: Path) -> None:
    said = results_of("mapping", place, inputs).stdout
    assert [said.count(mark) for mark in (" ok\n", "sha256 as expected: ", "split = whole: ")] == [7, 1, 2]


def test_a_signal_ends_an_example_and_everything_it_started(place: Path, inputs: Path) -> None:
    need(run("mapping", place, "--check", "--inputs", str(inputs)))
    process = Process(
        [str(EXAMPLES / "mapping" / "run.sh"), "--inputs", str(inputs)],
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
    assert ended.returncode == LACKING
    assert f"missing tools: apt-get install --no-install-recommends {packages} " in ended.stderr
    assert list(place.iterdir()) == []


def test_only_what_is_missing_skips_a_test_and_nothing_where_all_has_to_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judged(code: int) -> str:
        try:
            need(subprocess.CompletedProcess([], code, "", "missing tools: bowtie2\n"))
        except (pytest.skip.Exception, AssertionError) as exc:
            return f"{type(exc).__name__}: {str(exc).splitlines()[0]}"
        return "run"

    monkeypatch.delenv("AWE_TEST_EXAMPLES", raising=False)
    assert (judged(0), judged(LACKING)) == ("run", "Skipped: missing tools: bowtie2")
    for code in (1, 2, 100, 127, 128 + signal.SIGTERM):
        assert judged(code) == f"AssertionError: ended with {code}: missing tools: bowtie2"
    monkeypatch.setenv("AWE_TEST_EXAMPLES", "required")
    assert (judged(0), judged(LACKING)) == ("run", "AssertionError: ended with 77: missing tools: bowtie2")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH, with an apt-get and a dpkg-deb that know one small package."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    script(folder, "apt-get", "touch some-reads_1.deb")
    script(folder, "dpkg-deb", *UNPACKS)
    return folder


#: What `dpkg-deb -x FILE FOLDER` makes of the package, with a pause in the middle.
UNPACKS = ('mkdir -p "$3/reads"', 'echo first > "$3/reads/1"', ":", 'echo second > "$3/reads/2"')


def script(folder: Path, name: str, *lines: str) -> None:
    """Make a command of some lines."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", "set -e", *lines]) + "\n")
    path.chmod(0o755)


def test_a_package_that_cannot_be_downloaded_is_a_reason_to_skip_and_named(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWE_TEST_EXAMPLES", raising=False)
    script(commands, "apt-get", "echo no network >&2", "exit 100")
    with pytest.raises(pytest.skip.Exception, match=r"(?s)no network.*the package some-reads cannot be down"):
        file_of_package("some-reads", "/reads/2", tmp_path, tmp_path)


#: Commands that are killed in the middle, with who called them. Between two folders `mv` may have to copy.
KILLED = {
    "unpacking": ("dpkg-deb", [*UNPACKS[:2], "kill -9 $PPID", *UNPACKS[3:]]),
    "moving": (
        "mv",
        [
            "while [ $# -gt 2 ]; do shift; done; PATH=${PATH#*:}",
            'if [ "$(dirname "$1")" = "$(dirname "$2")" ]; then kill -9 $PPID; exec mv -T "$1" "$2"; fi',
            'mkdir -p "$2/reads"; cp "$1/reads/1" "$2/reads/1"; kill -9 $PPID',
        ],
    ),
}


@pytest.mark.parametrize("when", KILLED)
def test_a_package_of_which_a_part_is_there_is_not_taken_for_whole(
    commands: Path, tmp_path: Path, when: str
) -> None:
    inputs, scratch = tmp_path / "inputs", tmp_path / "scratch"
    inputs.mkdir()
    scratch.mkdir()
    name, lines = KILLED[when]
    script(commands, name, *lines)
    with pytest.raises(AssertionError, match="ended with -9"):
        file_of_package("some-reads", "/reads/2", inputs, scratch)
    (commands / name).unlink()
    script(commands, "dpkg-deb", *UNPACKS)
    assert file_of_package("some-reads", "/reads/2", inputs, scratch).read_text() == "second\n"
