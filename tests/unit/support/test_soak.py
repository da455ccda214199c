"""What a soak says of what it saw: a server that grows is told, and every problem shows."""

import pytest

from tests.soak.memory import MIB, growth
from tests.soak.run import Outcome


def test_growth_is_told_by_medians_of_the_first_and_the_last_tenth() -> None:
    samples = [100 * MIB] * 400
    samples[5], samples[-3] = 500 * MIB, 1 * MIB
    assert growth(samples).share == 0
    assert growth(samples).peak_bytes == 500 * MIB
    assert growth([MIB * (1000 + n) for n in range(500)]).share == pytest.approx(450 / 1025, abs=0.01)
    assert growth([MIB]).share == 0


def test_the_summary_names_figures_and_problems() -> None:
    memory = growth([100 * MIB] * 50 + [110 * MIB] * 50)
    counts = {"kill server": 3, "fault cut": 2, "sites checked": 1}
    lines = str(Outcome(7, 61.4, counts, memory, ("job x is gone",))).splitlines()
    assert lines[0] == "soak: 61 s, seed 7"
    assert {"      3 kills in all", "      0 lost", "      0 doubled"} <= set(lines)
    assert lines[-3:] == [
        "memory of the server: 100.0 MiB first, 110.0 MiB last, +10.0 %, peak 110.0 MiB",
        "soak: 1 problems",
        "job x is gone",
    ]
