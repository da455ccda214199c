"""Legal moves of job, task, workunit and client, as tables.

The rules, the state diagrams of the documentation and the tests all read the same tables: a move that is not
here raises IllegalMove before anything changed. Each move carries the words that label its arrow.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from shared_models.errors import IllegalMove
from shared_models.states import ClientStatus as C
from shared_models.states import JobState as J
from shared_models.states import TaskState as T
from shared_models.states import WorkunitState as W

S = TypeVar("S", bound=StrEnum)

Moves = Mapping[S, Mapping[S, str]]

JOB_MOVES: Moves[J] = {
    J.INIT: {
        J.QUEUED: "a task is cut",
        J.IN_PROGRESS: "a workunit is checked out",
        J.COMPLETED: "every task is left out",
        J.SUSPEND: "inputs refused, or suspended by a person",
        J.DELETED: "deleted",
    },
    J.QUEUED: {
        J.IN_PROGRESS: "a workunit is checked out",
        J.COMPLETED: "the last task is done",
        J.SUSPEND: "inputs refused, or suspended by a person",
        J.DELETED: "deleted",
    },
    J.IN_PROGRESS: {
        J.COMPLETED: "the last task is done",
        J.SUSPEND: "a workunit failed too often, or suspended by a person",
        J.FAILED_PERMANENT: "exit code 42",
        J.DELETED: "deleted",
    },
    J.COMPLETED: {
        J.INIT: "recompute, resubmit",
        J.QUEUED: "recompute, resubmit",
        J.IN_PROGRESS: "recompute",
        J.DELETED: "deleted",
    },
    J.SUSPEND: {
        J.INIT: "resume, recompute, resubmit",
        J.QUEUED: "resume, recompute, resubmit",
        J.IN_PROGRESS: "resume, recompute",
        J.COMPLETED: "resume with nothing left to do",
        J.DELETED: "deleted",
    },
    J.FAILED_PERMANENT: {J.DELETED: "deleted"},
    J.DELETED: {},
}

TASK_MOVES: Moves[T] = {
    T.INIT: {T.PENDING: "taken over by the scheduler", T.SKIPPED: "left out on purpose"},
    T.PENDING: {
        T.QUEUED: "dependencies done, inputs looked at, cut",
        T.SUSPEND: "inputs refused, or job suspended",
        T.SKIPPED: "left out on purpose",
    },
    T.QUEUED: {
        T.IN_PROGRESS: "first checkout",
        T.PENDING: "recompute, resubmit",
        T.SUSPEND: "job suspended",
        T.FAILED_PERMANENT: "exit code 42 elsewhere in the job",
    },
    T.IN_PROGRESS: {
        T.COMPLETED: "all workunits done, outputs whole",
        T.PENDING: "recompute, resubmit",
        T.SUSPEND: "a workunit failed too often, outputs refused, or job suspended",
        T.FAILED_PERMANENT: "exit code 42",
    },
    T.COMPLETED: {T.PENDING: "recompute, resubmit"},
    T.SUSPEND: {
        T.PENDING: "resume before it was cut, recompute, resubmit",
        T.QUEUED: "resume, nothing was handed out yet",
        T.IN_PROGRESS: "resume, finished ranks kept",
    },
    T.FAILED_PERMANENT: {},
    T.SKIPPED: {T.PENDING: "recompute, resubmit"},
}

WORKUNIT_MOVES: Moves[W] = {
    W.QUEUED: {
        W.CHECKOUT: "checked out",
        W.SUSPEND: "job suspended",
        W.FAILED_PERMANENT: "exit code 42 elsewhere in the job",
    },
    W.CHECKOUT: {
        W.COMPLETED: "result accepted",
        W.QUEUED: "failed or lost below the limit, or given back",
        W.SUSPEND: "failed or lost too often, or job suspended",
        W.FAILED_PERMANENT: "exit code 42",
    },
    W.COMPLETED: {},
    W.SUSPEND: {W.QUEUED: "resume", W.FAILED_PERMANENT: "exit code 42 elsewhere in the job"},
    W.FAILED_PERMANENT: {},
}

CLIENT_MOVES: Moves[C] = {
    C.IDLE: {
        C.BUSY: "got a workunit",
        C.SUSPEND: "failed too often in a row, or suspended by a person",
        C.OFFLINE: "lease ran out, or it left",
    },
    C.BUSY: {
        C.IDLE: "last workunit settled",
        C.SUSPEND: "failed too often in a row, or suspended by a person",
        C.OFFLINE: "lease ran out or it left, work requeued",
    },
    C.SUSPEND: {
        C.IDLE: "resumed, or its blame was taken back",
        C.OFFLINE: "lease ran out, or it left",
    },
    C.OFFLINE: {C.IDLE: "heard of again", C.SUSPEND: "heard of again, still suspended"},
}


def check_move(moves: Moves[S], entity: str, id: str, source: S, target: S) -> None:
    """Refuse a move that is not in the table.

    Raises IllegalMove.
    """
    if target not in moves[source]:
        raise IllegalMove(entity=entity, id=id, source=source.value, target=target.value)


def diagram(moves: Moves[S]) -> str:
    """Draw a table as a mermaid state diagram (the documentation's diagrams are this function's output)."""
    lines = ["stateDiagram-v2"]
    lines += [
        f"    {_node(source)} --> {_node(target)}: {words}"
        for source, targets in moves.items()
        for target, words in targets.items()
    ]
    return "\n".join(lines)


def _node(state: StrEnum) -> str:
    return state.value.replace("-", "_")
