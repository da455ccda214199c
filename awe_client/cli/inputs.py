"""Where an input comes from: a file here, which is uploaded, or a place that the document names."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from awe_client.api import AweClient
from shared_models.errors import BadRequest
from shared_models.locations import is_node_id
from shared_models.views import NodeFile

_URL = re.compile(r"(?:https?|file|s3|gs|az)://", re.IGNORECASE)


def is_place(text: str) -> bool:
    """Whether a text is a URL or a node's id, rather than the path of a file here."""
    return _URL.match(text) is not None or (is_node_id(text) and not Path(text).exists())


def keys_of(place: str) -> dict[str, str]:
    """How a document names a node or a URL."""
    return {"url": place} if _URL.match(place) else {"node": place}


def divided(inputs: Mapping[str, str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Inputs by name: the files that are to be uploaded, and the places of the others."""
    places = {name: text for name, text in inputs.items() if is_place(text)}
    return {name: Path(text) for name, text in inputs.items() if name not in places}, places


def by_name(awe: AweClient, inputs: Sequence[str]) -> dict[str, str]:
    """Inputs under the names by which a command finds them.

    Raises BadRequest when two have the same or one has none, NodeNotFound.
    """
    named: dict[str, str] = {}
    for text in inputs:
        name = _name(awe, text)
        if not name:
            raise BadRequest(f"--input {text}: names no file that a command could find under its name")
        if name in named:
            raise BadRequest(f"--input {text}: another input is named {name} as well")
        named[name] = text
    return named


def _name(awe: AweClient, text: str) -> str:
    if _URL.match(text):
        return unquote(urlsplit(text).path).rpartition("/")[2]
    if is_place(text):
        return Path((awe.get_node(text).file or NodeFile()).name).name
    return Path(text).name
