"""One output on its way to the server: a try goes on where the one before was cut."""

from collections.abc import Callable

from awe_client.api import AsyncAweClient
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.progress import MeteredBody
from awe_client.sdk.bodies import CountedBody, Progress, Rest
from shared_models.errors import Conflict
from shared_models.views import Stored


class Upload:
    """Call it until it succeeds. `moved` is called when a try finds that the ones before brought bytes."""

    def __init__(
        self,
        attempt: Attempt,
        node: str,
        body: CountedBody,
        on_progress: Progress,
        moved: Callable[[], object],
    ) -> None:
        self._attempt = attempt
        self._node = node
        self._body = body
        self._on_progress = on_progress
        self._moved = moved
        self._was_tried = False
        self._offset = 0  #: where the last try began

    async def __call__(self, server: AsyncAweClient) -> Stored:
        """Send what the server does not have. Raises AweError, OSError."""
        offset = await self._unfinished(server) if self._was_tried else 0
        self._was_tried = True
        if offset > self._offset:
            self._moved()
        self._offset = offset
        try:
            return await self._send(server, offset)
        except Conflict as exc:
            if exc.code != Conflict.code or not offset:
                raise
        # What was here has gone meanwhile.
        self._offset = 0
        return await self._send(server, 0)

    async def _unfinished(self, server: AsyncAweClient) -> int:
        attempt = self._attempt
        offset = await server.unfinished_output(
            self._node, workunit_id=attempt.id, attempt=attempt.number, token=attempt.token
        )
        return offset if offset <= self._body.size else 0

    async def _send(self, server: AsyncAweClient, offset: int) -> Stored:
        attempt, body = self._attempt, self._body
        self._on_progress(offset, self._body.size)
        if offset:
            body = Rest(body, offset)
            await body.begin()
        return await server.upload_output(
            self._node,
            MeteredBody(body, self._on_progress, offset),
            workunit_id=attempt.id,
            attempt=attempt.number,
            token=attempt.token,
            offset=offset,
        )
