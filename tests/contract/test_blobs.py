"""The blob promises on the file systems at hand."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from awe_server.data.blobs import BlobStore
from tests.contract.blob_suite import BlobSuite


class TestBlobsOnDisk(BlobSuite):
    """Where temporary files go."""

    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return BlobStore(tmp_path / "blobs", 0)


class TestBlobsInMemory(BlobSuite):
    """A file system of another kind."""

    @pytest.fixture
    def blobs(self) -> Iterator[BlobStore]:
        if not os.access("/dev/shm", os.W_OK):
            pytest.skip("no /dev/shm here")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            yield BlobStore(Path(folder) / "blobs", 0)
