"""What is swept now and then, for as long as the server runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shared_models.errors import AweError

log = logging.getLogger(__name__)


async def sweep_every(every_s: float, once: Callable[[], Awaitable[object]]) -> None:
    """Sweep until cancelled; a sweep that fails is repeated at the next turn."""
    while True:
        try:
            await once()
        except (AweError, OSError) as exc:
            log.warning("sweep_failed", extra={"reason": str(exc)})
        await asyncio.sleep(every_s)
