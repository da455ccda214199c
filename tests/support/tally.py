"""What a run of the tests did to the system, by kind, and what the invariant checker found: the figures by
which "nothing is ever lost" is judged.

    tally.count("kill server, random moment")
    tally.count("fault drop reply")
    tally.totals()

Kinds begin with "kill" (a process, by SIGKILL), "stall" (SIGSTOP) or "fault" (of a proxy, a disk, a file);
anything else is only listed. May be called from several threads. Under pytest-xdist each worker gives its
counts to the controller (conftest.py), which prints them at the end.
"""

import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

CHECKED = "sites checked"  #: servers whose documents, events and answers went through the invariant checker
LOST = "lost"  #: acknowledged jobs, results and uploads that were not there
DOUBLED = "doubled"  #: workunits with more than one accepted result
LEAST_KILLS = 200  #: that a run of the whole suite makes
_FINDINGS = (CHECKED, LOST, DOUBLED)
_PLACES = (f"{LOST} in ", f"{DOUBLED} in ")

_counts: Counter[str] = Counter()
_lock = threading.Lock()


def count(kind: str, times: int = 1) -> None:
    """It happened, so many times."""
    with _lock:
        _counts[kind] += times


def count_broken(finding: str, facts: Sequence[str]) -> None:
    """So many promises of a kind (LOST, DOUBLED) were not kept; in which test, and the first of them."""
    count(finding, len(facts))
    if facts:
        test = os.environ.get("PYTEST_CURRENT_TEST", "no test").partition(" (")[0]
        count(f"{finding} in {test}: {facts[0]}", len(facts))


def places(counts: Mapping[str, int]) -> dict[str, int]:
    """Where promises were broken: what `count_broken` wrote down of tests."""
    return {kind: times for kind, times in sorted(counts.items()) if kind.startswith(_PLACES)}


def add(counts: Mapping[str, int]) -> None:
    """Take over what another process counted."""
    with _lock:
        _counts.update(counts)


def totals() -> dict[str, int]:
    """All that was counted so far in this process, by kind."""
    with _lock:
        return dict(_counts)


def broken(counts: Mapping[str, int]) -> int:
    """How many promises were not kept."""
    return counts.get(LOST, 0) + counts.get(DOUBLED, 0)


def kills(counts: Mapping[str, int]) -> int:
    """How many processes were killed, whatever the way."""
    return sum(times for kind, times in counts.items() if kind.startswith("kill "))


def summary(counts: Mapping[str, int], *, is_whole: bool = False) -> list[str]:
    """Lines for people: each kind, kills and faults in all, what the checker found, and where, if it looked.

    `is_whole`: it was the whole suite, which is to kill so and so many times.
    """
    apart = {*_FINDINGS, *places(counts)}
    kinds = sorted(kind for kind, times in counts.items() if times and kind not in apart)
    lines = [f"{counts[kind]:7,} {kind}" for kind in kinds]
    for word in ("kill", "fault"):
        if mine := [counts[kind] for kind in kinds if kind.startswith(f"{word} ")]:
            lines.append(f"{sum(mine):7,} {word}s in all")
    if is_whole and kills(counts) < LEAST_KILLS:
        lines.append(f"only {kills(counts)} kills: the whole suite is to make {LEAST_KILLS}")
    if counts.get(CHECKED):
        lines += [f"{counts.get(finding, 0):7,} {finding}" for finding in _FINDINGS]
    return lines + [f"{times:7,} {place}" for place, times in places(counts).items()]
