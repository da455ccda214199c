"""Room for SQLite's WAL, written before it is needed.

A commit that makes a file longer is on disk only with the file system's journal, behind all that others
write to that disk: an upload, a log. One into bytes that were there before takes its own bytes to the disk
and no more, which is faster by a tenth to a third. SQLite uses the WAL from its beginning again after each
checkpoint, so this is done once.
"""

import contextlib
import os
from pathlib import Path

from shared_models.limits import MIB

FILLED_BYTES = 18 * MIB  #: all that comes between two checkpoints, mostly
FROM_BYTES = MIB  #: a server that has written less does without
STEP_BYTES = MIB // 4  #: of one commit: a quarter of a millisecond
_PIECE = bytes(8192)  #: of larger ones the kernel makes large pages, and counts all of one with each change


class WalRoom:
    """Makes the WAL longer, a piece at a time. Of the thread that writes."""

    def __init__(self, wal: Path) -> None:
        self._wal = os.open(wal, os.O_WRONLY | os.O_CLOEXEC)

    def write_some(self) -> None:
        """Append zeros, which SQLite takes for no frame: whatever follows its last one has a wrong checksum.

        Only inside a transaction that writes: nobody else can append meanwhile. They need not be durable.
        """
        size = os.fstat(self._wal).st_size
        if FROM_BYTES <= size < FILLED_BYTES:
            with contextlib.suppress(OSError):  # a full disk shows when something is to be kept
                for offset in range(size, size + STEP_BYTES, len(_PIECE)):
                    os.pwrite(self._wal, _PIECE, offset)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._wal)
