"""What every place for blobs promises: a file is whole or not there. Subclass it with a `blobs` fixture."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data import blobs as blobs_module
from awe_server.data.blobs import BUFFER_BYTES, BlobStore, Writer
from awe_server.data.files import clean_temporary
from shared_models.errors import NoSpace


async def _stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def _files(store: BlobStore) -> list[str]:
    return sorted(entry.name for entry in store.walk())


@pytest.mark.anyio
class BlobSuite:
    """The promises."""

    @pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 7])
    async def test_what_is_stored_is_what_was_sent(self, blobs: BlobStore, size: int) -> None:
        data = os.urandom(size)
        pieces = [data[at : at + 70_000] for at in range(0, size, 70_000)]
        name, fact = await blobs.add(_stream(*pieces), "n1")
        assert blobs.path(name).read_bytes() == data
        assert fact.size == size
        assert fact.md5 == hashlib.md5(data).hexdigest()
        assert fact.sha256 == hashlib.sha256(data).hexdigest()

    async def test_a_name_tells_its_owner_and_is_never_used_twice(self, blobs: BlobStore) -> None:
        names = {(await blobs.add(_stream(b"same"), "n1"))[0] for _ in range(5)}
        assert len(names) == 5
        assert all(name.rsplit("/", 1)[1].startswith("n1.") for name in names)

    async def test_a_stream_that_breaks_off_leaves_nothing(self, blobs: BlobStore) -> None:
        async def breaking() -> AsyncIterator[bytes]:
            yield b"x" * (2 * BUFFER_BYTES)
            raise ConnectionError("lost")

        with pytest.raises(ConnectionError):
            await blobs.add(breaking(), "n1")
        assert _files(blobs) == []

    async def test_a_cancelled_upload_leaves_nothing(self, blobs: BlobStore) -> None:
        written = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"x" * BUFFER_BYTES
            yield b"x" * BUFFER_BYTES
            written.set()
            await asyncio.Event().wait()

        upload = asyncio.create_task(blobs.add(endless(), "n1"))
        await written.wait()
        assert len(_files(blobs)) == 1
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert _files(blobs) == []

    async def test_a_file_appears_under_its_name_only_when_it_is_whole_and_on_disk(
        self, blobs: BlobStore
    ) -> None:
        name = blobs.new_name("n1")
        writer = blobs.writer(name)
        writer.write(b"half")
        assert not blobs.path(name).exists()
        steps: list[str] = []
        with (
            mock.patch.object(os, "fsync", side_effect=lambda _: steps.append("fsync")),
            mock.patch.object(os, "rename", side_effect=lambda *_: steps.append("rename")),
            mock.patch.object(blobs_module, "fsync_folder", side_effect=lambda _: steps.append("folder")),
        ):
            writer.finish(b"", lambda _: blobs.path(name))
        assert steps == ["fsync", "rename", "folder"]
        assert not blobs.path(name).exists()  # as the rename was only recorded

    async def test_uploads_at_once_do_not_mix(self, blobs: BlobStore) -> None:
        texts = [bytes([65 + number]) * (BUFFER_BYTES + number) for number in range(8)]
        stored = await asyncio.gather(*(blobs.add(_stream(text[:9], text[9:]), "n1") for text in texts))
        assert [blobs.path(name).read_bytes() for name, _ in stored] == texts

    async def test_only_temporary_files_of_dead_processes_are_cleaned(self, blobs: BlobStore) -> None:
        name, _ = await blobs.add(_stream(b"kept"), "n1")
        living = Writer(blobs.root / "aa", 0)
        living.write(b"still being written")
        dead = blobs.path(name).with_name(".tmp-dead")
        dead.write_bytes(b"half of somethi")
        assert clean_temporary(blobs.root) == 1
        assert not dead.exists()
        assert blobs.path(name).read_bytes() == b"kept"
        target = blobs.root / "aa" / "whole"
        living.finish(b"", lambda _: target)
        assert target.read_bytes() == b"still being written"

    async def test_the_free_space_floor_refuses_before_the_disk_is_full(self, blobs: BlobStore) -> None:
        blobs.floor_bytes = 1 << 60
        with pytest.raises(NoSpace):
            await blobs.add(_stream(b"x"), "n1")
        with pytest.raises(NoSpace):
            blobs.require(0)
        assert _files(blobs) == []

    async def test_a_linked_blob_outlives_its_source(self, blobs: BlobStore, tmp_path: Path) -> None:
        name, _ = await blobs.add(_stream(b"bytes"), "n1")
        copy = blobs.add_link(blobs.path(name), "n2")
        blobs.remove(name)
        assert blobs.path(copy).read_bytes() == b"bytes"

    async def test_removing_takes_the_indexes_along_and_may_be_repeated(self, blobs: BlobStore) -> None:
        name, _ = await blobs.add(_stream(b"bytes"), "n1")
        other, _ = await blobs.add(_stream(b"other"), "n1")
        for kind in ("line", "record"):
            blobs.path(f"{name}.{kind}.idx").write_bytes(b"")
        blobs.remove(name)
        blobs.remove(name)
        assert _files(blobs) == [other.rsplit("/", 1)[1]]

    async def test_memory_stays_flat(self, blobs: BlobStore) -> None:
        """No buffer handed to a thread is larger than a buffer and one chunk."""
        sizes: list[int] = []
        plain_write = Writer._write

        def recorded(writer: Writer, data: bytes) -> None:
            sizes.append(len(data))
            plain_write(writer, data)

        with mock.patch.object(Writer, "_write", recorded):
            _, fact = await blobs.add(_stream(*[b"x" * 65_536] * 200), "n1")
        assert fact.size == 200 * 65_536
        assert max(sizes) <= BUFFER_BYTES + 65_536
