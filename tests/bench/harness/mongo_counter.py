"""A proxy between a server and a MongoDB that counts messages and bytes, by command."""

import socket
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

_HEADER = struct.Struct(
    "<iiii"
)  #: of a message of the wire protocol: length, request id, response to, opcode
_OP_MSG = 2013


class MongoCounter:
    """Passes everything on; `requests` counts commands by name, `sent` and `received` their bytes."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._sockets: list[socket.socket] = []
        self._names: dict[int, str] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def reset(self) -> None:
        """Count from here."""
        for counter in (self.requests, self.sent, self.received):
            counter.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            for line in (near, far):
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        try:
            with source.makefile("rb") as file:
                while len(head := file.read(_HEADER.size)) == _HEADER.size:
                    length, number, answered, opcode = _HEADER.unpack(head)
                    message = head + file.read(length - _HEADER.size)
                    self._count(message, number, answered, opcode, asks)
                    target.sendall(message)
        except OSError:
            pass  # one of both ended the connection
        target.close()

    def _count(self, message: bytes, number: int, answered: int, opcode: int, asks: bool) -> None:
        if asks:
            name = command_name(message) if opcode == _OP_MSG else "hello"
            self._names[number] = name
            self.requests[name] += 1
            self.sent[name] += len(message)
        else:
            self.received[self._names.pop(answered, "?")] += len(message)


def command_name(message: bytes) -> str:
    """The name of the command of an OP_MSG: the first key of its body section."""
    at = _HEADER.size + 4
    while message[at] != 0:  # sections of documents may come before the body
        at += 1 + int.from_bytes(message[at + 1 : at + 5], "little")
    at += 1 + 4 + 1  # kind, length of the document, type of the first element
    return message[at : message.index(b"\0", at)].decode()
