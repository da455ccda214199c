"""`awe jobs|show|watch|why|suspend|resume|recompute|resubmit|rm`: look at jobs and steer them."""

from typing import Annotated

import typer
from rich.text import Text

from awe_client.api import ENDED_JOB_STATES, AweClient
from awe_client.cli.kept import kept_of, tell_kept
from awe_client.cli.lookup import job_id_of, work_or_job_id_of
from awe_client.cli.options import DEFAULT_SERVER, JobArgument, JobOrWorkArgument, Json, Server
from awe_client.cli.output import (
    moment,
    note,
    notes_of,
    print_json,
    print_line,
    print_table,
    state_in_words,
    state_text,
)
from awe_client.cli.sizes import format_bytes
from awe_client.cli.watch import done_and_total, watch_job
from shared_models.errors import BadRequest
from shared_models.faces import JobRow
from shared_models.states import TaskState, WorkunitState
from shared_models.views import IOView, JobView, TaskView

#: Of a job's workunits that run, so many are looked at for transfers.
MAX_SHOWN_WORK = 200


def jobs(
    state: Annotated[str, typer.Option(help="Only jobs in this state (comma list).")] = "",
    user: Annotated[str, typer.Option(help="Only jobs of this user.")] = "",
    project: Annotated[str, typer.Option(help="Only jobs of this project.")] = "",
    name: Annotated[str, typer.Option(help="Only jobs of this name.")] = "",
    limit: Annotated[int, typer.Option(help="At most this many.", min=1)] = 25,
    offset: Annotated[int, typer.Option(help="Pass over this many.", min=0)] = 0,
    full: Annotated[bool, typer.Option("--full", help="With --json: whole jobs instead of rows.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first."""
    if full and not as_json:
        raise BadRequest("--full is for --json: give both, or `awe show JOB` for one job")
    where: dict[str, str | list[str]] = {}
    if state:
        where["state"] = state.split(",")
    where |= {f"info.{k}": v for k, v in (("user", user), ("project", project), ("name", name)) if v}
    with AweClient(server) as awe:
        if full:
            whole = awe.list_jobs(where=where, limit=limit, offset=offset, order="jid", direction="desc")
            print_json({"jobs": whole.items, "total": whole.total, "limit": limit, "offset": offset})
            return
        page = awe.list_job_rows(where=where, limit=limit, offset=offset, order="jid", direction="desc")
    if as_json:
        print_json({"jobs": page.items, "total": page.total, "limit": limit, "offset": offset})
        return
    rows = [_row(job) for job in page.items]
    print_table(("JID", "STATE", "DONE", "NAME", "USER", "SUBMITTED", "ID"), rows)
    if page.total > offset + len(rows):
        note(f"{len(rows)} of {page.total} jobs; see more with --offset {offset + len(rows)}")


def _row(job: JobRow) -> tuple[str | Text, ...]:
    known = job.totalwork is not None and job.remainwork is not None
    return (
        job.jid,
        state_text(job.job_state or ", ".join(dict.fromkeys(job.state))),
        f"{(job.totalwork or 0) - (job.remainwork or 0)}/{job.totalwork}" if known else "",
        job.name,
        job.user,
        moment(job.submittime),
        job.id,
    )


def show(job: JobArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Show one job with its tasks and outputs."""
    with AweClient(server) as awe:
        shown = awe.get_job(job_id_of(awe, job))
        moving = [] if as_json or shown.state in ENDED_JOB_STATES else _moving(awe, shown.id)
        keeps = not as_json and any(task.keep_failed for task in shown.tasks)
        kept = kept_of(awe, shown.id) if keeps else []
    if as_json:
        print_json(shown)
        return
    print_table(("JOB", ""), _facts(shown))
    print_line("")
    print_table(("TASK", "STATE", "DONE", "COMMAND", "NOTES"), [_task_row(task) for task in shown.tasks])
    outputs = [_output_row(task, file) for task in shown.tasks for file in task.outputs]
    if outputs:
        print_line("")
        print_table(("TASK", "OUTPUT", "BYTES", "NODE", "URL"), outputs)
    if kept:
        print_line("")
        columns = ("FAILED WORKUNIT", "ATTEMPT", "BYTES", "KEPT IN NODE")
        print_table(columns, [(row.workunit, row.attempt, str(row.size_bytes), row.node) for row in kept])
    if moving:
        print_line("")
        print_table(("WORKUNIT", "FILES", "DONE", "OF"), moving)


def _facts(job: JobView) -> list[tuple[str, str]]:
    """What is known of the job itself."""
    info = job.info
    facts = (
        ("id", job.id),
        ("jid", job.jid),
        ("name", info.name),
        ("state", job.state),
        ("user", info.user),
        ("project", info.project),
        ("pipeline", info.pipeline),
        ("groups", info.clientgroups),
        ("priority", str(info.priority)),
        ("submitted", moment(info.submittime)),
        ("started", moment(info.startedtime)),
        ("completed", moment(info.completedtime)),
        ("expires", moment(job.expiration)),
        ("notes", job.notes),
    )
    return [(key, value) for key, value in facts if value]


def _moving(awe: AweClient, job_id: str) -> list[tuple[str, ...]]:
    """Workunits whose files have been on their way for a while."""
    held = awe.list_work(job_id=job_id, state=WorkunitState.CHECKOUT, limit=MAX_SHOWN_WORK).items
    rows = [(work.id, work.progress) for work in held if work.progress is not None]
    return [
        (id, at.stage, format_bytes(at.bytes), format_bytes(at.total_bytes) if at.total_bytes >= 0 else "?")
        for id, at in rows
    ]


def _output_row(task: TaskView, file: IOView) -> tuple[str, ...]:
    """An output with its size, its node if it is one, and its address, once it has a file."""
    if file.not_made:
        return task.task_name, file.filename, "not made", "-", "-"
    has_file = task.state == TaskState.COMPLETED and bool(file.url)
    size, node, url = (str(file.size), file.node or "-", file.url) if has_file else ("-", "-", "-")
    return task.task_name, file.filename, size, node, url


def _task_row(task: TaskView) -> tuple[str | Text, ...]:
    done, total = done_and_total([task])
    command = task.cmd.name or "script"
    return task.task_name, state_text(task.state), f"{done}/{total}", command, notes_of(task.notes)


def watch(job: JobArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Wait until a job has ended: exit code 0 completed, 1 suspended, failed or deleted."""
    with AweClient(server) as awe:
        job_id = job_id_of(awe, job)
        # A server that goes away is waited for; one that is not there to begin with is not.
        awe.get_job(job_id)
        raise typer.Exit(watch_job(awe, job_id, as_json=as_json))


def why(what: JobOrWorkArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Say what a job or a workunit waits for, or why it stopped."""
    with AweClient(server) as awe:
        id, is_work = work_or_job_id_of(awe, what)
        rows = awe.why_work(id) if is_work else awe.why_job(id)
        if as_json:
            print_json(rows)
            return
        if not rows:
            print_line(f"{_standing(awe, id, is_work)}: it waits for nothing")
            return
        kept = kept_of(awe, id.partition("_")[0], id if is_work else "")
    print_table(
        ("WHAT", "STATE", "REASON"),
        [(f"{row.entity} {row.id}", state_text(row.state), row.reason) for row in rows],
    )
    tell_kept(kept)


def _standing(awe: AweClient, id: str, is_work: bool) -> str:
    if is_work:
        return f"workunit {id} is {state_in_words(awe.get_work(id).state)}"
    job = awe.get_job(id)
    return f"job {job.jid} is {state_in_words(job.state)}"


def _say(text: str, as_json: bool) -> None:
    if as_json:
        print_json({"message": text})
    else:
        print_line(text)


def suspend(job: JobArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Pause a job; what is finished is kept, what runs is stopped."""
    with AweClient(server) as awe:
        _say(awe.suspend_job(job_id_of(awe, job)), as_json)


def resume(job: JobArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Let a suspended job go on where it stopped."""
    with AweClient(server) as awe:
        _say(awe.resume_job(job_id_of(awe, job)), as_json)


def recompute(
    job: JobArgument,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="The task to begin with; all that depend on it follow.")
    ],
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Run a task and everything that depends on it again."""
    with AweClient(server) as awe:
        _say(awe.recompute_job(job_id_of(awe, job), task), as_json)


def resubmit(job: JobArgument, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Run a whole job again, under the same id."""
    with AweClient(server) as awe:
        _say(awe.resubmit_job(job_id_of(awe, job)), as_json)


def rm(
    job: JobArgument,
    full: Annotated[
        bool, typer.Option("--full", help="Remove the document and the outputs as well.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Delete a job; what runs is stopped."""
    with AweClient(server) as awe:
        _say(awe.delete_job(job_id_of(awe, job), full=full), as_json)
