"""The check of files finds every kind of damage, and repair removes only what nobody needs."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from awe_server.data.check import Report, check_files, repair
from awe_server.data.indexes import sidecar
from awe_server.data.nodes import NodeStore
from awe_server.store.base import Document, Put, Query
from tests.unit.data.port import MemoryPort, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def check(root: Path, port: MemoryPort) -> Report:
    async def documents() -> AsyncIterator[Document]:
        for document in (await port.find("nodes", Query())).documents:
            yield document

    return await check_files(root, documents())


def found(report: Report) -> list[tuple[str, str]]:
    return sorted((problem.kind, problem.node) for problem in report.problems)


async def blob(nodes: NodeStore, root: Path, node_id: str) -> Path:
    return root / "blobs" / str((await nodes.get(node_id))["_blob"])


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def fill(nodes: NodeStore, port: MemoryPort) -> None:
    """A store with everything that a sound one may hold."""
    for text in (b"one\ntwo\n", b"three\n", b""):
        await nodes.create(stream(text))
    await nodes.create(stream(b"three\n"), dedup=True)
    await nodes.create(None, parts=2)
    await nodes.build_index("node-1", "line")
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    await nodes.put_part("out", 1, 1, stream(b"part"))
    await nodes.put_attributes("out", 1, 1, {"k": 1})


async def test_a_sound_store_has_no_problems(nodes: NodeStore, port: MemoryPort, root: Path) -> None:
    await fill(nodes, port)
    report = await check(root, port)
    assert report.problems == []
    assert (report.nodes, report.files, report.bytes) == (6, 5, 8 + 6 + 0 + 6 + 4)
    assert report.is_sound


async def test_a_flipped_byte(nodes: NodeStore, port: MemoryPort, root: Path) -> None:
    await fill(nodes, port)
    path = await blob(nodes, root, "node-1")
    path.write_bytes(b"one\ntwO\n")
    report = await check(root, port)
    assert found(report) == [("damaged", "node-1")]
    line = str(report.problems[0])
    assert line.startswith(f"damaged {path.relative_to(root)} (node node-1): sha256 is ")


async def test_every_node_that_shares_damaged_bytes_is_named(
    nodes: NodeStore, port: MemoryPort, root: Path
) -> None:
    await fill(nodes, port)
    (await blob(nodes, root, "node-2")).write_bytes(b"THREE\n")
    assert found(await check(root, port)) == [("damaged", "node-2"), ("damaged", "node-4")]


async def test_a_file_that_was_cut_and_one_that_is_gone(
    nodes: NodeStore, port: MemoryPort, root: Path
) -> None:
    await fill(nodes, port)
    (await blob(nodes, root, "node-1")).write_bytes(b"one\n")
    (await blob(nodes, root, "node-2")).unlink()
    report = await check(root, port)
    assert found(report) == [("missing_blob", "node-2"), ("wrong_size", "node-1")]
    assert "has 4 bytes, should have 8" in str(report.problems[0])


async def test_a_document_without_a_file(nodes: NodeStore, port: MemoryPort, root: Path) -> None:
    await fill(nodes, port)
    document = await nodes.get("node-1")
    await port.put(Put("nodes", {**document, "_blob": None}))
    kinds = found(await check(root, port))
    # Its bytes are there under a name that nobody knows; they are the only copy.
    assert kinds == [("kept", "node-1"), ("needed_orphan", "node-1"), ("no_blob", "node-1")]


async def test_a_damaged_part(nodes: NodeStore, port: MemoryPort, root: Path) -> None:
    await fill(nodes, port)
    (part,) = (root / "parts" / "out").glob("1.1.4.*")
    part.write_bytes(b"parT")
    assert found(await check(root, port)) == [("damaged_part", "out")]


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        pytest.param(32, b"\x05", id="a line that is torn"),
        pytest.param(32, b"\xff", id="a line that ends before it begins"),
        pytest.param(0, b"X", id="no index at all"),
    ],
)
async def test_a_damaged_index_of_a_node_is_found_and_may_go(
    nodes: NodeStore, port: MemoryPort, root: Path, at: int, wrong: bytes
) -> None:
    await fill(nodes, port)
    path = sidecar(await blob(nodes, root, "node-1"), "line")
    content = bytearray(path.read_bytes())
    content[at : at + 1] = wrong
    path.write_bytes(content)
    report = await check(root, port)
    assert found(report) == [("damaged_index", "")]
    assert report.indexes == 1
    repair(root, report, lambda: None)
    assert (await check(root, port)).problems == []
    download = await nodes.open_range("node-1", index="line", part="1")
    assert [chunk async for chunk in download.chunks] == [b"one\n"]
    assert (await check(root, port)).indexes == 1


async def leave_everything(root: Path) -> None:
    """Whatever crashes and deletions can leave behind."""
    folder = root / "blobs" / "aa" / "bb"
    folder.mkdir(parents=True)
    (folder / "gone.0123").write_bytes(b"never acknowledged")
    (folder / ".tmp-0123").write_bytes(b"half")
    (folder / "node-9.77.line.idx").write_bytes(b"index")
    (root / "parts" / "gone").mkdir()
    (root / "parts" / "gone" / "1.1.4.a.b").write_bytes(b"part")
    (root / "parts" / "out" / ".tmp-77").write_bytes(b"half")


async def test_what_nobody_needs_is_found_and_repair_removes_only_that(
    nodes: NodeStore, port: MemoryPort, root: Path
) -> None:
    await fill(nodes, port)
    before = contents(root)
    await leave_everything(root)
    report = await check(root, port)
    assert found(report) == [
        ("orphan_blob", ""), ("orphan_index", ""), ("orphan_parts", "gone"), ("temporary", ""),
        ("temporary", "out"),
    ]  # fmt: skip
    assert not report.is_sound
    repair(root, report, lambda: None)
    assert report.is_sound
    assert all(str(problem).endswith("; removed") for problem in report.problems)
    assert contents(root) == before
    assert (await check(root, port)).problems == []


async def test_repair_never_removes_the_only_copy(nodes: NodeStore, port: MemoryPort, root: Path) -> None:
    await fill(nodes, port)
    path = await blob(nodes, root, "node-1")
    lost = path.with_name("moved.0123")
    shutil.copy(path, lost)
    path.write_bytes(b"one\ntwO\n")
    report = await check(root, port)
    assert found(report) == [("damaged", "node-1"), ("needed_orphan", "node-1")]
    repair(root, report, lambda: None)
    assert (path.read_bytes(), lost.read_bytes()) == (b"one\ntwO\n", b"one\ntwo\n")
    assert not report.is_sound
