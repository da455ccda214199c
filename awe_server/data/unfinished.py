"""Uploads that were cut, kept for a while with their bytes and hashes: they go on where they were cut.

A request feeds an upload. When its sender is gone, or nobody knows whether this server leads, the upload
stays without a request, for a bounded time and in bounded number; every other end of the request ends the
upload. The next request for the same upload takes over: one that still waits for a sender that was cut off,
which the server may not know yet, is ended first.
Nothing is remembered across a restart: the bytes are temporary files, and go.
"""

from collections.abc import AsyncIterable, Callable
from pathlib import Path

import anyio

from awe_server.data.blobs import Intake, Writer
from awe_server.data.ports import Cut, FileFact
from shared_models.errors import AweError, Conflict, Starting

MAX_KEPT = 256  #: uploads without a request; of more the oldest go, those of attempts last
KEEP_S = 600.0  #: for how long one is kept without a request
QUIET_S = 0.5  #: a request that is taken over is ended when no byte came for so long
MOST_ROUNDS = 20  #: or after so many times that, whatever comes

#: node, rank, attempt
Key = tuple[str, int, int]


class _Upload:
    """One upload. `scope` is that of the request that feeds it; None: it is kept for the next."""

    def __init__(self, writer: Writer, check: Callable[[], object] | None) -> None:
        self.intake = Intake(writer)
        self.scope: anyio.CancelScope | None = None
        self.left = anyio.Event()  #: by the request that feeds it
        self.kept_at = 0.0
        self._check = check

    def enter(self) -> anyio.CancelScope:
        """A request begins to feed it."""
        self.scope, self.left = anyio.CancelScope(), anyio.Event()
        return self.scope

    def leave(self) -> None:
        """The request has ended."""
        self.scope = None
        self.kept_at = anyio.current_time()
        self.left.set()

    async def evict(self) -> None:
        """End the request that feeds it, once what had arrived before the cut was read."""
        for _ in range(MOST_ROUNDS):
            seen = self.intake.received
            with anyio.move_on_after(QUIET_S):
                await self.left.wait()
                return
            if self.intake.received == seen:
                break
        await self.end()

    async def end(self) -> None:
        """End the request that feeds it now."""
        if self.scope is not None:
            self.scope.cancel()
            await self.left.wait()

    def is_wanted(self) -> bool:
        """Whether its bytes could still take their place, as far as that is known now."""
        try:
            if self._check is not None:
                self._check()
        except Starting:
            pass  # whether the attempt is still held shows later
        except AweError:
            return False
        return self.intake.received > 0

    async def settle(self) -> bool:
        """Write all that came before the cut; whether it is worth keeping."""
        try:
            await self.intake.flush()
        except (AweError, OSError):
            return False
        return self.is_wanted()


class Unfinished:
    """All uploads that may go on."""

    def __init__(self) -> None:
        self._uploads: dict[Key, _Upload] = {}

    async def offset(self, key: Key) -> int:
        """How many bytes of an upload are here, 0 if there is none; no request feeds it any more."""
        upload = await self._taken_over(key)
        if upload is None:
            return 0
        upload.kept_at = anyio.current_time()
        return upload.intake.received

    async def receive(
        self,
        key: Key,
        offset: int,
        stream: AsyncIterable[bytes],
        writer: Writer,
        place: Callable[[FileFact], Path],
        check: Callable[[], object] | None,
    ) -> FileFact:
        """Take in the rest of an upload from `offset` on; 0 begins anew, with `writer`.

        `place`, `check`: see `Writer.finish`. Raises Conflict for another offset than what is here, which
        stays as it is, and when another request takes over.
        """
        if offset:
            upload = await self._going_on(key, offset)
        else:
            await self.drop(key)
            upload = self._uploads[key] = _Upload(writer, check)
        is_kept = False
        try:
            with upload.enter():
                await upload.intake.feed(stream)
                return await upload.intake.finish(place, check)
            is_kept = True
            raise Conflict("another request has ended this upload")
        except (Cut, Starting):
            is_kept = True
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave(key, upload, is_kept=is_kept)

    async def drop(self, key: Key) -> None:
        """Forget an upload and its bytes."""
        while (upload := await self._taken_over(key)) is not None:
            await self._let_go(key, upload)

    async def drop_node(self, node_id: str) -> None:
        """Forget what came for a node, and take in no more."""
        for key in [key for key in self._uploads if key[0] == node_id]:
            while (upload := self._uploads.get(key)) is not None:
                await upload.end()
                await self._let_go(key, upload)

    async def sweep(self) -> int:
        """Forget what was kept for too long, or may not take its place any more; how many."""
        before = anyio.current_time() - KEEP_S
        gone = 0
        for key, upload in self._kept():
            if upload.kept_at <= before or not upload.is_wanted():
                await self._let_go(key, upload)
                gone += 1
        return gone

    async def close(self) -> None:
        """Forget all that is kept."""
        for key, upload in self._kept():
            await self._let_go(key, upload)

    def _kept(self) -> list[tuple[Key, _Upload]]:
        return [(key, upload) for key, upload in self._uploads.items() if upload.scope is None]

    async def _taken_over(self, key: Key) -> _Upload | None:
        """An upload that no request feeds; nothing comes between this and what its caller does next."""
        while (upload := self._uploads.get(key)) is not None and upload.scope is not None:
            await upload.evict()
        return upload

    async def _going_on(self, key: Key, offset: int) -> _Upload:
        upload = await self._taken_over(key)
        received = 0 if upload is None else upload.intake.received
        if upload is None or received != offset:
            raise Conflict(
                f"offset {offset}: of this upload {received} bytes are here; go on there, or begin anew"
            )
        return upload

    async def _leave(self, key: Key, upload: _Upload, *, is_kept: bool) -> None:
        try:
            is_kept = is_kept and await upload.settle()
            if not is_kept:
                await upload.intake.abort()
        finally:
            if not is_kept:
                del self._uploads[key]
            upload.leave()
        # Whoever has nodes may cut as many uploads as they like: those of attempts must not go for that.
        kept = sorted(self._kept(), key=lambda pair: (pair[0][2] > 0, pair[1].kept_at))
        for oldest in kept[: max(len(kept) - MAX_KEPT, 0)]:
            await self._let_go(*oldest)

    async def _let_go(self, key: Key, upload: _Upload) -> None:
        if self._uploads.get(key) is upload and upload.scope is None:
            del self._uploads[key]
            await upload.intake.abort()
