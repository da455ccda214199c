"""MD5 and SHA-256 of a stream, at once: MD5 costs more than all else that is done to it, and goes beside."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from awe_server.data.ports import Buffer
from awe_server.data.sockets import THREADS, yield_to_others

BESIDE_BYTES = 256 * 1024  #: less is hashed before another thread has begun

_threads = ThreadPoolExecutor(THREADS, "hash", yield_to_others)


class Hashes:
    """The hashes of what came so far."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()

    @contextmanager
    def taking(self, data: Buffer) -> Iterator[None]:
        """Take the next bytes while what is in the with statement is done; they may change afterwards."""
        beside = _threads.submit(self._md5.update, data) if len(data) >= BESIDE_BYTES else None
        try:
            yield
            self._sha256.update(data)
            if beside is None:
                self._md5.update(data)
        finally:
            if beside is not None:
                beside.result()

    @property
    def md5(self) -> str:
        """In hex."""
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """In hex."""
        return self._sha256.hexdigest()
