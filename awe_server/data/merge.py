"""Join parts into one file in the order given, hashing on the way."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from awe_server.data.blobs import BUFFER_BYTES, Writer
from awe_server.data.ports import FileFact

#: Opens a part to be read, of which the path is given. Raises what it likes if that is not the part it was.
OpenPart = Callable[[Path], BinaryIO]


def open_own(path: Path) -> BinaryIO:
    """Open a part that lies where nobody but this server writes."""
    return path.open("rb")


def merge(
    parts: Sequence[Path], header_lines: int, writer: Writer, target: Path, open_part: OpenPart = open_own
) -> FileFact:
    """Write the parts one after the other to `target`, in the order given.

    The first `header_lines` lines of every part but the first are left out; a shorter part is left out.
    Raises NoSpace, and as `open_part`; then nothing is left behind. Blocking: for a worker thread.
    """
    try:
        held: list[bytes] = []
        size = 0
        for number, path in enumerate(parts):
            for data in _after_header(_buffers(path, open_part), header_lines if number else 0):
                held.append(data)
                size += len(data)
                if size >= BUFFER_BYTES:
                    writer.write(b"".join(held))
                    held, size = [], 0
        return writer.finish(b"".join(held), lambda _: target)
    except BaseException:
        writer.abort()
        raise


def _buffers(path: Path, open_part: OpenPart) -> Iterator[bytes]:
    with open_part(path) as file:
        while data := file.read(BUFFER_BYTES):
            yield data


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
