"""The documentation's picture of the states: docs/states.md is exactly `page()`, and a test says so.

To write it anew after a change of transitions.py:
`python -c "from awe_server.scheduler.diagrams import page; print(page(), end='')" > docs/states.md`
"""

from awe_server.scheduler.transitions import (
    CLIENT_MOVES,
    JOB_MOVES,
    TASK_MOVES,
    WORKUNIT_MOVES,
    diagram,
)

_INTRO = """# States

Drawn from the tables in `awe_server/scheduler/transitions.py`; a move that is not drawn here is refused
before anything changes. Diagrams write `_` where the wire has `-` (`in_progress` is `in-progress`).
"""

_SECTIONS = (
    (
        "Job",
        "`completed` ends only by recompute or resubmit, `deleted` never.",
        diagram(JOB_MOVES),
    ),
    (
        "Task",
        "A task that waits for others, or whose inputs are being looked at, is `pending`, also while its job"
        " is suspended.",
        diagram(TASK_MOVES),
    ),
    (
        "Workunit",
        "A lease exists exactly while a workunit is in `checkout`. Ranks that were never handed out are not"
        " stored; they are shown as `queued`, or `suspend` with their job. Recompute and resubmit do not move"
        " workunits: they remove them, and the next attempt of a rank has a higher number than any before. So"
        " has one whose result was lost before the outputs were made whole: it is done again after resume.",
        diagram(WORKUNIT_MOVES),
    ),
    (
        "Client",
        "Derived from what is known of the client: not heard of, suspended, holding work or not.",
        diagram(CLIENT_MOVES),
    ),
)


def page() -> str:
    """Write the whole page, Markdown with mermaid diagrams."""
    parts = [_INTRO]
    parts += [f"## {name}\n\n{words}\n\n```mermaid\n{drawing}\n```\n" for name, words, drawing in _SECTIONS]
    return "\n".join(parts)
