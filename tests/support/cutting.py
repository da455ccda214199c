"""A TCP proxy that cuts connections after so many bytes, whatever is spoken through it."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HEAD = 256  #: bytes that tell what a request asks for
#: Closing with this set sends a reset, and what is not read yet is lost.
_RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Stands before a server, as long as the with statement lasts.

    The next connections are cut, one for each number in `down`, after so many bytes of answers; those with a
    number in `up` after so many bytes of requests. Every second cut is a reset. `cuts` counts them, `sent`
    the bytes of requests. With `unnoticed` the server does not learn of cuts: its connections stay and are
    silent.
    """

    def __init__(
        self, url: str, *, down: Iterable[int] = (), up: Iterable[int] = (), unnoticed: bool = False
    ) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)
        self._lock = threading.Lock()
        self.down, self.up = list(down), list(up)
        self.cuts = self.sent = 0
        self._unnoticed = unnoticed
        self._asked: list[bytearray] = []  #: how the requests of each connection begin
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def count(self, request: str) -> int:
        """How many requests began with this text, such as `GET /node/`."""
        with self._lock:
            return sum(asked.count(request.encode()) for asked in self._asked)

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:  # the server is down at the moment
                near.close()
                continue
            asked = bytearray()
            with self._lock:
                self._asked.append(asked)
                down = self.down.pop(0) if self.down else None
                up = self.up.pop(0) if self.up else None
            for source, sink, limit, seen in ((far, near, down, None), (near, far, up, asked)):
                args = (source, sink, limit, seen, near)
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        limit: int | None,
        seen: bytearray | None,
        near: socket.socket,
    ) -> None:
        passed = 0
        ends: tuple[socket.socket, ...] = (source, sink)
        with contextlib.suppress(OSError):
            while data := source.recv(65536 if limit is None else min(65536, limit - passed)):
                if seen is not None:
                    with self._lock:
                        seen += data[:_HEAD]
                        self.sent += len(data)
                sink.sendall(data)
                passed += len(data)
                if limit is not None and passed >= limit:
                    with self._lock:
                        self.cuts += 1
                        if self.cuts % 2:
                            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    if self._unnoticed:
                        ends = (source,)
                    break
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
