"""HTTP clients of a test. All are closed when it ends, whatever comes of it: one failure stays one failure.

A line that is left open would be told of by whichever test runs when it is collected, as a failure of that.
"""

from collections.abc import Mapping
from typing import Any

import httpx

_open: list[httpx.Client] = []


def line(url: str, hooks: Mapping[str, list[Any]], timeout_s: float) -> httpx.Client:
    """One to a server; whoever is done with it may close it before."""
    opened = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False, event_hooks=hooks)
    _open.append(opened)
    return opened


def close_lines() -> None:
    """Close every line there is; fixtures of the test have ended."""
    while _open:
        _open.pop().close()
