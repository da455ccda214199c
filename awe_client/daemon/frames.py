"""Frames between a daemon and its executors: 4 bytes of length, then a marshalled list of messages.

marshal: both ends are this program under one interpreter, and argv, environment and log tails are bytes,
which JSON cannot carry. It knows plain tuples only, so that is how a command and its end travel: they cost a
third of what dictionaries do. Standard library only: executors use it.
"""

import marshal
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

#: Cores and bytes of memory that a command occupies: one starts only in the place of another of its size.
Size = tuple[int, int]

_LENGTH = struct.Struct("!I")


class CommandSpec(NamedTuple):
    """Everything an executor needs to know to run one command. Names of logs are relative to `cwd`."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    make_dir: bool  #: the directory does not exist yet
    stdin: bytes | None
    stdout: bytes
    stderr: bytes
    time_limit_s: float
    grace_s: float
    tail_bytes: int
    tidy: bool  #: remove the directory after success, if it holds nothing but short logs
    cleanup: Sequence[bytes] = ()  #: a command that removes what outlives its processes
    memory_limit_bytes: int = 0  #: for all its processes together; 0 = none, or somebody else sees to it


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
