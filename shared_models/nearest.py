"""The known name that somebody probably meant. Only for messages; both functions are bounded in time."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_MAX_WORD = 100  #: longer words get no suggestion
_MAX_KNOWN = 2_000  #: names looked at


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the known name most like a word, or None if none is like it."""
    return _closest(word, known, 0.6)


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Find a known name so like a word that the word is probably a slip; the name itself is no miss."""
    match = _closest(word, known, 0.8)
    return None if match == word else match


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `; did you mean 'x'?` to append to a message, or nothing."""
    match = nearest(word, known)
    return f"; did you mean '{match}'?" if match is not None else ""


def _closest(word: str, known: Iterable[str], cutoff: float) -> str | None:
    if len(word) > _MAX_WORD:
        return None
    by_folded = {name.casefold(): name for name in islice(known, _MAX_KNOWN) if len(name) <= _MAX_WORD}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None
