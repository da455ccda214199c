"""The named points of crash tests: which one kills, and at which time."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from awe_server.faults import reach
for line in sys.stdin:
    reach(line.strip())
    print("alive", flush=True)
"""


class Victim:
    """A process that reaches the points it is told."""

    def __init__(self, armed: str) -> None:
        env = {**os.environ, "AWE_FAULT_POINT": armed}
        argv = [sys.executable, "-c", SCRIPT]
        self._child = subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def survives(self, *points: str) -> list[bool]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        survived = []
        for point in points:
            self._child.stdin.write(point + "\n")
            self._child.stdin.flush()
            survived.append(self._child.stdout.readline() == "alive\n")
            if not survived[-1]:
                assert self._child.wait(10) == -9
                break
        return survived

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, *_: object) -> None:
        with self._child:
            self._child.kill()


def arm(file: Path, what: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(what)
    new.rename(file)


def test_nothing_happens_at_other_points_and_without_a_setting() -> None:
    with Victim("before-commit") as victim:
        assert victim.survives("after-commit", "commit", "2 before-commit", "before-commit") == [
            *[True] * 3,
            False,
        ]
    with Victim("") as victim:
        assert victim.survives("", "before-commit") == [True, True]


def test_a_count_is_of_the_times_since_the_point_was_armed(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    with Victim(f"@{fault}") as victim:
        assert all(victim.survives(*["before-commit"] * 3)), "nothing is armed"
        arm(fault, "3 before-commit")
        assert all(victim.survives("before-commit", "after-commit", "before-commit", "after-commit"))
        arm(fault, "3 before-commit")
        assert victim.survives(*["before-commit"] * 4) == [True, True, False]


def test_a_count_holds_also_for_a_point_that_is_armed_from_the_start() -> None:
    with Victim("2 after-merge") as victim:
        assert victim.survives("after-merge", "after-merge") == [True, False]
