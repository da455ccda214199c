"""How far SQLite's log of commits (`-wal`) is written; zeros follow, or frames of an earlier round."""

from pathlib import Path

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


def frame_bytes(wal: Path) -> int:
    """A page and what stands before it."""
    return FRAME_HEADER_BYTES + int.from_bytes(wal.read_bytes()[8:12], "big")


def used_bytes(wal: Path) -> int:
    """Where the last frame of this round ends."""
    data, frame = wal.read_bytes(), frame_bytes(wal)
    salt, end = data[16:24], HEADER_BYTES
    while data[end + 8 : end + 16] == salt and end + frame <= len(data):
        end += frame
    return end
