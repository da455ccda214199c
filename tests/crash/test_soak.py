"""The soak of `make soak` in small: a minute of random faults, verbs, kills and stalls; then all is there."""

from pathlib import Path

import pytest

from tests.soak.memory import MIB
from tests.soak.run import soak

#: More than a server of this size ever takes; whether it grows shows in half an hour only.
MAX_MEMORY_BYTES = 250 * MIB


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_everything_at_once_loses_and_doubles_nothing(tmp_path: Path) -> None:
    outcome = soak(tmp_path, seconds=60, clients=50, seed=1, max_growth=None)
    print(outcome)
    assert outcome.problems == ()
    assert outcome.counts["results accepted of fake clients"] > 0
    assert outcome.memory.peak_bytes < MAX_MEMORY_BYTES
