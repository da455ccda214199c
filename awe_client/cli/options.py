"""Options that every command has, so that `--server` and `--json` may stand anywhere."""

from typing import Annotated

import typer

DEFAULT_SERVER = "http://127.0.0.1:8001"


def _http_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{text!r} has to begin with http:// or https://, such as {DEFAULT_SERVER}")
    return text


Server = Annotated[
    str,
    typer.Option(
        "--server", "-s", envvar="AWE_SERVER", help="The server's URL.", show_envvar=True, callback=_http_url
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
JobOrWorkArgument = Annotated[
    str,
    typer.Argument(metavar="JOB|WORKUNIT", help="A job's id or jid, or a workunit's id: JOB_TASK_RANK."),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its short number (jid).")]
