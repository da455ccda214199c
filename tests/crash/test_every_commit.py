"""The same job again and again; the server is killed at the first, second, third … time that it reaches a
point, until the job is through before that: no moment of a job's life is left out.
"""

import itertools

import pytest

from tests.crash.survivor import Survivor
from tests.support.env import AweEnv
from tests.support.fake_client import Grant

CONTENT = b"".join(b"line %d\n" % number for number in range(9))
MOST = 40  #: commits of one job; far more than there are

#: Points that each commit reaches, and such that a job reaches once or twice.
COMMITS = ("before-commit", "inside-commit", "after-commit", "before-reply")
STAGES = ("before-cut", "after-merge", "before-finished")


def two_tasks(node: str) -> dict[str, object]:
    """Three parts of an uploaded file, joined again; then a task that reads the whole."""
    return {
        "info": {"name": "every commit"},
        "tasks": [
            {
                "taskid": "0",
                "cmd": {"name": "cat"},
                "inputs": [{"filename": "in.txt", "node": node}],
                "outputs": [{"filename": "joined.txt"}],
                "totalwork": 3,
                "partinfo": {"input": "in.txt", "index": "line"},
            },
            {
                "taskid": "1",
                "cmd": {"name": "wc"},
                "inputs": [{"filename": "joined.txt", "origin": "0"}],
                "outputs": [{"filename": "count.txt"}],
            },
        ],
    }


def made(grant: Grant) -> bytes:
    """What the commands would print."""
    if grant.rank == 0:
        return b"9 lines\n"
    [(offset, length)] = grant.pieces
    return CONTENT[offset : offset + length]


def live_through(survivor: Survivor, key: str) -> None:
    """From the upload to the output, over whatever deaths."""
    node = survivor.upload(CONTENT)
    job_id = survivor.submit(two_tasks(node), key)
    job = survivor.work_off(job_id, made)
    first, second = (task["outputs"][0]["node"] for task in job["tasks"])
    assert survivor.download(first) == CONTENT
    assert survivor.download(second) == b"9 lines\n"
    assert [task["remainwork"] for task in job["tasks"]] == [0, 0]
    assert [job["remaintasks"], job["state"]] == [0, "completed"]
    works = [f"{job_id}_0_1", f"{job_id}_0_2", f"{job_id}_0_3", f"{job_id}_1_0"]
    assert {work: survivor.answered.results[work] for work in works} == dict.fromkeys(works, 1)


def kill_each_time(env: AweEnv, point: str, first: int, step: int) -> int:
    """Run the job with a death at the first, first+step, … time, until it has none; how many there were."""
    with Survivor(env) as survivor:
        for number in itertools.count(first, step):
            assert number < MOST, "a job has no end of commits"
            before = survivor.deaths
            env.server.kill_at(f"{number} {point}")
            live_through(survivor, f"{point} {number}")
            if survivor.deaths == before:
                break
        survivor.check()
        return survivor.deaths


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize(
    ("store", "point"),
    [
        *(("sqlite", point) for point in COMMITS),
        *(("mongodb", point) for point in ("inside-commit", "before-reply")),
    ],
    indirect=["store"],
)
def test_a_death_at_any_commit_of_a_job_loses_nothing(env: AweEnv, point: str, first: int) -> None:
    """Every third in each of three tests, to share the time."""
    assert kill_each_time(env, point, first, 3) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("point", STAGES)
def test_a_death_at_any_stage_of_a_task_loses_nothing(env: AweEnv, point: str) -> None:
    assert kill_each_time(env, point, 1, 1) >= 2
