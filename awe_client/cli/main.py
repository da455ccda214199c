"""The `awe` command: submit, watch and steer jobs.

Exit codes: 0 fine; 1 a job did not complete, or the server refused; 2 what was asked is not valid or names
what is not there; 3 no server answers.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer

from awe_client.cli import demo, jobs, logs, node, site, submit
from awe_client.cli.output import EXIT_FAILED, note, print_error, print_line
from shared_models.errors import AweError

app = typer.Typer(
    name="awe",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

for command in (
    submit.submit,
    submit.run,
    jobs.jobs,
    jobs.show,
    jobs.watch,
    jobs.why,
    logs.logs,
    jobs.suspend,
    jobs.resume,
    jobs.recompute,
    jobs.resubmit,
    jobs.rm,
    site.clients,
    site.queue,
    demo.demo,
):
    app.command()(command)
app.add_typer(node.app, name="node")


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"awe {version('awe')}")
        raise typer.Exit


def _everywhere(group: Any, **values: Any) -> dict[str, Any]:
    """The same defaults for every command of a group."""
    return {
        name: _everywhere(command, **values) if hasattr(command, "commands") else values
        for name, command in group.commands.items()
    }


@app.callback()
def options(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    server: Annotated[
        str, typer.Option("--server", "-s", help="The server's URL; may also follow the command.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; may also follow the command.")] = False,
) -> None:
    """Submit, watch and steer jobs. The server is --server or AWE_SERVER.

    Exit codes: 0 fine, 1 job not completed or request refused, 2 wrong usage or no such thing, 3 no server.
    """
    if server:
        os.environ["AWE_SERVER"] = server
    if as_json:
        ctx.default_map = _everywhere(ctx.command, as_json=True)


def main() -> None:
    """Run the command line."""
    # A job of 20,000 tasks is millions of objects and none is garbage: looking for it less often halves the
    # time to read one.
    gc.set_threshold(100_000, 50, 100)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except AweError as exc:
        sys.exit(print_error(exc, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has had enough; that is not an error worth a traceback.
        sys.stderr.close()
        sys.exit(141)
    except OSError as exc:
        # A file of the person's that cannot be read or written: the disk is full, the folder is not there, …
        where = f"{exc.filename}: " if exc.filename else ""
        note(f"awe: {where}{exc.strerror or exc}")
        _drop_output()
        sys.exit(EXIT_FAILED)


def _drop_output() -> None:
    """Forget what could not be written, so that the interpreter does not try again at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
