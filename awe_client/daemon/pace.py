"""The pace that a source elsewhere must keep: one that sends a byte a second holds a place for hours.

Counted is only the time for which the source is waited for. Our own server is exempt: it may be slow for good
reasons, and an attempt cannot do without it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from awe_client.sdk.download import Asked, Opener, Reply
from awe_client.sdk.download_errors import SourceBusy

MIN_RATE_BYTES_S = 4 * 1024  #: a modem is as fast
GRACE_S = 60.0  #: for so long at this rate, after one silence that is just short enough


class TooSlow(SourceBusy):
    """The source sends too slowly for its file ever to arrive."""

    code = "too_slow"


def min_bytes() -> int:
    """What must come in each window."""
    return int(MIN_RATE_BYTES_S * GRACE_S)


def paced(opener: Opener, silence_s: float) -> Opener:
    """A source that raises TooSlow when it does not keep the pace.

    `silence_s` is how long it may send nothing at all.
    """
    window_s = silence_s + GRACE_S

    @contextlib.asynccontextmanager
    async def open_once(asked: Asked) -> AsyncIterator[Reply]:
        async with contextlib.AsyncExitStack() as stack:
            # What is no file has a body, too, which is read while it is opened.
            async with _within(window_s, f"it did not answer within {window_s:g} s"):
                reply = await stack.enter_async_context(opener(asked))
            chunks = await stack.enter_async_context(contextlib.aclosing(_paced(reply.chunks, window_s)))
            yield replace(reply, chunks=chunks)

    return open_once


async def _paced(chunks: AsyncIterator[bytes], window_s: float) -> AsyncGenerator[bytes, None]:
    left_s, count, least = window_s, 0, min_bytes()
    while True:
        began_s = time.monotonic()
        async with _within(left_s, f"it is too slow: {count} bytes came in {window_s:g} s"):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        left_s -= time.monotonic() - began_s
        count += len(chunk)
        if count >= least:
            left_s, count = window_s, 0
        yield chunk


@contextlib.asynccontextmanager
async def _within(left_s: float, otherwise: str) -> AsyncIterator[None]:
    """Raise TooSlow if what is done takes longer."""
    try:
        async with asyncio.timeout(max(left_s, 0.0)) as limit:
            yield
    except TimeoutError as exc:
        if not limit.expired():
            raise
        raise TooSlow(otherwise) from exc
