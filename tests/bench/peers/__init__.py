"""Other job servers, run side by side with ours: each from PyPI or Debian, in folders of its own."""

from collections.abc import Mapping
from typing import Protocol


class Peer(Protocol):
    """One of them."""

    def throughput(self, count: int) -> dict[str, float | str]:
        """Run /bin/true so often on two slots: `tasks_per_s`, what it used, and what it keeps."""
        ...

    def latency(self, count: int) -> dict[str, float | str]:
        """Run /bin/true so often, one after the other: `p50_ms`, `p99_ms`, from submit to known completed."""
        ...


def every_peer() -> Mapping[str, Peer]:
    """All of them by name."""
    return {}
