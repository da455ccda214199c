"""Joining archives of ranks."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from awe_server.data import merge_archives as merge_module
from awe_server.data.blobs import Writer
from awe_server.data.merge_archives import merge_archives
from awe_server.data.nodes import NodeStore
from awe_server.data.parts import Part
from awe_server.data.ports import CannotJoin, FileFact
from awe_server.store.base import Put
from shared_models.archives import ARCHIVE_TAG
from shared_models.errors import NoSpace
from tests.unit.data.port import MemoryPort

pytestmark = pytest.mark.anyio


def tar(**members: str | None) -> bytes:
    """A tar of files and (None) folders; `__` in a name stands for `/`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            if text is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
    return file.getvalue()


def content(data: bytes) -> list[tuple[str, str | None]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [
            (m.name, None if m.isdir() else archive.extractfile(m).read().decode())  # type: ignore[union-attr]
            for m in archive
        ]


def merged(folder: Path, *parts: bytes, floor: int = 0) -> bytes:
    staged = []
    for number, data in enumerate(parts, 1):
        path = folder / f"part{number}"
        path.write_bytes(data)
        staged.append(Part(number, 1, FileFact(len(data), "", ""), path))
    target = folder / "out" / "merged"
    fact = merge_archives(staged, Writer(target.parent, floor), target)
    data = target.read_bytes()
    assert (fact.size, fact.md5) == (len(data), hashlib.md5(data).hexdigest())
    return data


@pytest.mark.parametrize("buffer", [1, 1000, 1 << 20])
def test_members_of_all_ranks_are_there_in_their_order(
    tmp_path: Path, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_module, "BUFFER_BYTES", buffer)
    long = "é" * 150
    parts = [tar(out=None, out__b="b" * 3000), tar(out=None), tar(out=None, out__a="a", **{long: "x"})]
    assert content(merged(tmp_path, *parts)) == [
        ("out", None),
        ("out/b", "b" * 3000),
        ("out", None),
        ("out", None),
        ("out/a", "a"),
        (long, "x"),
    ]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([tar(out__a="1"), tar(out__b="2"), tar(out__a="3")], "ranks 1 and 3 both made 'out/a'"),
        ([tar(out__a="1"), tar(out__a=None)], "ranks 1 and 2 both made 'out/a'"),
        ([tar(out__a=None), tar(**{"./out//a": "1"})], "ranks 1 and 2 both made 'out/a'"),
        ([tar(a="1"), b"no tar" * 200], "what rank 2 made is not a whole tar: it is not a tar"),
        ([tar(a="1"), tar(b="2")[:700]], "what rank 2 made is not a whole tar: it is cut off"),
    ],
)
def test_a_file_of_two_ranks_and_a_damaged_part_are_refused(
    tmp_path: Path, parts: list[bytes], says: str
) -> None:
    with pytest.raises(CannotJoin, match=says):
        merged(tmp_path, *parts)
    assert not list((tmp_path / "out").glob("*"))


def test_names_that_only_look_alike_are_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "_mark", lambda name: 7)
    assert len(content(merged(tmp_path, tar(d=None, a="1"), tar(d=None, b="2")))) == 4
    with pytest.raises(CannotJoin, match="both made 'a'"):
        merged(tmp_path, tar(a="1"), tar(a="2"))


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "MAX_MEMBERS", 2)
    with pytest.raises(CannotJoin, match="more than 2 files"):
        merged(tmp_path, tar(a="1", b="2"), tar(c="3"))


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(NoSpace):
        merged(tmp_path, tar(a="1"), tar(b="2"), floor=1 << 60)
    assert list((tmp_path / "out").iterdir()) == []


async def _bytes(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_node_with_the_tag_is_joined_as_an_archive_and_keeps_its_parts_if_it_cannot_be(
    nodes: NodeStore, port: MemoryPort
) -> None:
    document = nodes.output_document("n-1", job="j", task="j_t", name="out.tar", parts=2, tags=(ARCHIVE_TAG,))
    await port.put(Put("nodes", document))
    await nodes.put_part("n-1", 1, 1, _bytes(tar(out__a="1")))
    await nodes.put_part("n-1", 2, 1, _bytes(tar(out__a="2")))
    with pytest.raises(CannotJoin, match="ranks 1 and 2 both made 'out/a'"):
        await nodes.assemble("n-1", [(1, 1), (2, 1)])
    await nodes.put_part("n-1", 2, 2, _bytes(tar(out__b="2")))
    fact = await nodes.assemble("n-1", [(1, 1), (2, 2)])
    got = await nodes.open_range("n-1")
    data = b"".join([chunk async for chunk in got.chunks])
    assert content(data) == [("out/a", "1"), ("out/b", "2")]
    assert fact.size == len(data)
    assert (await nodes.get("n-1"))["tags"] == [ARCHIVE_TAG]
