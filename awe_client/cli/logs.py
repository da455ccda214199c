"""`awe logs`: what the commands of a job wrote."""

import sys
from collections.abc import Sequence
from typing import Annotated, TextIO, TypeVar

import typer

from awe_client.api import AweClient
from awe_client.cli.lookup import work_or_job_id_of
from awe_client.cli.options import DEFAULT_SERVER, JobOrWorkArgument, Json, Server
from awe_client.cli.output import note, notes_of, print_json, print_json_line, print_line
from awe_client.sdk.work import LogName
from shared_models.errors import BadRequest
from shared_models.faces import TaskReport
from shared_models.states import WorkunitState
from shared_models.views import TaskView, WorkunitView

#: A longer standard output that is one of the task's outputs is a result and no log: it is named instead.
MAX_RESULT_BYTES = 4096

TaskLike = TypeVar("TaskLike", TaskView, TaskReport)


def logs(
    what: JobOrWorkArgument,
    task: Annotated[str, typer.Option(help="Only this task of the job.")] = "",
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as more is written (one workunit, one stream).")
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Print the logs of a job or of one workunit.

    The standard output and standard error of one workunit go to those of this command. A long standard
    output that is an output of the task is only named, unless --stdout asks for it. Where one is empty,
    the workunit's notes are shown: they say why it failed, and which log the server could not keep.

    --follow follows standard output unless --stderr is given; with --json it prints a line of JSON for each
    piece.
    """
    if follow and stdout and stderr:
        raise BadRequest("--follow follows one stream: give --stdout or --stderr")
    streams: tuple[tuple[LogName, bool], ...] = (("stdout", stdout), ("stderr", stderr))
    names = [name for name, only in streams if only or stdout == stderr]
    with AweClient(server) as awe:
        id, is_work = work_or_job_id_of(awe, what)
        if is_work and task:
            raise BadRequest(f"--task chooses from a job, and {what} is a workunit")
        if follow:
            _follow(awe, id if is_work else _only_workunit(awe, id, task), names[0], as_json)
        elif is_work:
            _one(awe, id, names, as_json)
        else:
            _job(awe, id, task, names, as_json)


def _follow(awe: AweClient, workunit_id: str, name: LogName, as_json: bool) -> None:
    def begun(attempt: int) -> None:
        note(f"--- {workunit_id} attempt {attempt}")

    # A server that goes away is waited for; one that is not there to begin with is not.
    awe.get_work(workunit_id)
    silent = True
    for chunk in awe.follow_log(workunit_id, name, on_attempt=begun):
        silent = False
        if as_json:
            print_json_line({"wuid": workunit_id, "stream": name, "text": chunk.decode(errors="replace")})
        else:
            _write(sys.stdout, chunk)
    if silent:
        _say_notes(awe, workunit_id)


def _only_workunit(awe: AweClient, job_id: str, task: str) -> str:
    """The workunit of a job that has only one. Raises BadRequest for others."""
    tasks = _wanted(awe.get_job(job_id).tasks, job_id, task)
    count = sum(entry.totalwork for entry in tasks)
    if count != 1:
        first = f"{tasks[0].id}_{int(tasks[0].totalwork > 1)}"
        raise BadRequest(f"--follow follows one workunit and there are {count}: name one, such as {first}")
    return f"{tasks[0].id}_0"


def _one(awe: AweClient, workunit_id: str, names: Sequence[LogName], as_json: bool) -> None:
    """Both streams each to its own; a single one to standard output."""
    skipped = () if as_json or len(names) == 1 else _result_of(awe.get_work(workunit_id))
    if skipped:
        _say_result(workunit_id, *skipped)
        names = ["stderr"]
    logs = {name: awe.read_log(workunit_id, name) for name in names}
    if as_json:
        texts = {name: log.decode(errors="replace") for name, log in logs.items()}
        print_json({"wuid": workunit_id, "logs": texts})
    else:
        for name, log in logs.items():
            _write(sys.stdout if name == names[0] and not skipped else sys.stderr, log)
    if not all(logs.values()):
        _say_notes(awe, workunit_id)


def _result_of(work: WorkunitView | TaskView) -> tuple[str, int] | tuple[()]:
    """The output that its long standard output goes to, and how many bytes that has so far."""
    for file in work.outputs:
        if file.filename == work.cmd.stdout and file.size > MAX_RESULT_BYTES:
            return file.filename, file.size
    return ()


def _say_result(id: str, output: str, size_bytes: int) -> None:
    note(f"--- {id} stdout went to output {output} ({size_bytes} bytes); --stdout prints it")


def _say_notes(awe: AweClient, workunit_id: str) -> None:
    """Why a log may be empty; the notes of work that runs are those of the attempt before."""
    work = awe.get_work(workunit_id)
    notes = notes_of(work.notes)
    if notes and work.state != WorkunitState.CHECKOUT:
        note(f"--- {workunit_id}: {notes}")


def _job(awe: AweClient, job_id: str, task: str, names: Sequence[LogName], as_json: bool) -> None:
    report = awe.job_report(job_id)
    report.tasks = _wanted(report.tasks, job_id, task)
    if as_json:
        print_json(report)
        return
    results = _results(awe, job_id) if len(names) > 1 else {}
    silent = True
    for entry in report.tasks:
        result = results.get(entry.taskid.removeprefix(f"{job_id}_"))
        if result:
            silent = False
            _say_result(entry.taskid, *result)
        for workunit in entry.workunits:
            for name in names[1:] if result else names:
                if text := workunit.logs.get(name):
                    silent = False
                    note(f"--- {workunit.wuid} {name}")
                    print_line(text.rstrip("\n"))
            if workunit.notes and not all(workunit.logs.get(name) for name in names):
                silent = False
                note(f"--- {workunit.wuid}: {workunit.notes}")
    if silent:
        note(f"nothing was written so far; awe why {report.id} says how the job stands")


def _results(awe: AweClient, job_id: str) -> dict[str, tuple[str, int]]:
    """By the names of tasks, the outputs that their long standard outputs went to."""
    found = {task.task_name: _result_of(task) for task in awe.get_job(job_id).tasks}
    return {name: result for name, result in found.items() if result}


def _wanted(tasks: list[TaskLike], job_id: str, name: str) -> list[TaskLike]:
    """The task of that name, or all. Raises BadRequest if there is none."""
    found = [entry for entry in tasks if name in ("", entry.taskid.removeprefix(f"{job_id}_"))]
    if not found:
        known = ", ".join(entry.taskid.removeprefix(f"{job_id}_") for entry in tasks)
        raise BadRequest(f"--task {name}: the job has no such task; it has: {known}")
    return found


def _write(stream: TextIO, chunk: bytes) -> None:
    stream.flush()
    stream.buffer.write(chunk)
    stream.buffer.flush()
