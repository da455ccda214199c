"""The tables of legal moves, and what is drawn from them."""

import pytest

from awe_server.scheduler.transitions import (
    CLIENT_MOVES,
    JOB_MOVES,
    TASK_MOVES,
    WORKUNIT_MOVES,
    check_move,
    diagram,
)
from shared_models.errors import IllegalMove
from shared_models.states import ClientStatus, JobState, TaskState, WorkunitState

TABLES = [
    (JOB_MOVES, JobState),
    (TASK_MOVES, TaskState),
    (WORKUNIT_MOVES, WorkunitState),
    (CLIENT_MOVES, ClientStatus),
]


@pytest.mark.parametrize(("moves", "states"), TABLES)
def test_every_state_has_its_moves_and_every_move_a_reason(moves: dict, states: type) -> None:  # type: ignore[type-arg]
    assert set(moves) == set(states)
    assert all(words and source is not target for source in moves for target, words in moves[source].items())


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    check_move(JOB_MOVES, "job", "j", JobState.SUSPEND, JobState.QUEUED)
    with pytest.raises(IllegalMove) as refusal:
        check_move(JOB_MOVES, "job", "j", JobState.DELETED, JobState.QUEUED)
    assert refusal.value.message == "job j cannot go from 'deleted' to 'queued'."


def test_completed_workunits_stay_completed() -> None:
    assert WORKUNIT_MOVES[WorkunitState.COMPLETED] == {}


def test_a_diagram_has_one_arrow_per_move() -> None:
    lines = diagram(WORKUNIT_MOVES).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    queued --> checkout: checked out" in lines
    assert "    checkout --> failed_permanent: exit code 42" in lines
    assert len(lines) == 1 + sum(map(len, WORKUNIT_MOVES.values()))
