"""MD5 and SHA-256 of a stream, at once: MD5 costs more than all else that is done to it, and goes beside."""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor

from awe_server.data.ports import Buffer
from awe_server.data.sockets import THREADS, yield_to_others

BESIDE_BYTES = 256 * 1024  #: less is hashed before another thread has begun

_threads = ThreadPoolExecutor(THREADS, "hash", yield_to_others)


class Hashes:
    """The hashes of what came so far."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self._beside: Future[None] | None = None  #: MD5 of what came last

    def begin(self, data: Buffer) -> None:
        """Take the next bytes; they must not change before `settle`, or the next `begin`, has returned."""
        self.settle()
        if len(data) < BESIDE_BYTES:
            self._md5.update(data)
        else:
            self._beside = _threads.submit(self._md5.update, data)
        self._sha256.update(data)

    def settle(self) -> None:
        """Return when all that was taken is hashed."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.result()

    @property
    def md5(self) -> str:
        """In hex."""
        self.settle()
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """In hex."""
        return self._sha256.hexdigest()
