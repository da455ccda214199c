"""Options that every command has, so that `--server` and `--json` may stand anywhere."""

from dataclasses import dataclass
from typing import Annotated

import typer

from awe_client.sdk.address import DEFAULT_SERVER as DEFAULT_SERVER
from awe_client.sdk.address import server_address
from shared_models.errors import BadRequest


@dataclass(slots=True)
class Asked:
    """What was asked for, for whoever has to say that it did not work."""

    as_json: bool = False


def _remembered(context: typer.Context, wanted: bool) -> bool:
    if wanted:
        context.obj.as_json = True
    return wanted


def _address(text: str) -> str:
    try:
        return server_address(text)
    except BadRequest as exc:
        raise typer.BadParameter(exc.message) from exc


Server = Annotated[
    str,
    typer.Option(
        "--server", "-s", envvar="AWE_SERVER", help="The server's URL.", show_envvar=True, callback=_address
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", callback=_remembered, help="Print JSON for programs instead of text for people."),
]
JobOrWorkArgument = Annotated[
    str,
    typer.Argument(metavar="JOB|WORKUNIT", help="A job's id or jid, or a workunit's id: JOB_TASK_RANK."),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its short number (jid).")]
