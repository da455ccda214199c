"""Put files into the node store: all are looked at before one is sent, and go again if it was in vain."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from awe_client.api import AweClient
from awe_client.cli.output import console, note
from shared_models.errors import AweError, BadRequest, NotConfirmed, ServerUnreachable


def check_files(paths: Iterable[Path]) -> None:
    """Refuse, before anything is sent, what cannot be read. Raises BadRequest."""
    for path in paths:
        if not path.is_file():
            raise BadRequest(f"{path}: {'not a file' if path.exists() else 'there is no such file'}")
        if not os.access(path, os.R_OK):
            raise BadRequest(f"{path}: you may not read this file")


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


@contextmanager
def uploaded(awe: AweClient, files: Mapping[str, Path]) -> Iterator[dict[str, str]]:
    """Upload files, name → path, and give their nodes; when the body does not end well, remove them.

    They stay when nobody knows whether the job was accepted: then it needs them.
    """
    check_files(files.values())
    nodes: dict[str, str] = {}
    try:
        for name, path in files.items():
            nodes[name] = upload(awe, path, name)
        yield nodes
    except (ServerUnreachable, NotConfirmed):
        _say_what_stays(nodes.values(), "unless `awe jobs` shows that the job was accepted")
        raise
    except BaseException:
        _say_what_stays(_not_removed(awe, nodes.values()), "once the server answers")
        raise


def _not_removed(awe: AweClient, nodes: Iterable[str]) -> list[str]:
    left = list(nodes)
    try:
        while left:
            awe.delete_node(left[0])
            del left[0]
    except AweError:
        return left
    return []


def _say_what_stays(nodes: Iterable[str], when: str) -> None:
    if ids := " ".join(nodes):
        note(f"awe: what was uploaded is still there; to remove it, {when}: awe node rm {ids}")
