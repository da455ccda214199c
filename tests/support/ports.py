"""A port that stays ours between two starts of a server, whatever else runs on this machine."""

import socket
from types import TracebackType
from typing import Self


class HeldPort:
    """A free loopback port, held by a socket that is bound and never listens.

    A server that names the port gets it beside the socket (both set SO_REUSEADDR); whoever asks for any free
    port, to listen or to connect from, does not. While no server listens, connections are refused.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the port up."""
        self._socket.close()
