"""Which commands an executor has begun, in memory that it shares with the daemon. Standard library only.

If an executor is killed, it may have been by a command that it had just begun: who began must be known then,
and a message for each would cost more than its start. Commands begin in the order of their keys, those that
are started at once (RUN) and those that were lined up (NEXT) each for themselves. One that will not begin is
told before a later one does, so the last key of both is enough.
"""

import mmap
import os
import struct

RUN, NEXT = range(2)
_KEY = struct.Struct("=Q")
_BYTES = 2 * _KEY.size


class Begun:
    """The last key of each of the two orders that has begun, or was about to."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _BYTES)

    @staticmethod
    def new_file() -> int:
        """A descriptor of such memory, for both. Raises OSError."""
        fd = os.memfd_create("awe-begun", os.MFD_CLOEXEC)
        os.ftruncate(fd, _BYTES)
        return fd

    def note(self, order: int, key: int) -> None:
        """This one begins: to be called before it can do anything."""
        _KEY.pack_into(self._memory, order * _KEY.size, key)

    def last(self, order: int) -> int:
        """The last one that has begun, or was about to; 0 = none."""
        key: int = _KEY.unpack_from(self._memory, order * _KEY.size)[0]
        return key

    def has(self, order: int, key: int) -> bool:
        """Whether it may have begun."""
        return key <= self.last(order)
