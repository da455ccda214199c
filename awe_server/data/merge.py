"""Join parts into one file in the order given, hashing on the way."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from awe_server.data.blobs import BUFFER_BYTES, Writer
from awe_server.data.ports import FileFact


def merge(parts: Sequence[Path], header_lines: int, writer: Writer, target: Path) -> FileFact:
    """Write the parts one after the other to `target`, in the order given.

    The first `header_lines` lines of every part but the first are left out; a shorter part is left out.
    Raises NoSpace; then nothing is left behind. Blocking: for a worker thread.
    """
    try:
        held: list[bytes] = []
        size = 0
        for number, path in enumerate(parts):
            for data in _after_header(_buffers(path), header_lines if number else 0):
                held.append(data)
                size += len(data)
                if size >= BUFFER_BYTES:
                    writer.write(b"".join(held))
                    held, size = [], 0
        return writer.finish(b"".join(held), lambda _: target)
    except BaseException:
        writer.abort()
        raise


def _buffers(path: Path) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while data := os.read(descriptor, BUFFER_BYTES):
            yield data
    finally:
        os.close(descriptor)


def _after_header(buffers: Iterator[bytes], lines: int) -> Iterator[bytes]:
    for data in buffers:
        start = 0
        while lines:
            end = data.find(b"\n", start)
            if end < 0:
                break
            start = end + 1
            lines -= 1
        if not lines:
            yield data[start:] if start else data
