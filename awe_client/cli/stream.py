"""Write a node's file to a stream: checked as a whole before its first byte is written."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from awe_client.api import AweClient


def node_to_stdout(awe: AweClient, node_id: str) -> None:
    """Copy the node's file to standard output."""
    sys.stdout.flush()
    node_to(awe, node_id, sys.stdout.buffer)


def node_to(awe: AweClient, node_id: str, stream: BinaryIO) -> None:
    """Download the node to a temporary file, then copy it out; memory stays flat."""
    with tempfile.TemporaryDirectory(prefix="awe-") as folder:
        path = Path(folder) / "file"
        awe.download_node(node_id, path)
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()
