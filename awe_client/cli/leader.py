"""Which of several servers, a standby pair, a command talks to."""

from collections.abc import Sequence

import httpx

HEALTH_S = 2.0  #: how long each may take to say that it is ready


def leader_of(urls: Sequence[str]) -> str:
    """The first server that says it is ready; the very first if none does. One alone is not asked."""
    if len(urls) == 1:
        return urls[0]
    return next((url for url in urls if _is_ready(url)), urls[0])


def _is_ready(url: str) -> bool:
    try:
        # Nothing to verify without TLS, and reading the certificates takes time.
        reply = httpx.get(f"{url}/health", timeout=HEALTH_S, verify=url.lower().startswith("https:"))
    except httpx.HTTPError:
        return False
    return reply.status_code == httpx.codes.OK
