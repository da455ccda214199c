"""Put files into the node store: all are looked at before one is sent, and go again if it was in vain."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from awe_client.api import AweClient
from awe_client.cli.output import console, note
from shared_models.errors import AweError, BadRequest
from shared_models.views import JobView

_NEEDED = (
    "the job may have been accepted and need what was uploaded; if `awe jobs` does not show it, remove that"
)
_IN_VAIN = "what was uploaded is still there; remove it once the server answers"

_GZIP = b"\x1f\x8b"

#: Name → node in, the job document out.
MakeDocument = Callable[[dict[str, str]], bytes | dict[str, Any]]


def check_files(paths: Iterable[Path]) -> None:
    """Refuse, before anything is sent, what cannot be read. Raises BadRequest."""
    for path in paths:
        if not path.is_file():
            raise BadRequest(f"{path}: {'not a file' if path.exists() else 'there is no such file'}")
        if not os.access(path, os.R_OK):
            raise BadRequest(f"{path}: you may not read this file")


def check_not_packed(paths: Iterable[Path]) -> None:
    """Refuse to cut gzip files, which the server gives whole to one workunit. Raises BadRequest."""
    for path in paths:
        with path.open("rb") as file:
            if file.read(len(_GZIP)) == _GZIP:
                raise BadRequest(
                    f"--input {path}: a gzip file cannot be cut: unpack it before, or in a task of its own "
                    "as examples/mapping does; or leave out what asks for parts"
                )


def upload(awe: AweClient, path: Path, name: str, *, dedup: bool = False, expiration: str = "") -> str:
    """Put a file into the node store, with a bar on a terminal; return the node's id."""
    screen = console(stderr=True)
    bar = Progress(
        TextColumn("upload {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=screen,
    )
    with bar if screen.is_terminal else nullcontext():
        row = bar.add_task(name, total=path.stat().st_size)
        node = awe.create_node(
            path,
            name=name,
            dedup=dedup,
            expiration=expiration,
            on_progress=lambda sent, _: bar.update(row, completed=sent),
        )
    return node.id


def submit_with_files(awe: AweClient, files: Mapping[str, Path], document: MakeDocument) -> JobView:
    """Upload files, name → path, and submit the document that is made of their nodes.

    Without a job the nodes are removed. Once the job was sent only a refusal of the server says for certain
    that there is none; after a time-out, a 5xx or Ctrl-C it may need the nodes: they stay, and are named.
    """
    check_files(files.values())
    nodes: dict[str, str] = {}
    sent = False
    try:
        for name, path in files.items():
            nodes[name] = upload(awe, path, name)
        made = document(nodes)
        sent = True
        return awe.submit_job(made)
    except BaseException as exc:
        if sent and not _is_refusal(exc):
            _say_what_stays(_NEEDED, nodes.values())
        else:
            _say_what_stays(_IN_VAIN, _not_removed(awe, nodes.values()))
        raise


def _is_refusal(exc: BaseException) -> bool:
    """Whether there is no job for certain: no try, not even one whose reply was lost, can have made one."""
    return isinstance(exc, AweError) and exc.http_status < HTTPStatus.INTERNAL_SERVER_ERROR


def _not_removed(awe: AweClient, nodes: Iterable[str]) -> list[str]:
    left = list(nodes)
    try:
        while left:
            awe.delete_node(left[0])
            del left[0]
    except (AweError, KeyboardInterrupt):
        return left
    return []


def _say_what_stays(why: str, nodes: Iterable[str]) -> None:
    if ids := " ".join(nodes):
        note(f"awe: {why}: awe node rm {ids}")
