"""The soak of `make soak` in small: a minute of random faults, verbs, kills and stalls; then all is there."""

from pathlib import Path

import pytest

from tests.soak.memory import MIB
from tests.soak.run import soak
from tests.soak.trouble import KILL, ODDS

#: More than a server of this size ever takes; whether it grows shows in half an hour only.
MAX_MEMORY_BYTES = 250 * MIB
#: With it the first two troubles are kills of the server and a stall of it: there is time for these at least.
SEED = 12
HAPPENED = {KILL, "stall server", *(f"fault {kind}" for kind in ODDS)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_everything_at_once_loses_and_doubles_nothing(tmp_path: Path) -> None:
    outcome = soak(tmp_path, seconds=60, clients=50, seed=SEED, max_growth=None)
    print(outcome)
    assert outcome.problems == ()
    assert {kind for kind in HAPPENED if not outcome.counts.get(kind)} == set()
    assert outcome.counts["results accepted of fake clients"] > 0
    assert outcome.memory.peak_bytes < MAX_MEMORY_BYTES
