"""Options that every command has, so that `--server` and `--json` may stand anywhere."""

from dataclasses import dataclass
from typing import Annotated

import typer

from awe_client.cli.leader import leader_of
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


def _address(context: typer.Context, text: str) -> str:
    """The server to talk to: of several, with blanks between them, the one that leads."""
    try:
        urls = [server_address(url) for url in text.split() or [text]]
    except BadRequest as exc:
        raise typer.BadParameter(exc.message) from exc
    return urls[0] if context.resilient_parsing else leader_of(urls)


Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="AWE_SERVER",
        help="The server's URL; several with blanks between them: the first that is ready.",
        show_envvar=True,
        callback=_address,
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
