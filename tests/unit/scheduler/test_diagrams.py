"""The documentation's state diagrams are drawn from the tables."""

from pathlib import Path

from awe_server.scheduler.diagrams import page
from awe_server.scheduler.transitions import JOB_MOVES, TASK_MOVES, WORKUNIT_MOVES, diagram

STATES_MD = Path(__file__).parents[3] / "docs" / "states.md"


def test_the_states_page_is_up_to_date() -> None:
    assert STATES_MD.read_text() == page()


def test_every_move_of_every_table_is_drawn() -> None:
    text = page()
    for moves in (JOB_MOVES, TASK_MOVES, WORKUNIT_MOVES):
        for source, targets in moves.items():
            for target, words in targets.items():
                arrow = f"{source.replace('-', '_')} --> {target.replace('-', '_')}: {words}"
                assert arrow in text


def test_a_diagram_is_a_mermaid_state_diagram() -> None:
    assert diagram(JOB_MOVES).splitlines()[0] == "stateDiagram-v2"
