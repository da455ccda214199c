"""A large file for a node: its upload goes on where it was cut."""

from pathlib import Path

import anyio

from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.bodies import CountedBody, FileBody, Progress, Rest
from awe_client.sdk.download import known_of
from awe_client.sdk.replies import view
from awe_client.sdk.transport import Params, Transport
from shared_models.errors import AweError, Conflict, Unavailable
from shared_models.limits import MIB
from shared_models.views import NodeView, Unfinished

LARGE_BYTES = 8 * MIB  #: from here on an upload is worth more requests
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

    async def send(self) -> NodeView:
        """Send it, in as many tries as bring it forward. Raises AweError, OSError."""
        offset = tries = 0
        was_tried = False
        while True:
            tries += 1
            try:
                last, offset = offset, await self._unfinished() if was_tried else 0
                was_tried = True
                if offset > last:
                    tries = 1
                return await self._put(offset)
            except AweError as exc:
                has_gone = exc.code == Conflict.code and offset > 0
                if not (exc.retryable or has_gone) or tries >= TRIES:
                    raise
                asked_s = float(exc.fields.get("retry_after_s", 0.0))
            await anyio.sleep(jittered_delay_s(tries, base_s=0.2, cap_s=5.0, asked_s=asked_s))

    async def _unfinished(self) -> int:
        found = await self._transport.call("GET", self._path, params={"unfinished": True})
        return view(Unfinished, found).offset

    async def _put(self, offset: int) -> NodeView:
        def moved(done: int, total: int) -> None:
            if self._on_progress is not None:
                self._on_progress(max(done, offset), total)

        body: CountedBody = FileBody(self._source, on_progress=moved)
        if 0 < offset <= body.size:
            body = Rest(body, offset)
            await body.begin()
        else:
            offset = 0
        params: Params = {**self._params, "offset": offset}
        reply = await self._transport.call(
            "PUT", self._path, params=params, content=body, headers=body.headers
        )
        node = view(NodeView, reply)
        if node.file is None or known_of(node.file).md5 not in ("", body.md5):
            raise Unavailable(f"{self._source} arrived with other bytes than it has")
        return node
