"""What the commands print: results on stdout, everything about them on stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared_models.errors import AweError, BadRequest, NotFound, ServerUnreachable
from shared_models.states import JobState
from shared_models.times import ZERO_TIME
from shared_models.views import JobView

EXIT_OK = 0
EXIT_FAILED = 1  #: the job did not complete, or the server refused
EXIT_USAGE = 2  #: what was asked is not valid, or names what is not there
EXIT_UNREACHABLE = 3  #: no server answers
EXIT_INTERRUPTED = 130  #: Ctrl-C, as shells say it
EXIT_BROKEN_PIPE = 141  #: nobody reads our output any more


class FileTrouble(AweError):
    """A file on this machine cannot be read or written."""

    code = "file_trouble"


STATE_STYLES = {
    "completed": "green",
    "in-progress": "cyan",
    "checkout": "cyan",
    "active-busy": "cyan",
    "queued": "blue",
    "suspend": "red",
    "failed-permanent": "bold red",
    "offline": "red",
    "deleted": "dim",
}


def console(*, stderr: bool = False) -> Console:
    """A console that follows redirection; made anew so that tests may replace the streams."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; what came from the server is printed as it came."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_as_sent) + "\n")


def _as_sent(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json")


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(text: str, *, at_once: bool = False) -> None:
    """Print one line of a result, as it is; `at_once` also when piped."""
    sys.stdout.write(text + "\n")
    if at_once:
        sys.stdout.flush()


def note(text: str) -> None:
    """Say something about what happens, beside the result."""
    console(stderr=True).print(Text(text))


def notes_of(notes: str | list[str] | None) -> str:
    """Notes as one line; the original server has several of them."""
    return notes if isinstance(notes, str) else "; ".join(notes or ())


def moment(text: str) -> str:
    """A time for people: UTC to the second, or nothing if it never came."""
    return "" if text in ("", ZERO_TIME) else f"{text[:19]}Z"


def state_in_words(state: str) -> str:
    """A state as the end of a sentence: `the job is …`."""
    return "suspended" if state == JobState.SUSPEND else state


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, STATE_STYLES.get(state, ""))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows under headings; when piped, columns are separated by tabs and nothing is cut."""
    out = console()
    if not out.is_terminal:
        print_line("\t".join(columns))
        for row in rows:
            print_line("\t".join(str(cell) for cell in row))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[cell if isinstance(cell, Text) else Text(cell) for cell in row])
    out.print(table)


def print_error(error: AweError, as_json: bool) -> int:
    """Say what went wrong and return the exit code for it."""
    if as_json:
        print_json({"status": error.http_status, "data": None, "error": [error.message], "code": error.code})
    else:
        problems = error.fields.get("problems") or [error.message]
        for problem in problems:
            note(f"awe: {problem}")
    if isinstance(error, ServerUnreachable):
        return EXIT_UNREACHABLE
    return EXIT_USAGE if isinstance(error, BadRequest | NotFound) else EXIT_FAILED


def exit_code_of(job: JobView) -> int:
    """0 for a completed job, 1 for one that is suspended, failed or deleted."""
    return EXIT_OK if job.state == JobState.COMPLETED else EXIT_FAILED
