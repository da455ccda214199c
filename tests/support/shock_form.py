"""What the Shock of tests accepts in the form of a node."""

import re
import time
from collections.abc import Mapping

from starlette.datastructures import UploadFile

from tests.support.shock_node import Node, ShockError

_UNITS_NS = {"M": 60 * 10**9, "H": 3600 * 10**9, "D": 86400 * 10**9}


def refuse_contradictions(node: Node, texts: Mapping[str, str], files: Mapping[str, UploadFile]) -> None:
    """Forms that ask for two things, or for a second file."""
    if "upload" in texts:
        raise ShockError(400, "upload form field must be file encoded.")
    asked = [key for key in ("parts", "copy_data", "parent_node") if key in texts]
    asked += ["upload"] if "upload" in files else []
    if len(asked) > 1:
        raise ShockError(400, f"{asked[-1]} parameter incompatible with {', '.join(asked[:-1])}")
    if node.file is not None and (asked or any(key.isdecimal() for key in files)):
        raise ShockError(400, "Node file immutable")
    if "parts" in texts and node.parts_count:
        raise ShockError(400, "parts already set")


def parts_count(text: str) -> int:
    """How many parts are declared."""
    if not text.isdecimal():
        raise ShockError(400, "parts must be an integer or 'unknown'")
    if int(text) < 1:
        raise ShockError(400, "parts cannot be less than 1")
    return int(text)


def expiration_ns(text: str) -> int:
    """When a node is to vanish that is given 30M, 12H or 3D."""
    found = re.fullmatch(r"(\d+)([MHD])", text)
    if found is None:
        raise ShockError(400, "expiration format is invalid")
    return time.time_ns() + int(found[1]) * _UNITS_NS[found[2]]
