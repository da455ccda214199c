"""A line to a server that breaks at a chosen moment: when somebody sends certain bytes."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Gate:
    """Use it in a with statement; it listens at `port` and passes everything on to `target`.

    Once `shuts_at` was asked for, that request and every connection are cut, and new ones are closed at once,
    until `open` is called; then everything passes.
    """

    def __init__(self, target: tuple[str, int], shuts_at: bytes) -> None:
        self._target, self._shuts_at = target, shuts_at
        self._line = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._line.getsockname()[1])
        self.is_shut = threading.Event()
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Let everything pass from now on."""
        self._shuts_at = b""
        self.is_shut.clear()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_shut.set()
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        self._cut()

    def _accept(self) -> None:
        """Until the line is closed; a server that is away for a while refuses single connections."""
        while True:
            try:
                near, _ = self._line.accept()
            except OSError:
                return
            far = None if self.is_shut.is_set() else self._reach()
            if far is None:
                near.close()
                continue
            with self._lock:
                self._ends |= {near, far}
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _reach(self) -> socket.socket | None:
        with contextlib.suppress(OSError):
            return socket.create_connection(self._target)
        return None

    def _pass(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        """One direction of a connection, until either end is gone."""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if watched and self._shuts_at and self._shuts_at in data:
                    self.is_shut.set()
                if self.is_shut.is_set():
                    self._cut()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._ends.discard(end)
            end.close()

    def _cut(self) -> None:
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
