"""Check how the tasks of a submitted job hang together, before anything of it exists."""

from collections import Counter

from shared_models.documents import IO, JobDocument, TaskDocument
from shared_models.nearest import did_you_mean
from shared_models.problems import Problems

MAX_CYCLE_SHOWN = 12  #: names of a cycle in a message


def check_graph(document: JobDocument) -> list[list[str]]:
    """The names each task depends on (`dependsOn` and the origins of its files), by position.

    Raises InvalidDocument with up to 20 problems: repeated names, unknown or own dependencies, origins that
    do not make the file, tasks that cannot be left out, cycles (named).
    """
    problems = Problems()
    by_name = {task.taskid: task for task in document.tasks}
    if len(by_name) < len(document.tasks):
        _repeated(document.tasks, problems)
    makes: dict[str, dict[str, IO]] = {}
    wanted: list[list[str]] = []
    for i, task in enumerate(document.tasks):
        path = f"tasks[{i}]"
        names = dict.fromkeys(_declared(task, path, by_name, problems))
        names.update(dict.fromkeys(_origins(task, path, by_name, makes, problems)))
        wanted.append(list(names))
        if task.skip:
            _check_skip(task, path, problems)
    problems.raise_if_any()
    if any(wanted) and (
        cycle := find_cycle({task.taskid: names for task, names in zip(document.tasks, wanted, strict=True)})
    ):
        problems.add("tasks", f"dependency cycle: {_shown(cycle)}")
        problems.refuse()
    return wanted


def find_cycle(wanted: dict[str, list[str]]) -> list[str]:
    """A cycle as the names along it, first name again at the end; [] if there is none. No recursion."""
    waiting = {name: len(names) for name, names in wanted.items()}
    dependants: dict[str, list[str]] = {name: [] for name in wanted}
    for name, names in wanted.items():
        for other in names:
            dependants[other].append(name)
    ready = [name for name, count in waiting.items() if count == 0]
    while ready:
        name = ready.pop()
        del waiting[name]
        for dependant in dependants[name]:
            waiting[dependant] -= 1
            if waiting[dependant] == 0:
                ready.append(dependant)
    if not waiting:
        return []
    name = next(iter(waiting))
    seen: dict[str, int] = {}
    walk: list[str] = []
    while name not in seen:
        seen[name] = len(walk)
        walk.append(name)
        name = next(other for other in wanted[name] if other in waiting)
    return [*walk[seen[name] :], name]


def _repeated(tasks: list[TaskDocument], problems: Problems) -> None:
    counts = Counter(task.taskid for task in tasks)
    first: dict[str, int] = {}
    for i, task in enumerate(tasks):
        name = task.taskid
        if counts[name] > 1 and first.setdefault(name, i) != i:
            problems.add(f"tasks[{i}].taskid", f"'{name}' is the name of tasks[{first[name]}] already")


def _declared(
    task: TaskDocument, path: str, by_name: dict[str, TaskDocument], problems: Problems
) -> list[str]:
    good = []
    for k, name in enumerate(task.dependsOn):
        if _is_known(name, task, f"{path}.dependsOn[{k}]", by_name, problems):
            good.append(name)
    return good


def _origins(
    task: TaskDocument,
    path: str,
    by_name: dict[str, TaskDocument],
    makes: dict[str, dict[str, IO]],
    problems: Problems,
) -> list[str]:
    """`makes` gathers what each producer that was asked about makes: many inputs ask about the same one."""
    good = []
    parents = {io.formoptions.get("parent_name") for io in task.outputs if io.formoptions}
    files = [(f"{path}.inputs[{k}]", io) for k, io in enumerate(task.inputs)]
    files += [(f"{path}.outputs[{k}]", io) for k, io in enumerate(task.outputs) if io.origin]
    for where, io in files:
        if not io.origin or not _is_known(io.origin, task, f"{where}.origin", by_name, problems):
            continue
        made = makes.get(io.origin)
        if made is None:
            made = makes[io.origin] = {o.filename: o for o in by_name[io.origin].outputs}
        if io.filename not in made:
            what = f"makes {', '.join(list(made)[:5])}" if made else "makes no files"
            hint = did_you_mean(io.filename, made)
            problems.add(where, f"task '{io.origin}' does not make '{io.filename}', it {what}{hint}")
        else:
            _check_use(io, made[io.filename], io.filename in parents, where, problems)
        good.append(io.origin)
    return good


def _check_use(io: IO, made: IO, is_parent: bool, where: str, problems: Problems) -> None:
    """What is done with nodes of this server needs an origin whose output is one."""
    if io.attrfile and made.url:
        problems.add(
            f"{where}.attrfile", f"task '{io.origin}' stores the file at a URL, which has no attributes"
        )
    if (io.type == "update" or is_parent) and (made.host or made.url):
        what = "updated" if io.type == "update" else "a parent"
        goes = f"task '{io.origin}' stores the file at {(made.host or made.url)[:200]}"
        problems.add(f"{where}.origin", f"{goes}; only a node of this server can be {what}")


def _is_known(
    name: str, task: TaskDocument, path: str, by_name: dict[str, TaskDocument], problems: Problems
) -> bool:
    if name == task.taskid:
        problems.add(path, f"task '{name}' depends on itself")
        return False
    if name not in by_name:
        problems.add(path, f"there is no task '{name}'{did_you_mean(name, by_name)}")
        return False
    return True


def _check_skip(task: TaskDocument, path: str, problems: Problems) -> None:
    """Source: AWE lib/core/task.go Skippable (exactly one input and one output)."""
    if len(task.inputs) != 1 or len(task.outputs) != 1:
        problems.add(f"{path}.skip", "only a task with exactly one input and one output can be left out")


def _shown(cycle: list[str]) -> str:
    if len(cycle) <= MAX_CYCLE_SHOWN:
        return " -> ".join(cycle)
    shown = [*cycle[: MAX_CYCLE_SHOWN - 2], f"({len(cycle) - MAX_CYCLE_SHOWN} more)", *cycle[-2:]]
    return " -> ".join(shown)
