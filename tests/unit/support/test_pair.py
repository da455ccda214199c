"""What the servers and clients of a pair say is looked at, as that of a single server is."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support import pair as pair_module
from tests.support import tally
from tests.support.invariants import COLLECTIONS
from tests.support.pair import Pair


@pytest.mark.parametrize("log", ["a/server-1.err", "b/server-2.err", "client-1-log.err"])
def test_who_says_that_something_unexpected_went_wrong_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    monkeypatch.setattr(tally, "_counts", Counter())
    monkeypatch.setattr(pair_module, "read_mongo", lambda _: {name: [] for name in COLLECTIONS})

    def run() -> None:
        with Pair(tmp_path, "mongodb://nowhere/pair"):
            (tmp_path / log).write_text("Traceback (most recent call last):\n  KeyError: 'x'\n")

    with pytest.raises(AssertionError, match="KeyError: 'x'"):
        run()
