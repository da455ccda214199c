"""`awe logs`: what the commands of a job wrote."""

import sys
from typing import Annotated, Any

import typer

from awe_client.api import AweClient
from awe_client.cli.lookup import job_id_of
from awe_client.cli.options import DEFAULT_SERVER, Json, Server
from awe_client.cli.output import note, print_json, print_line
from shared_models.errors import BadRequest


def logs(
    what: Annotated[
        str, typer.Argument(metavar="JOB|WORKUNIT", help="A job's id or jid, or a workunit's id.")
    ],
    task: Annotated[str, typer.Option(help="Only this task of the job.")] = "",
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as more is written (a workunit).")
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Print the logs of a job or of one workunit."""
    with AweClient(server) as awe:
        if what.count("_") >= 2:
            _one(awe, what, "stderr" if stderr else "stdout", follow)
            return
        if follow:
            raise BadRequest(f"--follow needs a workunit's id, such as {what}_0_0; see `awe show {what}`")
        report = awe.job_report(job_id_of(awe, what))
        if as_json:
            print_json(report)
            return
        names = [
            name
            for name, wanted in (("stdout", not stderr or stdout), ("stderr", not stdout or stderr))
            if wanted
        ]
        for entry in report["tasks"]:
            if not task or entry["taskid"].endswith(f"_{task}"):
                _task(entry, names)


def _one(awe: AweClient, workunit_id: str, name: Any, follow: bool) -> None:
    chunks = awe.follow_log(workunit_id, name) if follow else iter([awe.read_log(workunit_id, name)])
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _task(entry: dict[str, Any], names: list[str]) -> None:
    for workunit in entry["workunits"]:
        for name in names:
            text = workunit["logs"].get(name)
            if text:
                note(f"--- {workunit['wuid']} {name}")
                print_line(text.rstrip("\n"))
