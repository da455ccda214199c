"""Frames between a daemon and its executors: 4 bytes of length, then a marshalled list of messages.

marshal: both ends are this program under one interpreter, and argv, environment and log tails are bytes,
which JSON cannot carry. Standard library only: executors use it.
"""

import marshal
import struct
from typing import Any

#: Cores and bytes of memory that a command occupies: one starts only in the place of another of its size.
Size = tuple[int, int]

_LENGTH = struct.Struct("!I")


def frame_of(messages: list[tuple[Any, ...]]) -> bytes:
    """Pack messages into one frame."""
    body = marshal.dumps(messages)
    return _LENGTH.pack(len(body)) + body


def take_messages(incoming: bytearray) -> list[tuple[Any, ...]]:
    """Take the messages of all whole frames from the front of what has come in."""
    messages: list[tuple[Any, ...]] = []
    while len(incoming) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(incoming)[0]
        if len(incoming) < end:
            break
        messages += marshal.loads(incoming[_LENGTH.size : end])
        del incoming[:end]
    return messages
