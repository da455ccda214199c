"""Uploads that go on where they were cut: what the tries of one upload know of each other."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from awe_client.sdk.bodies import CountedBody, Rest
from shared_models.errors import Conflict
from shared_models.limits import MIB

LARGE_BYTES = 8 * MIB  #: from here on an upload is worth more requests
#: Says how large the upload will be of which is asked how far it came.
LENGTH_HEADER = "Awe-Upload-Length"

S = TypeVar("S")
T = TypeVar("T")


class Resumed(Generic[S, T]):
    """One upload: `attempt` it until it succeeds.

    `ask` is given the size of the whole, says how many bytes are there of what was cut, and raises what the
    upload would be refused with, `put` sends a body that begins at an offset; each is
    given the server of this try. `moved` is called when a try finds that the ones before brought bytes.
    """

    def __init__(
        self,
        ask: Callable[[S, int], Awaitable[int]],
        put: Callable[[S, CountedBody, int], Awaitable[T]],
        moved: Callable[[], object],
    ) -> None:
        self._ask = ask
        self._put = put
        self._moved = moved
        self._was_tried = False
        self._offset = 0  #: where the last try began

    async def attempt(self, server: S, body: CountedBody) -> T:
        """Send what the server does not have. Raises AweError, OSError."""
        # A refusal that comes while a body is sent may be lost with the connection.
        is_asked = self._was_tried or body.size >= LARGE_BYTES
        there = await self._ask(server, body.size) if is_asked else 0
        offset = there if self._was_tried else 0  # whatever is there of others may have other bytes
        if offset > body.size:  # of another file
            offset = 0
        self._was_tried = True
        if offset > self._offset:
            self._moved()
        self._offset = offset
        try:
            return await self._send(server, body, offset)
        except Conflict as exc:
            if exc.code != Conflict.code or not offset:
                raise
        # What was here has gone meanwhile.
        self._offset = 0
        return await self._send(server, body, 0)

    async def _send(self, server: S, body: CountedBody, offset: int) -> T:
        if not offset:
            return await self._put(server, body, 0)
        rest = Rest(body, offset)
        await rest.begin()
        return await self._put(server, rest, offset)
