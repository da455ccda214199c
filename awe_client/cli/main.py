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
from awe_client.cli.options import Asked
from awe_client.cli.output import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    FileTrouble,
    print_error,
    print_line,
)
from shared_models.errors import AweError, BadRequest

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
        ctx.obj.as_json = True
        ctx.default_map = _everywhere(ctx.command, as_json=True)


def main() -> None:
    """Run the command line."""
    # A job of 20,000 tasks is millions of objects and none is garbage: looking for it less often halves the
    # time to read one.
    gc.set_threshold(100_000, 50, 100)
    _open_what_is_closed()
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """As `main`, but returns the exit code."""
    asked = Asked()
    try:
        try:
            return _told(words, asked)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has had enough; that is not an error worth a traceback.
        sys.stderr.close()
        return EXIT_BROKEN_PIPE
    except OSError as exc:
        return _file_trouble(exc, asked.as_json)


def _told(words: list[str], asked: Asked) -> int:
    """Run the command and say what is wrong with what was asked."""
    try:
        return int(app(words, prog_name="awe", standalone_mode=False, obj=asked) or EXIT_OK)
    except AweError as exc:
        return print_error(exc, asked.as_json)
    except typer.TyperException as exc:
        return _wrong_usage(exc, asked.as_json or "--json" in words[: _end_of_options(words)])
    except typer.Abort:
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _end_of_options(words: list[str]) -> int:
    """Where the words begin that belong to another command."""
    return words.index("--") if "--" in words else len(words)


def _wrong_usage(exc: typer.TyperException, as_json: bool) -> int:
    text = exc.format_message().rstrip(".")
    if not text:  # nothing was asked, and the help has been printed
        return EXIT_USAGE
    context: typer.Context | None = getattr(exc, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context else ""
    return print_error(BadRequest(text + ("" if as_json else hint)), as_json)


def _file_trouble(exc: OSError, as_json: bool) -> int:
    """A file of the person's cannot be read or written: the disk is full, the folder is not there, …"""
    where = f"{exc.filename}: " if exc.filename else ""
    error = FileTrouble(f"{where}{exc.strerror or exc}")
    try:
        print_error(error, as_json)
        sys.stdout.flush()
    except OSError:  # it is the output itself
        print_error(error, as_json=False)
        _drop_output()
    return EXIT_FAILED


def _open_what_is_closed() -> None:
    """Let a stream that was closed for us (`>&-`) be an empty one: nobody wants to hear of it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 — for as long as we live


def _drop_output() -> None:
    """Forget what could not be written, so that the interpreter does not try again at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
