"""Faults that a test server commits on request."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

ALWAYS = math.inf


class Cut(Exception):
    """The connection is to be closed here."""


@dataclass
class Fault:
    """One kind of fault, for the next `left` requests that match."""

    kind: str
    left: float
    method: str
    where: str
    at: int = 0
    status: int = 0
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def matches(self, kind: str, method: str, target: str) -> bool:
        """`where` is any piece of the path with its query."""
        return (
            self.kind == kind and self.left > 0 and method in self.method.split("|") and self.where in target
        )


class Faults:
    """What goes wrong next; each call arms one fault, for `times` requests (`ALWAYS`: for all).

    Methods are separated by `|`. A fault is used up by a request that matches, even if its body is too short
    to come to byte `at`.
    """

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self._lock = threading.Lock()
        self.held = threading.Event()  #: set while stalled requests have to wait
        self.stalled = 0  #: how many requests wait

    def fail(
        self,
        status: int = 503,
        times: float = 1,
        *,
        method: str = "GET|HEAD|PUT|POST|DELETE",
        where: str = "",
        text: str = "failed on purpose",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with this status instead."""
        self._arm(Fault("fail", times, method, where, status=status, text=text, headers=headers or {}))

    def cut(self, after: int, times: float = 1, *, method: str = "GET", where: str = "") -> None:
        """Close the connection after so many bytes of the body: of the reply, or of an upload."""
        self._arm(Fault("cut", times, method, where, at=after))

    def stall(self, after: int = 0, times: float = 1, *, method: str = "GET", where: str = "") -> None:
        """Stop after so many bytes of the body, until `release`; an upload is not even read."""
        self.held.set()
        self._arm(Fault("stall", times, method, where, at=after))

    def flip(self, at: int, times: float = 1, *, where: str = "") -> None:
        """Send one wrong byte; the length stays right."""
        self._arm(Fault("flip", times, "GET", where, at=at))

    def release(self) -> None:
        """Let stalled requests go on."""
        self.held.clear()

    def clear(self) -> None:
        """Be well again."""
        with self._lock:
            self._armed.clear()
        self.release()

    def take(self, kind: str, method: str, target: str) -> Fault | None:
        """For servers: use up one fault of this kind, if there is one for this request."""
        with self._lock:
            for fault in self._armed:
                if fault.matches(kind, method, target):
                    fault.left -= 1
                    return fault
        return None

    def _arm(self, fault: Fault) -> None:
        with self._lock:
            self._armed.append(fault)
