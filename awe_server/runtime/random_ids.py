"""Tokens and ids that nobody can guess, asked of the kernel many at a time: a call costs more than the bytes.

Not to be shared with a forked process, which would give out the same ones.
"""

import os

DRAWN = 256
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class Tokens:
    """Tokens of leases."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def __call__(self) -> str:
        """A new one, 128 bits as hexadecimal digits."""
        try:
            return self._drawn.pop()
        except IndexError:
            digits = os.urandom(DRAWN * 16).hex()
            first, *self._drawn = [digits[at : at + 32] for at in range(0, len(digits), 32)]
            return first


class Uuids:
    """Ids of jobs, clients and nodes."""

    def __init__(self) -> None:
        self._new = Tokens()

    def __call__(self) -> str:
        """A new uuid4 as text."""
        t = self._new()
        return f"{t[:8]}-{t[8:12]}-4{t[13:16]}-{_VARIANTS[t[16]]}{t[17:20]}-{t[20:]}"
