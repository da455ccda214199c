"""`awe node put|get|ls|rm`: files in the server's node store."""

import os
from pathlib import Path
from typing import Annotated

import typer

from awe_client.api import AweClient
from awe_client.cli.options import DEFAULT_SERVER, Json, Server
from awe_client.cli.output import moment, note, print_json, print_line, print_table
from awe_client.cli.sizes import format_bytes
from awe_client.cli.stream import node_to, node_to_stdout
from awe_client.cli.upload import check_files, upload
from shared_models.errors import BadRequest, NodeNotFound
from shared_models.expiration import expiration_s
from shared_models.views import NodeFile, NodeView

app = typer.Typer(help="Files in the server's node store.", no_args_is_help=True)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node's id.")]


@app.command()
def put(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files to upload, a node each.")],
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Keep equal bytes once, with those of other nodes.")
    ] = False,
    expiration: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="30M, 12H or 3D from now: then they go, unless an unfinished job uses them."
        ),
    ] = "",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Upload files; prints the nodes' ids."""
    expiration = expiration.upper()  # nothing else is meant by the small letters
    if expiration and expiration_s(expiration) is None:
        raise BadRequest(f"--expiration {expiration}: expected minutes, hours or days such as 30M, 12H or 3D")
    check_files(files)
    nodes: list[str] = []
    with AweClient(server) as awe:
        for path in files:
            nodes.append(upload(awe, path, path.name, dedup=dedup, expiration=expiration))
            # Told at once: should a later one fail, this one is known.
            if as_json:
                note(f"{path}: {nodes[-1]}")
            else:
                print_line(nodes[-1] if len(files) == 1 else f"{nodes[-1]}\t{path}", at_once=True)
        if as_json:
            print_json([awe.get_node(node) for node in nodes])


@app.command()
def get(
    node: NodeArgument,
    target: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="A file, a folder, or - = stdout. Default: the file's own name, here."
        ),
    ] = "",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Download a node's file: whole and with the right checksum, or not at all."""
    if as_json and target == "-":
        raise BadRequest("--json and --output - both print to standard output: give one of them")
    with AweClient(server) as awe:
        document = _found(awe, node)
        file = document.file or NodeFile()
        if target == "-":
            node_to_stdout(awe, node)
            return
        path = _where(target, file.name or node)
        if path.is_char_device() or path.is_fifo():
            with path.open("wb") as stream:
                node_to(awe, node, stream)
        else:
            awe.download_node(node, path)
    if as_json:
        print_json(document)
    else:
        note(f"{path}: {format_bytes(file.size)}")


def _found(awe: AweClient, node: str) -> NodeView:
    """The node. Raises NodeNotFound, and says so if it is a job that was named."""
    try:
        return awe.get_node(node)
    except (NodeNotFound, BadRequest):
        key = "jid" if node.isdecimal() else "id"
        if awe.list_job_rows(where={key: node}, limit=1).items:
            raise NodeNotFound(f"{node} is a job: awe show {node} lists its outputs") from None
        raise


def _where(target: str, name: str) -> Path:
    """The file to write. Raises BadRequest for a folder that is not there, or a file that is.

    The name comes from whoever uploaded the file: only its last part is used, and never over another file.
    """
    path = Path(target)
    if target and not (target.endswith("/") or path.is_dir()):
        if not path.parent.is_dir():
            raise BadRequest(f"{path.parent}: there is no such folder")
        return path
    if not path.is_dir():
        raise BadRequest(f"{path}: there is no such folder")
    path /= Path(name).name
    if os.path.lexists(path):
        raise BadRequest(f"{path} exists already: choose another name with --output")
    return path


@app.command()
def ls(
    limit: Annotated[int, typer.Option(help="At most this many.", min=1)] = 25,
    offset: Annotated[int, typer.Option(help="Pass over this many.", min=0)] = 0,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """List nodes, the newest first."""
    with AweClient(server) as awe:
        page = awe.list_nodes(limit=limit, offset=offset, order="created_on", direction="desc")
    if as_json:
        print_json({"nodes": page.items, "total": page.total, "limit": limit, "offset": offset})
        return
    print_table(("ID", "SIZE", "NAME", "CREATED", "EXPIRES"), [_row(node) for node in page.items])
    if page.total > offset + len(page.items):
        shown = len(page.items)
        note(f"{shown} of {page.total} nodes; see more with --offset {offset + shown}")


def _row(node: NodeView) -> tuple[str, ...]:
    file = node.file or NodeFile()
    expires = moment(node.expiration) or "never"
    return node.id, format_bytes(file.size), file.name, moment(node.created_on), expires


@app.command()
def rm(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Nodes to delete.")],
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Delete nodes."""
    with AweClient(server) as awe:
        for node in nodes:
            awe.delete_node(node)
    if as_json:
        print_json({"deleted": nodes})
