"""Who asks a shared file system, and goes before it has answered."""

import asyncio
import errno
import gc

import pytest

from awe_client.daemon.answers import Answers

pytestmark = pytest.mark.anyio


async def test_an_end_at_the_moment_at_which_nobody_waits_any_more_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers, ends = Answers(["/"]), asyncio.Event()

    async def fails() -> None:
        await ends.wait()
        raise OSError(errno.EIO, "that went wrong")

    waiting = asyncio.ensure_future(answers.of("/x", fails))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ends.set()
    await asyncio.sleep(0)  # now it has ended, and who waits has not heard
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.records == []
