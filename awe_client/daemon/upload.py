"""One output on its way to the server: a try goes on where the one before was cut."""

from collections.abc import Callable

from awe_client.api import AsyncAweClient
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.progress import MeteredBody
from awe_client.sdk.bodies import CountedBody, Progress
from awe_client.sdk.resuming import Resumed
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
        self._upload = Resumed(self._unfinished, self._put, moved)

    async def __call__(self, server: AsyncAweClient) -> Stored:
        """Send what the server does not have. Raises AweError, OSError."""
        return await self._upload.attempt(server, self._body)

    async def _unfinished(self, server: AsyncAweClient, size: int) -> int:
        attempt = self._attempt
        return await server.unfinished_output(
            self._node, workunit_id=attempt.id, attempt=attempt.number, token=attempt.token, size=size
        )

    async def _put(self, server: AsyncAweClient, body: CountedBody, offset: int) -> Stored:
        attempt = self._attempt
        self._on_progress(offset, self._body.size)
        return await server.upload_output(
            self._node,
            MeteredBody(body, self._on_progress, offset),
            workunit_id=attempt.id,
            attempt=attempt.number,
            token=attempt.token,
            offset=offset,
        )
