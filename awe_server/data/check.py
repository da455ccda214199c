"""Compare a node store's files with the documents that name them, byte by byte, while no server runs.

What is called an orphan is named by no document: an upload that was never acknowledged, or what is left of a
node that was deleted. Only that is ever removed; a file that a document names stays, however damaged, and so
does an orphan with the content that a damaged or missing file should have, and whatever was made for a node
whose document makes no sense: it does not say any more which file it names.
"""

import hashlib
import os
import shutil
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from anyio import to_thread

from awe_server.data.blobs import BUFFER_BYTES, BlobStore
from awe_server.data.documents import problem_of
from awe_server.data.files import TEMPORARY_PREFIX, fsync_folder, walk
from awe_server.data.indexes import OUTDATED, SIDECAR_SUFFIX, index_problem
from awe_server.data.orphans import blob_of, owner_of
from awe_server.data.parts import PartStore
from awe_server.data.ports import FileFact
from awe_server.store.base import Document

Kind = Literal[
    "missing_blob",  # the document names a file that is not there
    "odd_document",  # it makes no sense: which file it names is not known
    "kept",  # may be the file, or an index, of a node whose document makes no sense
    "no_blob",  # the document describes a file and does not say which
    "wrong_size",
    "damaged",  # the bytes are not those that were received
    "unreadable",
    "damaged_part",
    "orphan_blob",
    "orphan_index",
    "damaged_index",  # it is built again when it is needed
    "orphan_parts",  # a folder of staged parts
    "temporary",
    "needed_orphan",  # has the content that another file should have
]
MAX_ADVICE = 20  #: damaged nodes of which it is said what to do
_REMOVABLE = frozenset[Kind]({"orphan_blob", "orphan_index", "damaged_index", "orphan_parts", "temporary"})


@dataclass(slots=True)
class Problem:
    """One thing that is not as it should be; `path` is relative to the node store's folder."""

    kind: Kind
    path: str
    node: str
    detail: str
    removed: bool = False
    files_removed: int = 0  #: of a folder, also if the rest of it is still there

    def __str__(self) -> str:
        about = f" (node {self.node})" if self.node else ""
        end = f"; {self.files_removed} of its files were removed" if self.files_removed else ""
        end = "; removed" if self.removed else end
        return f"{self.kind} {self.path}{about}: {self.detail}{end}"


@dataclass(slots=True)
class Report:
    """What was looked at and what was found."""

    nodes: int = 0
    files: int = 0
    bytes: int = 0
    indexes: int = 0  #: of our files and of files elsewhere
    outdated: int = 0  #: of these, made by another version: built again when they are needed
    problems: list[Problem] = field(default_factory=list)
    #: nodes whose file is not what it should be, with the task that makes it, "" if none does
    spoilt: dict[str, str] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong, or nothing any more."""
        return all(problem.removed for problem in self.problems)


def advice(report: Report) -> Iterator[str]:
    """What can be done about files that are not what they should be, a line for each of the first."""
    for node_id, task in islice(report.spoilt.items(), MAX_ADVICE):
        if task:
            job, _, name = task.partition("_")
            yield f"node {node_id} is damaged: awe recompute {job} {name} makes it again, as a new node"
        else:
            send = f"curl -X PUT -F upload=@FILE SERVER/node/{node_id}"
            yield f"node {node_id} is damaged: send its file again ({send}), or awe node rm {node_id}"
    if len(report.spoilt) > MAX_ADVICE:
        yield f"{len(report.spoilt) - MAX_ADVICE} more nodes are damaged"
    left = [problem.kind for problem in report.problems if not problem.removed]
    indexes = left.count("damaged_index")
    if unnamed := sum(kind in _REMOVABLE for kind in left) - indexes:
        yield f"{unnamed} files and folders that no document names are of no use: --repair removes them"
    if indexes:
        yield f"{indexes} damaged indexes are made again when they are needed: --repair removes them"


async def check_files(root: Path, documents: AsyncIterable[Document]) -> Report:
    """Read every file of the node store at `root`; changes nothing."""
    check = _Check(root)
    async for document in documents:
        await to_thread.run_sync(check.node, document)
    await to_thread.run_sync(check.leftovers)
    return check.report


def repair(root: Path, report: Report, require_lead: Callable[[], object]) -> None:
    """Remove what no document names; what was removed is marked so, what cannot be says why.

    `require_lead` raises before a removal once the documents may be another server's.
    """
    for problem in removals(report):
        try:
            _remove(root / problem.path, problem, require_lead)
        except OSError as exc:
            problem.detail += f"; cannot be removed: {exc.strerror}"


def removals(report: Report) -> list[Problem]:
    """What `repair` removes, or has removed."""
    return [problem for problem in report.problems if problem.kind in _REMOVABLE]


def _remove(path: Path, problem: Problem, require_lead: Callable[[], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        for entry in list(walk(path)):
            require_lead()
            Path(entry.path).unlink(missing_ok=True)
            problem.files_removed += 1
        require_lead()
        shutil.rmtree(path)
    else:
        require_lead()
        path.unlink(missing_ok=True)
    fsync_folder(path.parent)
    problem.removed = True


class _Check:
    def __init__(self, root: Path) -> None:
        self.report = Report()
        self._root = root
        self._blobs = BlobStore(root / "blobs", 0)
        self._parts = PartStore(root / "parts", 0)
        self._ids: set[str] = set()
        self._odd: set[str] = set()  #: nodes whose documents do not say which file is theirs
        self._named: dict[str, int] = {}  #: blobs that documents name, and their size
        #: content of files that are not what they should be, by size and sha256: the node
        self._wanted: dict[tuple[int, str], str] = {}
        #: checksums of files with several names, by inode
        self._known: dict[tuple[int, int], str] = {}

    def node(self, document: Document) -> None:
        """Compare a node's document with its file."""
        self.report.nodes += 1
        node_id = document["id"]
        self._ids.add(node_id)
        if problem := problem_of(document):
            self._odd.add(node_id)
            self._say(
                "odd_document",
                "-",
                node_id,
                f"it makes no sense ({problem}): restore a backup, or awe node rm it",
            )
            return
        if document.get("file") is None:
            return
        blob, size, sha256 = (
            document["_blob"],
            document["file"]["size"],
            document["file"]["checksum"]["sha256"],
        )
        if blob is None:
            self._say("no_blob", "-", node_id, "the document describes a file and names none")
            self._odd.add(node_id)
            found = False
        else:
            self._named[blob] = size
            fact = FileFact(size, "", sha256)
            found = self._compare(self._blobs.path(blob), fact, node_id, "damaged", "missing_blob")
        if not found:
            self.report.spoilt[node_id] = document.get("task") or ""
            self._wanted[(size, sha256)] = node_id

    def leftovers(self) -> None:
        """Find what no document names; after all documents were seen."""
        for entry in self._blobs.walk():
            self._blob(Path(entry.path), str(Path(entry.path).relative_to(self._blobs.root)))
        for folder in self._parts.nodes():
            if not folder.is_dir(follow_symlinks=False):
                self._say("temporary", folder.path, "", "is no folder of parts")
            elif folder.name in self._ids:
                self._staged(folder.name)
            else:
                files = [file.stat().st_size for file in walk(Path(folder.path))]
                self._say("orphan_parts", folder.path, folder.name, f"{len(files)} files, {sum(files)} bytes")

    def _blob(self, path: Path, name: str) -> None:
        if path.name.startswith(TEMPORARY_PREFIX):
            self._say("temporary", path, "", f"an upload that was broken off, {path.stat().st_size} bytes")
        elif name.endswith(SIDECAR_SUFFIX):
            self._index(path, blob_of(name))
        elif name not in self._named:
            self._orphan(path)

    def _index(self, path: Path, blob: str) -> None:
        if blob not in self._named or not self._blobs.path(blob).exists():
            if not self._may_be_needed(path):
                self._say("orphan_index", path, "", "the file that it is about is not there")
            return
        self.report.indexes += 1
        try:
            problem = index_problem(path, self._named[blob])
        except OSError as exc:
            self._say("unreadable", path, "", exc.strerror or str(exc))
            return
        if problem == OUTDATED:
            self.report.outdated += 1
        elif problem:
            self._say("damaged_index", path, "", problem)

    def _orphan(self, path: Path) -> None:
        size = path.stat().st_size
        if any(size == wanted for wanted, _ in self._wanted):
            try:
                node_id = self._wanted.get((size, self._sha256(path)))
            except OSError as exc:
                self._say("unreadable", path, "", exc.strerror or str(exc))
                return
            if node_id is not None:
                self._say("needed_orphan", path, node_id, "has the content that this node's file should have")
                return
        if not self._may_be_needed(path):
            self._say("orphan_blob", path, "", f"no node names it, {size} bytes")

    def _may_be_needed(self, path: Path) -> bool:
        """Say so of what was made for a node of which it is not known what file it has."""
        owner = owner_of(path.name)
        if owner in self._odd:
            self._say("kept", path, owner, f"may be this node's, {path.stat().st_size} bytes")
        return owner in self._odd

    def _staged(self, node_id: str) -> None:
        for path in map(Path, sorted(entry.path for entry in walk(self._parts.folder(node_id)))):
            fields = path.name.split(".")
            if path.name.startswith(TEMPORARY_PREFIX):
                self._say("temporary", path, node_id, "an upload that was broken off")
            elif len(fields) == 5 and fields[2].isdigit():
                fact = FileFact(int(fields[2]), fields[3], fields[4])
                self._compare(path, fact, node_id, "damaged_part", "damaged_part")

    def _compare(self, path: Path, fact: FileFact, node_id: str, damaged: Kind, missing: Kind) -> bool:
        try:
            size = path.stat().st_size
            if size != fact.size:
                kind: Kind = "wrong_size" if damaged == "damaged" else damaged
                self._say(kind, path, node_id, f"has {size} bytes, should have {fact.size}")
                return False
            sha256 = self._sha256(path)
        except FileNotFoundError:
            self._say(missing, path, node_id, f"the file is gone, {fact.size} bytes")
            return False
        except OSError as exc:
            self._say("unreadable", path, node_id, exc.strerror or str(exc))
            return False
        self.report.files += 1
        self.report.bytes += size
        if sha256 != fact.sha256:
            self._say(damaged, path, node_id, f"sha256 is {sha256}, should be {fact.sha256}")
        return sha256 == fact.sha256

    def _sha256(self, path: Path) -> str:
        with path.open("rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            key = (about.st_dev, about.st_ino)
            if key in self._known:
                return self._known[key]
            digest = hashlib.sha256()
            for data in _buffers(file.fileno()):
                digest.update(data)
        if about.st_nlink > 1:
            self._known[key] = digest.hexdigest()
        return digest.hexdigest()

    def _say(self, kind: Kind, path: Path | str, node: str, detail: str) -> None:
        shown = path if path == "-" else os.path.relpath(path, self._root)
        self.report.problems.append(Problem(kind, str(shown), node, detail))


def _buffers(descriptor: int) -> Iterator[bytes]:
    while data := os.read(descriptor, BUFFER_BYTES):
        yield data
