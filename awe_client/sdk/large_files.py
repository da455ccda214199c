"""A large file for a node: its upload goes on where it was cut."""

from pathlib import Path

import anyio

from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.bodies import CountedBody, FileBody, Progress
from awe_client.sdk.download import known_of
from awe_client.sdk.replies import view
from awe_client.sdk.resuming import LARGE_BYTES, LENGTH_HEADER, Resumed
from awe_client.sdk.transport import Params, Transport
from shared_models.errors import AweError, Unavailable
from shared_models.views import NodeView, Unfinished

TRIES = 6  #: in a row that brought nothing
#: How long an empty node stays, if whoever was to fill it is gone.
ABANDONED_AFTER = "1D"


async def is_large(source: Path | str) -> bool:
    """Whether a file is to be sent so. Raises OSError."""
    return (await anyio.Path(source).stat()).st_size >= LARGE_BYTES


class LargeFile:
    """A file on its way to the node at `path`; `params` go with it."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        source: Path | str,
        params: Params,
        on_progress: Progress | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._source = source
        self._params = params
        self._on_progress = on_progress
        self._tries = 0  #: in a row that brought nothing
        self._offset = 0  #: where the try that goes on begins

    async def send(self) -> NodeView:
        """Send it, in as many tries as bring it forward. Raises AweError, OSError."""
        upload = Resumed(LargeFile._unfinished, LargeFile._put, self._count_anew)
        body = FileBody(self._source, on_progress=self._tell)
        while True:
            self._tries += 1
            try:
                return self._checked(await upload.attempt(self, body), body.md5)
            except AweError as exc:
                if not exc.retryable or self._tries >= TRIES:
                    raise
                asked_s = float(exc.fields.get("retry_after_s", 0.0))
            await anyio.sleep(jittered_delay_s(self._tries, base_s=0.2, cap_s=5.0, asked_s=asked_s))
            if body.md5 and (node := await self._arrived(body.md5)) is not None:
                return node

    def _count_anew(self) -> None:
        self._tries = 1

    def _tell(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(max(done, self._offset), total)

    async def _arrived(self, md5: str) -> NodeView | None:
        """The node, if it has these bytes: all were sent, and only the answer, or its confirmation, was lost.

        How long it stays is said once more: that comes after the bytes.
        """
        stays = {key: self._params.get(key) for key in ("expiration", "remove_expiration")}
        try:
            node = view(NodeView, await self._transport.call("GET", self._path))
            if node.file is None or known_of(node.file).md5 != md5:
                return None
            return view(
                NodeView, await self._transport.call("PUT", self._path, params=stays, repeatable=True)
            )
        except AweError:
            return None  # then the next try says what is wrong

    def _checked(self, node: NodeView, md5: str) -> NodeView:
        if node.file is None or known_of(node.file).md5 not in ("", md5):
            raise Unavailable(f"{self._source} arrived with other bytes than it has")
        return node

    async def _unfinished(self, size: int) -> int:
        found = await self._transport.call(
            "GET", self._path, params={"unfinished": True}, headers={LENGTH_HEADER: str(size)}
        )
        self._offset = view(Unfinished, found).offset
        return self._offset

    async def _put(self, body: CountedBody, offset: int) -> NodeView:
        self._offset = offset
        params: Params = {**self._params, "offset": offset}
        reply = await self._transport.call(
            "PUT", self._path, params=params, content=body, headers=body.headers
        )
        return view(NodeView, reply)
