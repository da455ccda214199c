"""Small rooms: capacity, units, listing, directories, logs."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import json
import logging
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from awe_client.daemon import logs
from awe_client.daemon.attempt import Needs
from awe_client.daemon.disk import free_disk
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.resources import Capacity, Totals, detect_cores, detect_gpus, detect_memory
from awe_client.daemon.units import parse_bytes, parse_seconds
from awe_client.daemon.workdir import (
    MAX_KEPT,
    MAX_LISTED,
    NotInside,
    WorkDirs,
    find,
    listing,
    make_directory,
    place,
    remove_tree,
)
from awe_client.sdk.backoff import jittered_delay_s
from tests.unit.client.test_archive import counted, tree

pytestmark = pytest.mark.anyio


def test_this_machine_has_something_to_offer(tmp_path: Path) -> None:
    assert detect_cores() >= 1
    assert detect_memory() > 2**20
    assert detect_gpus() >= 0
    assert free_disk(tmp_path) > 0
    assert free_disk(tmp_path / "missing") == 0


def test_slots_memory_and_gpus_bound_what_runs() -> None:
    capacity = Capacity(Totals(cores=4, memory_bytes=100, gpus=1))
    assert capacity.take(Needs(2, 60, 1))
    assert not capacity.take(Needs(1, 60, 0))
    assert not capacity.take(Needs(1, 0, 1))
    assert not capacity.take(Needs(3, 0, 0))
    assert capacity.take(Needs(2, 40, 0))
    capacity.give_back(Needs(2, 60, 1))
    assert capacity.take(Needs(1, 60, 1))
    assert not capacity.can_ever_run(Needs(5))
    assert not capacity.can_ever_run(Needs(1, 101))
    assert not capacity.can_ever_run(Needs(1, 0, 2))


def test_a_refused_start_halves_the_slots_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("awe_client.daemon.resources.time.monotonic", lambda: now[0])
    capacity = Capacity(Totals(cores=16, memory_bytes=0, gpus=0))
    for _ in range(8):
        assert capacity.take(Needs())
    capacity.start_refused()
    assert (capacity.slots, capacity.is_lowered) == (4, True)
    now[0] += 31
    assert capacity.slots == 8
    now[0] += 31
    assert capacity.slots == 16
    assert not capacity.is_lowered


def test_what_is_asked_for_grows_with_the_rate_and_shrinks_with_what_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("awe_client.daemon.resources.time.monotonic", lambda: now[0])
    capacity = Capacity(Totals(cores=2, memory_bytes=0, gpus=0))
    assert capacity.want(held_cores=0, held=0, unfinished_pushes=0) == 3
    assert capacity.want(held_cores=3, held=3, unfinished_pushes=0) == 0
    for _ in range(1000):
        now[0] += 0.001
        capacity.take(Needs())
        capacity.give_back(Needs())
    assert 200 < capacity.want(held_cores=0, held=0, unfinished_pushes=0) < 500
    assert capacity.want(held_cores=0, held=4096, unfinished_pushes=0) == 0
    assert capacity.want(held_cores=0, held=0, unfinished_pushes=1000) == 0
    now[0] += 60
    assert capacity.want(held_cores=0, held=0, unfinished_pushes=0) == 3


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("1K", 1024), ("1.5GB", 3 * 2**29), ("2 TiB", 2**41), ("0", 0)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43200),
        ("1d", 86400),
        ("1:30:00", 5400),
        ("2-0:00", 172800),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "1w", "1:2:3:4"])
def test_what_is_no_size_or_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="is not a time"):
        parse_seconds(text)


def test_pauses_grow_are_capped_and_honour_what_the_server_asks() -> None:
    for attempt in range(1, 40):
        delay = jittered_delay_s(attempt, base_s=0.5, cap_s=30)
        assert min(30, 0.5 * 2 ** (attempt - 1)) / 2 <= delay <= 30
    assert jittered_delay_s(1, base_s=0.5, cap_s=30, asked_s=7) >= 7
    assert jittered_delay_s(1, base_s=0.5, cap_s=30, asked_s=86400) <= 150


def test_places_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    assert place(tmp_path, "a/b.txt") == tmp_path / "a/b.txt"
    for name in ("../x", "/x", "link/x", ""):
        with pytest.raises(NotInside):
            place(tmp_path, name)
    with pytest.raises(NotInside):
        find(tmp_path, "x", "..")
    with pytest.raises(FileNotFoundError):
        find(tmp_path, "x")


def test_nothing_is_made_where_a_link_leads_out(tmp_path: Path) -> None:
    canary, work = tmp_path / "canary", tmp_path / "work"
    (canary / "sub").mkdir(parents=True)
    (canary / "file").write_text("whole")
    (work / "real").mkdir(parents=True)
    (work / "real/out").symlink_to(canary)
    (work / "up").symlink_to("../canary")
    (work / "alias").symlink_to("real")
    (work / "nowhere").symlink_to(canary / "new")
    before = tree(canary)
    for name in ("real/out/made/x", "up/made/deep/x", "up/sub/x", "alias/out/made/x", "alias/out/x"):
        with pytest.raises(NotInside, match="leaves the work directory through a link"):
            place(work, name)
    with pytest.raises(FileExistsError):
        place(work, "nowhere/x")
    assert tree(canary) == before
    assert place(work, "alias/made/x") == work / "alias/made/x"
    assert (work / "real/made").is_dir()


def test_a_listing_is_bounded(tmp_path: Path) -> None:
    assert listing(tmp_path) == "nothing"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").touch()
    assert listing(tmp_path) == "sub/, sub/x"
    for i in range(500):
        (tmp_path / f"f{i:03}").touch()
    text = listing(tmp_path)
    assert len(text) < 500
    assert text.endswith(" and at least 271 more")


def test_a_listing_reads_no_more_names_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(40):
        (tmp_path / f"f{i:02}").touch()
    assert listing(tmp_path).endswith("f29 and 10 more")
    for i in range(2000):
        (tmp_path / f"g{i}").touch()
    read = counted(monkeypatch)
    listing(tmp_path)
    assert len(read) == MAX_LISTED + 1


def test_a_tree_is_removed_and_what_it_links_to_is_not(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").touch()
    tree = tmp_path / "tree"
    (tree / "locked").mkdir(parents=True)
    (tree / "locked" / "x").touch()
    (tree / "out").symlink_to(canary)
    (tree / "locked").chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert (canary / "file").exists()
    remove_tree(tree)


@pytest.mark.parametrize("is_folder", [False, True])
def test_the_names_of_a_large_folder_are_not_held_while_it_is_removed(
    tmp_path: Path, is_folder: bool
) -> None:
    folder = tmp_path / "tree/sub"
    folder.mkdir(parents=True)
    for i in range(5_000):
        (folder / f"{i:05}").mkdir() if is_folder else (folder / f"{i:05}").touch()
    tracemalloc.start()
    try:
        remove_tree(tmp_path / "tree")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "tree").exists()
    assert peak < 200_000


async def test_kept_directories_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    dirs = WorkDirs(tmp_path, keep_failed_s=1000.0)
    made = [tmp_path / "aa" / "bb" / "cc" / f"w{i}" for i in range(MAX_KEPT + 3)]
    for directory in made:
        directory.mkdir(parents=True)
        dirs.clean(directory, keep=True)
    await dirs.close()
    assert [d.exists() for d in made] == [False] * 3 + [True] * MAX_KEPT
    dirs._keep_failed_s = 0.0
    dirs.sweep()
    await dirs.close()
    # Empty prefixes go too.
    assert list(tmp_path.iterdir()) == []


async def test_an_earlier_incarnations_directories_go_and_nothing_else(tmp_path: Path) -> None:
    root = WorkRoot(tmp_path / "work")
    root.open()
    kept = sorted(root.path.rglob("*"))
    (root.attempts / "ab" / "cd" / "ef" / "w.1").mkdir(parents=True)
    (root.fresh / "1.1").mkdir()
    await WorkDirs(root.attempts, 0).remove_old(root.fresh)
    root.close()
    assert sorted(root.path.rglob("*")) == kept


def refusal(work: str) -> str:
    """The one line that a daemon which may not use this work directory says."""
    command = [sys.executable, "-m", "awe_client.daemon.main", "run"]
    command += ["--server", "http://127.0.0.1:9", "--work", work, "--idle-exit", "1ms"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    return line


OWN_FILES = ("db/x", "cc/x", "1/x", "a/x", "fresh/sub/x", "predata/x", "attempts/x", "spool/x", "notes.txt")


def test_a_directory_with_files_of_somebody_elses_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    for name in OWN_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    # Other programs have client ids as well, some of them UUIDs.
    (tmp_path / "client-id").write_text("6ba7b810-9dad-11d1-80b4-00c04fd430c8\n")
    before = sorted(tmp_path.rglob("*"))
    assert refusal(str(tmp_path)).startswith(f"awe-client: --work {tmp_path}: is not empty")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("lock",),
        ("lost+found/",),
        ("lock", "client-id", "spool/", "spool/reports.log", "predata/", "ab/"),
    ],
    ids=["empty", "a start that was cut short", "a file system's root", "of an older version"],
)
def test_a_directory_that_is_empty_or_ours_is_taken_and_taken_again(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    ids = []
    for _ in range(2):
        root = WorkRoot(tmp_path)
        root.open()
        ids.append(root.client_id)
        root.close()
        (tmp_path / "result.txt").touch()
    assert ids[0] == ids[1]
    assert {tmp_path / name for name in names} <= set(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("/proc/x", "No such file or directory"),
        ("/dev/null", "is not a directory"),
        ("/proc", "is not empty"),
    ],
)
def test_a_work_directory_that_cannot_be_is_told_in_one_line(work: str, reason: str) -> None:
    assert refusal(work).startswith(f"awe-client: --work {work}: {reason}")


@pytest.mark.parametrize("as_json", [True, False])
def test_log_lines_show_facts(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure(as_json=as_json, verbose=False)
        logging.getLogger("awe_client.test").warning("thing_happened", extra={"work": "w 1", "n": 3})
        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("awe_client.test").exception("broken")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    text = capsys.readouterr().err
    first = text.splitlines()[0]
    if as_json:
        line = json.loads(first)
        assert (line["event"], line["work"], line["n"], line["level"]) == (
            "thing_happened",
            "w 1",
            3,
            "warning",
        )
    else:
        assert first.endswith("WARNING thing_happened work='w 1' n=3")
    assert "ValueError: inner" in text
    assert sys.stderr is not None


async def test_F_13_nothing_starts_between_a_full_disk_and_the_removal_of_what_filled_it(
    tmp_path: Path,
) -> None:
    dirs = WorkDirs(tmp_path, keep_failed_s=0.0)
    filled = tmp_path / "aa" / "attempt"
    make_directory(filled)
    dirs.was_full(filled)
    assert dirs.has_no_room
    dirs.clean(filled, keep=False)
    await dirs.close()
    assert not dirs.has_no_room
