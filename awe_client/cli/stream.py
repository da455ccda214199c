"""Write a node's file to standard output: checked as a whole before its first byte is written."""

import shutil
import sys
import tempfile
from pathlib import Path

from awe_client.api import AweClient


def node_to_stdout(awe: AweClient, node_id: str) -> None:
    """Download the node to a temporary file, then copy it out; memory stays flat."""
    with tempfile.TemporaryDirectory(prefix="awe-") as folder:
        path = Path(folder) / "file"
        awe.download_node(node_id, path)
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
