"""On whose account a failure stands: the client's, the workunit's, or its task's.

A client that fails `max_client_failure` workunits in a row is broken, unless the work is. So a failure is not
the client's, and what stood on accounts for it is taken back, when

* a second client repeats it: the workunit is bad;
* another client failed workunits of the same task too, and none of them ever succeeded: the task is bad (a
  wrong command fails everywhere, and each of its workunits only once on each client);
* the task never succeeded and nobody else could run it: suspending the client would end the job in silence.
  The job goes on to its own threshold instead, which says what is wrong.

An input that a client may not read or does not see is on nobody's account: the client is fine for other work,
and nobody may have access at all. The workunit is offered to others first. So it is with an attempt that
filled the client's disk, which has room again without it. An input that failed by itself (kind `input`) may
still be one client's broken way to one host: it counts for the workunit alone, and others are asked first,
for as long as the longest retry delay lasts; then whoever is there may try again.

With its first success a task is proven good, and only the first rule is left. Costs a report at most the
client's own account, and a look for other clients once an account is full or a job gives up.
"""

from typing import Literal

from awe_server.scheduler.demands import demand_of, unfit
from awe_server.scheduler.state import Client, State, Task, Workunit
from shared_models.ids import ClientId, task_of
from shared_models.limits import MAX_SKIP_LIST
from shared_models.states import FailureKind, WorkunitState

CLIENT_LIMIT_REASON = "MAX_CLIENT_FAILURE on client reached"  #: AWE's words

#: Failures of the command itself, as opposed to those of its surroundings.
OWN = frozenset(
    {FailureKind.COMMAND, FailureKind.SIGNAL, FailureKind.TIMEOUT, FailureKind.OOM, FailureKind.OUTPUT}
)


def blame(
    state: State, unit: Workunit, client: Client, kind: FailureKind, *, is_innocent: bool = False
) -> str:
    """Put a failure on the client's account, or take it off another's that it proves innocent.

    `is_innocent`: of kind `node`, because of an input, of what it wrote, or while its command ran. Returns
    why the client is to be put aside; "" if it is not. The caller has touched workunit and task.
    """
    if kind is not FailureKind.INPUT and kind is not FailureKind.NODE and kind not in OWN:
        return ""
    skip_workunit(client, unit)
    state.touch_client(client)
    if kind is FailureKind.INPUT:
        return ""
    client.total_failed += 1
    if kind is FailureKind.NODE and is_innocent:
        return ""
    tasks_own = kind in OWN and _is_the_tasks(state, unit.task, client)
    side: Literal["node", "work"] = "node" if kind is FailureKind.NODE else "work"
    first = unit.blamed.get(side)
    if first is not None and first != client.id:
        unit.blamed = {**unit.blamed, side: ""}
        innocent = state.clients.get(ClientId(first))
        if innocent is not None and unit.id in innocent.blamed:
            del innocent.blamed[unit.id]
            _let_back(state, innocent)
        return ""
    unit.blamed = {**unit.blamed, side: client.id}
    if tasks_own:
        return ""
    client.blamed[unit.id] = None
    return _reached(state, unit, client)


def skip_workunit(client: Client, unit: Workunit) -> None:
    """Put the workunit on the client's skip list; the oldest entry makes room."""
    client.skip.pop(unit.id, None)
    client.skip[unit.id] = None
    if len(client.skip) > MAX_SKIP_LIST:
        del client.skip[next(iter(client.skip))]


def _is_the_tasks(state: State, task: Task, client: Client) -> bool:
    """Whether the command fails everywhere: it failed on another client too and never succeeded."""
    if task.done:
        return False
    first = task.blamed
    if first is None:
        task.blamed = client.id
        return False
    if first and first != client.id:
        _clear(state, task)
    return task.blamed == ""


def _reached(state: State, unit: Workunit, client: Client) -> str:
    """Whether the client is broken, once its account is full; the account of a bad task is cleared."""
    task = unit.task
    full = len(client.blamed) >= state.rules.max_client_failure
    if full:
        may_be_tasks = all(task_of(id) == task.id for id in client.blamed)
    else:
        may_be_tasks = unit.state is WorkunitState.SUSPEND
    if may_be_tasks and task.blamed == client.id and not task.done and _is_only_choice(state, task, client):
        _clear(state, task)
        full = len(client.blamed) >= state.rules.max_client_failure
    if not full or client.suspended:
        return ""
    return f"{CLIENT_LIMIT_REASON}: {len(client.blamed)} workunits in a row failed on it"


def _clear(state: State, task: Task) -> None:
    """The task is bad: take it off the account of the one client that it was put on."""
    client = state.clients.get(ClientId(task.blamed or ""))
    task.blamed = ""
    if client is None:
        return
    mine = [id for id in client.blamed if task_of(id) == task.id]
    units = ((id, state.workunits.get(id)) for id in mine)
    innocent = [id for id, unit in units if unit is None or unit.blamed.get("node") != client.id]
    for id in innocent:
        del client.blamed[id]
    if innocent:
        _let_back(state, client)


def _let_back(state: State, client: Client) -> None:
    """Blame was taken back: a client that is suspended for no more than that works again."""
    state.touch_client(client)
    enough = len(client.blamed) >= state.rules.max_client_failure
    if enough or not (client.suspended and client.suspend_reason.startswith(CLIENT_LIMIT_REASON)):
        return
    client.suspended = False
    client.suspend_reason = ""
    state.tell(client)
    state.record("CO", clientid=client.id, name=client.name, reason="its blame was taken back")


def _is_only_choice(state: State, task: Task, client: Client) -> bool:
    demand = demand_of(state, task)
    return not any(
        other is not client and other.is_live and unfit(demand, other) is None
        for other in state.clients.values()
    )
