"""The line that breaks at a chosen moment: it outlives a server that is away for a while."""

import socket

from tests.support.gate import Gate
from tests.support.ports import HeldPort


def test_connections_pass_again_once_a_server_that_refused_some_is_back() -> None:
    with HeldPort() as port, Gate(("127.0.0.1", port.number), b"") as gate:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", gate.port), 30) as near:
                assert near.recv(1) == b"", "refused, as the server does"
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port.number))
            server.listen()
            with socket.create_connection(("127.0.0.1", gate.port), 30) as near:
                far, _ = server.accept()
                with far:
                    far.sendall(b"hello")
                    assert near.recv(5) == b"hello"
