"""Folders and patterns as tars, made and unpacked (F-08, F-10)."""

import contextlib
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from awe_client.daemon import archive as archive_module
from awe_client.daemon import unpack as unpack_module
from awe_client.daemon.archive import ArchiveBody, Finder, NotKept, pack
from awe_client.daemon.unpack import Refused, unpack
from shared_models.archives import Pattern

pytestmark = pytest.mark.anyio


def tree(folder: Path) -> dict[str, object]:
    """All that is in a folder: text of files, targets of links, None for folders."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_text() if path.is_file() else None
    return found


def packed(folder: Path, name: str, base: str = "") -> bytes:
    return b"".join(pack(Finder(folder).find(Pattern(name), base)))


def unpacked(data: bytes, target: Path, name: str) -> dict[str, object]:
    target.mkdir()
    archive = target.parent / f"{target.name}.tar"
    archive.write_bytes(data)
    unpack(lambda: False, archive, target, name)
    return tree(target)


def made(*members: tuple[str, bytes, str], format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of (name, type, target or text)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
            else:
                info.linkname = text
                tar.addfile(info)
    return file.getvalue()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "out/sub/empty").mkdir(parents=True)
    (folder / "out/a.txt").write_text("a\n")
    (folder / "out/sub/b.txt").write_text("b\n")
    (folder / "out/run.sh").write_text("#!/bin/sh\n")
    (folder / "out/run.sh").chmod(0o750)
    (folder / "lambda.1.bt2").write_text("1")
    (folder / "lambda.2.bt2").write_text("22")
    (folder / "lambda.bt2.log").write_text("log")
    return folder


def test_a_folder_comes_back_as_it_was(work: Path, tmp_path: Path) -> None:
    (work / "out/link").symlink_to("sub/b.txt")
    (work / "out/sub/up").symlink_to("../a.txt")
    (work / "out/sub/absolute").symlink_to(work / "out/a.txt")
    (work / "out" / ("é" * 100)).write_text("long")
    back = unpacked(packed(work, "out/"), tmp_path / "back", "out/")
    assert back == {
        "out": None,
        "out/a.txt": "a\n",
        "out/link": "-> sub/b.txt",
        "out/run.sh": "#!/bin/sh\n",
        "out/sub": None,
        "out/sub/absolute": "-> ../a.txt",
        "out/sub/b.txt": "b\n",
        "out/sub/empty": None,
        "out/sub/up": "-> ../a.txt",
        "out/" + "é" * 100: "long",
    }
    assert os.access(tmp_path / "back/out/run.sh", os.X_OK)
    assert not os.access(tmp_path / "back/out/a.txt", os.X_OK)


def test_the_same_files_make_the_same_bytes_which_everybody_can_read(work: Path, tmp_path: Path) -> None:
    first = packed(work, "out/")
    os.utime(work / "out/a.txt", (1, 1))
    (work / "out/a.txt").chmod(0o600)
    assert packed(work, "out/") == first
    (tmp_path / "o.tar").write_bytes(first)
    listed = subprocess.run(
        ["tar", "tvf", str(tmp_path / "o.tar"), "--full-time"], capture_output=True, text=True, check=True
    )
    assert listed.stderr == ""
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [
        "out/", "out/a.txt", "out/run.sh", "out/sub/", "out/sub/b.txt", "out/sub/empty/",
    ]  # fmt: skip
    assert "1970-01-01" in listed.stdout


def test_F_10_e_a_pattern_takes_all_that_match_and_nothing_else(work: Path, tmp_path: Path) -> None:
    back = unpacked(packed(work, "lambda.?.bt2"), tmp_path / "back", "lambda.?.bt2")
    assert back == {"lambda.1.bt2": "1", "lambda.2.bt2": "22"}


def test_members_are_named_from_the_directory_of_the_output(work: Path, tmp_path: Path) -> None:
    assert unpacked(packed(work, "*.txt", "out/sub"), tmp_path / "back", "*.txt") == {"b.txt": "b\n"}
    assert unpacked(packed(work, "sub/", "out"), tmp_path / "back2", "sub/") == {
        "sub": None, "sub/b.txt": "b\n", "sub/empty": None,
    }  # fmt: skip


def test_a_name_may_begin_at_the_work_directory(work: Path, tmp_path: Path) -> None:
    data = packed(work, "out/")
    assert packed(work, "./out/") == data
    assert unpacked(data, tmp_path / "back", "./out/") == unpacked(data, tmp_path / "back2", "out/")


def test_a_link_to_a_file_elsewhere_in_the_work_directory_becomes_that_file(
    work: Path, tmp_path: Path
) -> None:
    (work / "out/index").symlink_to("../lambda.1.bt2")
    (work / "new.bt2").symlink_to("lambda.2.bt2")
    assert unpacked(packed(work, "out/"), tmp_path / "back", "out/")["out/index"] == "1"
    assert unpacked(packed(work, "new.*"), tmp_path / "back2", "new.*") == {"new.bt2": "22"}


def test_names_that_are_no_text_survive(work: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\n")
    (work / "out" / name).write_text("x")
    assert unpacked(packed(work, "out/"), tmp_path / "back", "out/")[f"out/{name}"] == "x"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda out: os.mkfifo(out / "pipe"), "'out/pipe' is a pipe, socket or device"),
        (lambda out: (out / "x").symlink_to("/etc/passwd"), "'out/x' leaves the work directory"),
        (lambda out: (out / "x").symlink_to("../../other"), "'out/x' leaves the work directory"),
        (lambda out: (out / "x").symlink_to("../nothing"), "leads to no file"),
        (lambda out: (out.parent / "d").mkdir() or (out / "x").symlink_to("../d"), "leads to no file"),
        (lambda out: (out / "x").symlink_to("x"), "link in a circle"),
    ],
)
def test_F_08_what_leads_out_or_is_no_file_is_not_kept(
    work: Path, make: Callable[[Path], object], says: str
) -> None:
    make(work / "out")
    with pytest.raises(NotKept, match=says):
        packed(work, "out/")
    lenient = Finder(work, leave_bad=True)
    assert len(list(lenient.find(Pattern("out/")))) == 6


def test_F_08_a_folder_that_is_a_link_out_is_not_kept(work: Path, tmp_path: Path) -> None:
    (tmp_path / "canary").mkdir()
    (work / "results").symlink_to(tmp_path / "canary")
    with pytest.raises(NotKept, match="leaves the work directory"):
        packed(work, "results/")
    with pytest.raises(NotKept, match="leaves the work directory"):
        packed(work, "*.txt", "results")


@pytest.mark.anyio
async def test_a_body_says_its_length_and_its_digest(work: Path) -> None:
    body = ArchiveBody(lambda: Finder(work).find(Pattern("out/")))
    for _ in range(2):
        data = b"".join([chunk async for chunk in body])
        assert (len(data), hashlib.md5(data).hexdigest()) == (body.size, body.md5)
    assert (body.count, body.has_bytes) == (6, True)
    assert body.headers["Content-Length"] == str(body.size)


@pytest.mark.anyio
async def test_a_file_that_grows_while_it_is_sent_is_noticed(work: Path) -> None:
    body = ArchiveBody(lambda: Finder(work).find(Pattern("out/")))
    (work / "out/new").write_text("x")
    with pytest.raises(OSError, match="changed while being read"):
        [chunk async for chunk in body]


def test_a_large_folder_needs_little_memory(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/big").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    total = sum(len(chunk) for chunk in pack(Finder(tmp_path).find(Pattern("out/"))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 64 * 1024 * 1024
    assert peak < 8 * 1024 * 1024


def test_too_many_files_are_refused_both_ways(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed(work, "out/")
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 5)
    for keys in ({}, {"leave_bad": True}):
        with pytest.raises(NotKept, match="more than 5 files"):
            ArchiveBody(lambda keys=keys: Finder(work, **keys).find(Pattern("out/")))  # type: ignore[misc]
    monkeypatch.setattr(unpack_module, "MAX_MEMBERS", 5)
    with pytest.raises(Refused, match="more than 5 members"):
        unpacked(data, tmp_path / "back", "out/")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name that is read of any folder from now on."""
    read: list[str] = []
    scandir = os.scandir

    @contextlib.contextmanager
    def counting(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            yield (entry for entry in entries if not read.append(entry.name))  # type: ignore[func-returns-value]

    monkeypatch.setattr(os, "scandir", counting)
    return read


@pytest.mark.parametrize(("name", "held"), [("out/", 5), ("out/*", 6), ("**", 5)])
def test_no_more_names_of_a_folder_are_held_than_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, held: int
) -> None:
    (tmp_path / "out").mkdir()
    for i in range(100):
        (tmp_path / f"out/{i}").touch()
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 5)
    read = counted(monkeypatch)
    with pytest.raises(NotKept, match="more than 5 files"):
        list(Finder(tmp_path).find(Pattern(name)))
    assert len(read) - 1 <= held


def test_names_in_folders_above_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("out", "out/a", "out/a/a"):
        (tmp_path / folder).mkdir()
        for i in range(4):
            (tmp_path / folder / f"x{i}").touch()
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 9)
    read = counted(monkeypatch)
    with pytest.raises(NotKept, match="more than 9 files"):
        list(Finder(tmp_path).find(Pattern("out/")))
    assert len(read) <= 11


def test_a_few_of_very_many_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a.bt2", "folder/b.bt2", *(f"{i}.log" for i in range(100))):
        (tmp_path / name).touch()
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 5)
    for name in ("*.bt2", "**/*.bt2", "*/*.bt2"):
        found = [entry.name for entry in Finder(tmp_path).find(Pattern(name))]
        assert found == [one for one in ("a.bt2", "folder/b.bt2") if Pattern(name).takes(one.split("/"))]


def test_of_a_folder_that_is_left_out_the_rest_is_taken(work: Path) -> None:
    left_out = {"out", "out/a.txt", "out/sub", "out/sub/empty", "lambda.1.bt2"}
    found = [entry.name for entry in Finder(work, left_out).find(Pattern("*"))]
    assert found == ["lambda.2.bt2", "lambda.bt2.log", "out/run.sh", "out/sub/b.txt"]
    assert [entry.name for entry in Finder(work, left_out).find(Pattern("*/*.txt"))] == []
    below = Finder(work, left_out).find(Pattern("*"), "out")
    assert [entry.name for entry in below] == ["run.sh", "sub/b.txt"]


def test_a_link_that_leads_to_nothing_is_no_missing_file(work: Path) -> None:
    (work / "dangling.txt").symlink_to("nothing")
    with pytest.raises(NotKept, match=r"'dangling\.txt' is a link that leads to no file"):
        packed(work, "*.txt")


@contextlib.contextmanager
def as_somebody() -> Iterator[None]:
    """With the rights of nobody in particular: root may read everything."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_cannot_be_read_is_left_out_where_something_is_better_than_nothing() -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as made:
        folder = Path(name)
        folder.chmod(0o755)
        for below in ("out", "out/locked", "out/listed", "locked"):
            (folder / below).mkdir()
            (folder / below / "x").write_text("x")
        (folder / "out/secret").write_text("x")
        for below, mode in (("out/locked", 0), ("out/listed", 0o744), ("locked", 0), ("out/secret", 0)):
            (folder / below).chmod(mode)
            made.callback((folder / below).chmod, 0o755)
        made.enter_context(as_somebody())
        with pytest.raises(PermissionError):
            packed(folder, "out/")
        found = Finder(folder, leave_bad=True).find(Pattern("out/"))
        assert [entry.name for entry in found] == ["out", "out/listed", "out/locked", "out/x"]
        assert [entry.name for entry in Finder(folder, leave_bad=True).find(Pattern("**/x"))] == ["out/x"]


def test_what_lies_too_deep_for_the_kernel_is_left_out_too(work: Path) -> None:
    here = os.open(work / "out", os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(OSError, match="too long"):
        packed(work, "out/")
    found = [entry.name for entry in Finder(work, leave_bad=True).find(Pattern("out/"))]
    assert (found[:2], found[-1]) == (["out", "out/a.txt"], "out/sub/empty")


FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("../x", FILE, "evil")], "leads out"),
        ([("out/../../x", FILE, "evil")], "leads out"),
        ([("/tmp/awe-evil", FILE, "evil")], "leads out"),
        ([("out/l", LINK, "/etc")], "link that leads out"),
        ([("out/l", LINK, "../..")], "link that leads out"),
        ([("out/l", LINK, "a/../../../x")], "link that leads out"),
        ([("out/a", LINK, "."), ("out/l", LINK, "a/../../x")], "link that leads out"),
        ([("out/l", LINK, ".."), ("out/l/x", FILE, "through the link")], "lies in what is no folder"),
        ([("out/l", LINK, "x"), ("out/l", FILE, "through the link")], "is there already"),
        ([("out/h", HARD, "../../canary")], "link that leads out"),
        ([("out/h", HARD, "/etc/passwd")], "link that leads out"),
        ([("out/h", HARD, "out/nothing")], "link to nothing"),
        ([("out/a/b/l", LINK, "../../.."), ("out/m", HARD, "out/a/b/l")], "hard link to what is no file"),
        ([("out/a/b", FOLDER, ""), ("out/m", HARD, "out/a/b")], "hard link to what is no file"),
        ([("in.txt", FILE, "1"), ("out/h", HARD, "in.txt")], "link to nothing"),
        ([("out/dev", tarfile.CHRTYPE, "")], "no file, folder or link"),
        ([("out/dev", tarfile.BLKTYPE, "")], "no file, folder or link"),
        ([("out/pipe", tarfile.FIFOTYPE, "")], "no file, folder or link"),
        ([("out/a", FILE, "1"), ("out/a", FILE, "2")], "is there already"),
        ([("out/a", FILE, "1"), ("out/a/b", FILE, "2")], "lies in what is no folder"),
        ([("in.txt", FILE, "1")], "nothing in it is 'out/'; it has: in.txt"),
        ([], "nothing in it is 'out/'; it has: nothing"),
        ([("out/" + "d/" * 101 + "x", FILE, "deep")], "more than 100 folders"),
    ],
)
def test_F_08_an_archive_touches_nothing_outside(
    tmp_path: Path, members: list[tuple[str, bytes, str]], says: str, format: int
) -> None:
    (tmp_path / "canary").write_text("whole")
    before = tree(tmp_path)
    if format == tarfile.USTAR_FORMAT and len(members) == 1 and len(members[0][0]) > 250:
        format = tarfile.PAX_FORMAT
    with pytest.raises(Refused, match=says):
        unpacked(made(*members, format=format), tmp_path / "work", "out/")
    after = {k: v for k, v in tree(tmp_path).items() if not k.startswith("work")}
    assert after == before
    assert not Path("/tmp/awe-evil").exists()


def test_an_archive_of_somebody_else_is_unpacked(tmp_path: Path) -> None:
    data = made(
        ("./out", FOLDER, ""),
        ("./out/a", FILE, "1"),
        ("./out/b", HARD, "./out/a"),
        ("./out/" + "n" * 200, FILE, "long"),
        ("./README", FILE, "not taken"),
        format=tarfile.GNU_FORMAT,
    )
    assert unpacked(data, tmp_path / "work", "out/") == {
        "out": None, "out/a": "1", "out/b": "1", "out/" + "n" * 200: "long",
    }  # fmt: skip


def test_nothing_that_is_there_is_replaced_not_even_through_links(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/db").write_text("shared")
    target = tmp_path / "work"
    target.mkdir()
    (target / "out").symlink_to(tmp_path / "shared")
    (tmp_path / "a.tar").write_bytes(made(("out/db", FILE, "mine"), ("out/new", FILE, "mine")))
    with pytest.raises(Refused, match="lies in what is no folder"):
        unpack(lambda: False, tmp_path / "a.tar", target, "out/")
    assert tree(tmp_path / "shared") == {"db": "shared"}


@pytest.mark.parametrize("name", ["out/reference", "out/input"])
def test_a_hard_link_is_made_to_files_of_the_same_archive_only(tmp_path: Path, name: str) -> None:
    """Else an archive would give another name to what it did not bring: links to reference data, inputs."""
    (tmp_path / "shared").write_text("shared")
    target = tmp_path / "work"
    (target / "out").mkdir(parents=True)
    (target / "out/reference").symlink_to(tmp_path / "shared")
    (target / "out/input").write_text("input")
    before = tree(tmp_path)
    archive = tmp_path.with_suffix(".tar")
    archive.write_bytes(made(("out/h", HARD, name)))
    with pytest.raises(Refused, match="link to nothing that was unpacked before it"):
        unpack(lambda: False, archive, target, "out/")
    assert tree(tmp_path) == before


def test_all_that_was_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "work/out").mkdir(parents=True)
    members = [
        ("./out/sub/a", FILE, "1"),
        ("out/b", HARD, "out/sub/a"),
        ("out/l", LINK, "b"),
        ("no", FILE, ""),
    ]
    (tmp_path / "a.tar").write_bytes(made(*members))
    names = unpack(lambda: False, tmp_path / "a.tar", tmp_path / "work", "out/")
    assert names == {"out/sub", "out/sub/a", "out/b", "out/l"}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "it is not a tar"),
        (lambda data: b"no tar at all" * 100, "it is not a tar"),
        (lambda data: data[:700], "cut off"),
        (lambda data: data[:1024], "cut off"),
        (lambda data: data[:1024] + b"x" * 512 + data[1536:], "no header at byte"),
        (lambda data: data[:600], "cut off"),
    ],
)
def test_a_damaged_archive_is_never_a_shorter_one(
    tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    data = made(("out/a", FILE, "1"), ("out/b", FILE, "2"), format=tarfile.USTAR_FORMAT)
    with pytest.raises(Refused, match=says):
        unpacked(damage(data), tmp_path / "work", "out/")


def test_a_header_of_names_cannot_fill_the_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    with pytest.raises(Refused, match="a header at byte"):
        unpacked(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240), tmp_path / "work", "out/")


def test_a_stopped_unpacking_ends(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(made(("out/a", FILE, "1")))
    (tmp_path / "work").mkdir()
    with pytest.raises(Refused, match="stopped"):
        unpack(lambda: True, tmp_path / "a.tar", tmp_path / "work", "out/")
    assert tree(tmp_path / "work") == {}
