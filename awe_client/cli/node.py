"""`awe node put|get|ls|rm`: files in the server's node store."""

from pathlib import Path
from typing import Annotated

import typer

from awe_client.api import AweClient
from awe_client.cli.options import DEFAULT_SERVER, Json, Server
from awe_client.cli.output import moment, note, print_json, print_line, print_table
from awe_client.cli.sizes import format_bytes
from awe_client.cli.stream import node_to_stdout
from awe_client.cli.submit import upload
from shared_models.errors import BadRequest
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
    if expiration and expiration_s(expiration) is None:
        raise BadRequest(f"--expiration {expiration}: expected minutes, hours or days such as 30M, 12H or 3D")
    with AweClient(server) as awe:
        nodes = [(path, upload(awe, path, path.name, dedup=dedup, expiration=expiration)) for path in files]
        if as_json:
            print_json([awe.get_node(node) for _, node in nodes])
            return
    for path, node in nodes:
        print_line(node if len(nodes) == 1 else f"{node}\t{path}")


@app.command()
def get(
    node: NodeArgument,
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to; - = stdout. Default: the file's own name here."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Download a node's file: whole and with the right checksum, or not at all."""
    if as_json and str(target) == "-":
        raise BadRequest("--json and --output - both print to standard output: give one of them")
    with AweClient(server) as awe:
        document = awe.get_node(node)
        file = document.file or NodeFile()
        # The name comes from whoever uploaded it: only its last part is used, and never over another file.
        path = target or Path(Path(file.name or node).name)
        if target is None and path.exists():
            raise BadRequest(f"{path} exists already: choose another name with --output")
        if str(target) == "-":
            node_to_stdout(awe, node)
            return
        if not path.parent.is_dir():
            raise BadRequest(f"{path.parent}: there is no such folder")
        awe.download_node(node, path)
    if as_json:
        print_json(document)
    else:
        note(f"{path}: {format_bytes(file.size)}")


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
