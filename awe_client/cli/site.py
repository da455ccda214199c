"""`awe clients`, `awe queue`: who works here and how much there is to do."""

from typing import Annotated

import typer
from rich.text import Text

from awe_client.api import AweClient
from awe_client.cli.lookup import client_id_of
from awe_client.cli.options import DEFAULT_SERVER, Json, Server
from awe_client.cli.output import note, print_json, print_line, print_table, state_text
from shared_models.errors import BadRequest
from shared_models.states import ClientStatus
from shared_models.views import ClientView

#: What a client may be asked for: its status, or the end of it (`idle` of `active-idle`).
STATUSES = ("idle", "busy", *ClientStatus)

#: What the server counts as the total of something.
TOTALS = {"jobs": "unfinished", "tasks": "of unfinished jobs", "workunits": "unfinished"}


def clients(
    group: Annotated[str, typer.Option(help="Only clients of this group.")] = "",
    status: Annotated[
        str, typer.Option(help="Only clients of this status: idle, busy, suspend, offline.")
    ] = "",
    suspend: Annotated[str, typer.Option(metavar="ID|NAME", help="Give this client no more work.")] = "",
    resume: Annotated[str, typer.Option(metavar="ID|NAME", help="Let this client work again.")] = "",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """List clients; suspend or resume one."""
    if suspend and resume:
        raise BadRequest("--suspend and --resume at once: give one of them")
    if (suspend or resume) and (group or status):
        raise BadRequest("--group and --status choose what is listed; --suspend and --resume list nothing")
    if status and status not in STATUSES:
        raise BadRequest(f"--status {status}: is not one of {', '.join(STATUSES)}")
    with AweClient(server) as awe:
        if suspend or resume:
            id = client_id_of(awe, suspend or resume)
            text = awe.suspend_client(id) if suspend else awe.resume_client(id)
            print_json({"message": text}) if as_json else print_line(text)
            return
        found = awe.list_clients(group=group or None, status=status or None).items
    if as_json:
        print_json(found)
        return
    print_table(
        ("NAME", "GROUP", "STATUS", "CORES", "RUNS", "DONE", "FAILED", "SKIPS", "ID"),
        [_row(client) for client in found],
    )
    for client in found:
        if client.trouble:
            note(f"{client.name} has trouble: {client.trouble}")
        if client.suspended:
            reason = client.suspend_reason or "no reason given"
            note(f"{client.name} is suspended: {reason}; to end that: awe clients --resume {client.id}")


def _row(client: ClientView) -> tuple[str | Text, ...]:
    return (
        client.name,
        client.group,
        state_text(client.Status),
        str(client.cores),
        str(len(client.current_work.ids)),
        str(client.total_completed),
        str(client.total_failed),
        str(len(client.skip_work)),
        client.id,
    )


def queue(
    suspend: Annotated[bool, typer.Option("--suspend", help="Hand out no more work.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Hand out work again.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Count what waits and what runs; suspend or resume the whole queue."""
    if suspend and resume:
        raise BadRequest("--suspend and --resume at once: give one of them")
    with AweClient(server) as awe:
        if suspend or resume:
            text = awe.suspend_queue() if suspend else awe.resume_queue()
            print_json({"message": text}) if as_json else print_line(text)
            return
        counts = awe.queue_counts()
    if as_json:
        print_json(counts)
        return
    sections = {"jobs": counts.jobs, "tasks": counts.tasks, "workunits": counts.workunits}
    sections["clients"] = counts.clients
    rows = [
        (what, TOTALS.get(what, state) if state == "total" else state, str(n))
        for what, states in sections.items()
        for state, n in states.items()
    ]
    print_table(("WHAT", "STATE", "COUNT"), rows)
