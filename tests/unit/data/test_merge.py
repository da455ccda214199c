"""Joining parts."""

import hashlib
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data import merge as merge_module
from awe_server.data.blobs import Writer
from awe_server.data.merge import merge
from shared_models.errors import NoSpace


def _merged(folder: Path, parts: list[bytes], header_lines: int, floor: int = 0) -> bytes:
    paths = []
    for number, part in enumerate(parts):
        paths.append(folder / f"part{number}")
        paths[-1].write_bytes(part)
    target = folder / "out" / "merged"
    fact = merge(paths, header_lines, Writer(target.parent, floor), target)
    data = target.read_bytes()
    assert (fact.size, fact.md5) == (len(data), hashlib.md5(data).hexdigest())
    return data


@pytest.mark.parametrize(
    ("parts", "header_lines", "whole"),
    [
        ([b"a\n", b"b\n", b"c\n"], 0, b"a\nb\nc\n"),
        ([b"h\na\n", b"h\nb\n", b"h\nc"], 1, b"h\na\nb\nc"),
        ([b"h1\r\nh2\r\na\r\n", b"h1\r\nh2\r\nb\r\n"], 2, b"h1\r\nh2\r\na\r\nb\r\n"),
        ([b"h\na\n", b"h", b"", b"h\n", b"h\nb\n"], 1, b"h\na\nb\n"),
        ([b"h\n", b"h1\nh2\nb\n"], 2, b"h\nb\n"),
        ([b"", b""], 3, b""),
    ],
)
@pytest.mark.parametrize("buffer", [1, 2, 1 << 20])
def test_only_the_first_part_keeps_its_header(
    tmp_path: Path, parts: list[bytes], header_lines: int, whole: bytes, buffer: int
) -> None:
    with mock.patch.object(merge_module, "BUFFER_BYTES", buffer):
        assert _merged(tmp_path, parts, header_lines) == whole


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(NoSpace):
        _merged(tmp_path, [b"a", b"b"], 0, floor=1 << 60)
    assert list((tmp_path / "out").iterdir()) == []
