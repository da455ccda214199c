"""A figure of the benchmarks: runs in, JSON lines out, medians and goals at its end.

Each run gives rows: a case and its values. What is a ratio was taken inside one run, before it comes here.
"""

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.harness.machine import busy_share

Value = float | int | str
Row = Mapping[str, Value]  #: `case` names what was measured; numbers are its values
Measure = Callable[[argparse.Namespace, int], Iterable[Row]]  #: given the options and the number of the run

RUNS = 5


@dataclass(frozen=True)
class Goal:
    """What one value of one case should be, in the median of all runs."""

    text: str
    case: str
    value: str
    limit: float
    at_least: bool = False  #: else at most

    def judge(self, medians: Mapping[str, Mapping[str, float]]) -> "Verdict":
        measured = medians.get(self.case, {}).get(self.value)
        if measured is None:
            return Verdict(self.text, None, None)
        met = measured >= self.limit if self.at_least else measured <= self.limit
        return Verdict(self.text, measured, met)


@dataclass(frozen=True)
class Verdict:
    """A goal, the median that was measured (None = it was not), and whether that is enough."""

    goal: str
    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Figure:
    """What is measured, under the name of its module; number as in the list of goals, 0 = none."""

    name: str
    number: int
    title: str
    goals: Sequence[Goal] = ()

    def main(
        self,
        measure: Measure,
        arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
        argv: Sequence[str] | None = None,
    ) -> None:
        """The command of a figure: run, print each row as a JSON line, then medians and verdicts."""
        parser = argparse.ArgumentParser(prog=f"python -m tests.bench.{self.name}", description=self.title)
        arguments(parser)
        parser.add_argument("--runs", type=int, default=RUNS, help="medians are of so many runs")
        options = parser.parse_args(argv)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else servers and folders would stay
        rows: list[Row] = []
        for number in range(options.runs):
            busy = busy_share()
            for row in measure(options, number):
                rows.append(row)
                self.say(row, run=number + 1, busy_before=busy)
        found = medians(rows)
        for case, values in spread(rows).items():
            self.say({"case": case}, runs=options.runs, median_min_max=values)
        for goal in self.goals:
            verdict = goal.judge(found)
            self.say({"goal": verdict.goal}, measured=verdict.measured, met=verdict.met)

    def say(self, row: Row, **more: object) -> None:
        """One JSON line."""
        line = {"figure": self.number, "bench": self.name, **row, **more}
        print(json.dumps({key: _short(value) for key, value in line.items()}, ensure_ascii=False), flush=True)


def by_case(rows: Iterable[Row]) -> dict[str, dict[str, list[float]]]:
    """The numbers of all runs, by case and value."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        case = found.setdefault(str(row.get("case", "")), {})
        for key, value in row.items():
            if isinstance(value, int | float):
                case.setdefault(key, []).append(value)
    return found


def medians(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """The median of each value of each case."""
    return {
        case: {key: statistics.median(numbers) for key, numbers in values.items()}
        for case, values in by_case(rows).items()
    }


def spread(rows: Iterable[Row]) -> dict[str, dict[str, list[float]]]:
    """Median, least and most of each value of each case."""
    return {
        case: {
            key: [_rounded(each) for each in (statistics.median(numbers), min(numbers), max(numbers))]
            for key, numbers in values.items()
        }
        for case, values in by_case(rows).items()
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def ratio(ours: float, theirs: float) -> float:
    """How many times theirs ours is; what was not measured (0) has none and counts as 0."""
    return ours / theirs if theirs else 0.0


@dataclass
class Table:
    """Figure, goal, measured, met: one row for each goal, as Markdown or as text."""

    rows: list[tuple[int, str, float | None, bool | None]] = field(default_factory=list)

    def add(self, line: Mapping[str, object]) -> None:
        """Take a JSON line of a figure; what is no verdict is passed over."""
        if "goal" in line:
            measured, met, number = line.get("measured"), line.get("met"), line.get("figure")
            assert measured is None or isinstance(measured, int | float)
            assert met is None or isinstance(met, bool)
            assert isinstance(number, int)
            self.rows.append((number, str(line["goal"]), measured, met))

    def lines(self) -> Iterator[str]:
        yield "| # | goal | measured | met |"
        yield "|---|---|---|---|"
        for number, goal, measured, met in sorted(self.rows, key=lambda row: row[0]):
            shown = "not measured" if measured is None else f"{_rounded(measured):,g}"
            said = {None: "–", True: "yes", False: "no"}[met]
            yield f"| {number} | {goal} | {shown} | {said} |"


def _short(value: object) -> object:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    """Four digits are more than a measurement has."""
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))
