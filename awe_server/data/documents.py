"""Node documents: how they are born and changed, and what may stand in them. Pure.

`file` is null until the node has content; the name it will have is kept in `_name`. `version` is an opaque
text that changes with every change of the document. `indexes` holds Shock's fields, the units'
`format`, and how many `records` were counted.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from awe_server.data.indexes import SIZE_UNIT_BYTES, size_units
from awe_server.data.ports import FileFact, IndexFact
from awe_server.store.base import Document
from shared_models.errors import BadRequest, TooLarge
from shared_models.expiration import expiration_s
from shared_models.limits import MAX_ATTRIBUTES_BYTES, MAX_DEPTH, MAX_NAME_CHARS, MAX_TOTALWORK
from shared_models.times import ZERO_TIME, rfc3339

#: An expiration before this one means "never".
EARLIEST = rfc3339(1.0)

#: Keys of a stored node without which nothing can be said of it.
_NEEDED = ("_blob", "_name", "expiration", "file", "indexes", "job", "parts", "task")

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_node_id(text: str) -> bool:
    """Whether a text can be a node's id at all, and thus be part of a path."""
    return _NODE_ID.fullmatch(text) is not None


def clean_name(name: str) -> str:
    """The last component of a file name, at most 255 bytes; empty stays empty. Raises BadRequest."""
    name = name.rsplit("/", 1)[-1]
    if _BAD_NAME.search(name) or name in (".", ".."):
        raise BadRequest(f"{name[:100]!a} is not a file name: no control characters, not '.' or '..'")
    if len(name.encode()) > MAX_NAME_CHARS:
        raise BadRequest(f"A file name has at most {MAX_NAME_CHARS} bytes; '{name[:40]}…' is longer.")
    return name


def check_attributes(attributes: object) -> dict[str, Any] | None:
    """Attributes are any JSON object of bounded size and depth, or null. Raises BadRequest, TooLarge."""
    if attributes is None:
        return None
    if not isinstance(attributes, dict):
        raise BadRequest("attributes: expected a JSON object")
    if _deeper_than(attributes, MAX_DEPTH):
        raise BadRequest(f"attributes: nested deeper than {MAX_DEPTH}")
    try:
        size = len(orjson.dumps(attributes))
    except TypeError as exc:
        raise BadRequest(f"attributes: not storable as JSON: {exc}") from exc
    if size > MAX_ATTRIBUTES_BYTES:
        raise TooLarge(f"attributes: {size} bytes, at most {MAX_ATTRIBUTES_BYTES} are kept")
    return attributes


def _deeper_than(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    children = value.values() if isinstance(value, dict) else value
    return any(_deeper_than(child, levels - 1) for child in children)


def check_parts(count: int) -> dict[str, int] | None:
    """The `parts` field of a node that waits for so many parts; None for 0. Raises BadRequest."""
    if not 0 <= count <= MAX_TOTALWORK:
        raise BadRequest(f"parts: {count} is not between 0 and {MAX_TOTALWORK}")
    return {"count": count} if count else None


def expires_at(text: str, now_s: float) -> str:
    """The time that `3D`, `12H` or `30M` from now is; "" is never. Raises BadRequest."""
    if not text:
        return ZERO_TIME
    seconds = expiration_s(text)
    if seconds is None:
        raise BadRequest(f"expiration: '{text[:100]}' is not a time from now such as 30M, 12H or 3D")
    return rfc3339(now_s + seconds)


def has_expired(document: Document, now_s: float) -> bool:
    """Whether a node's time has come; not that of one whose document makes no sense."""
    return not problem_of(document) and bool(EARLIEST <= document["expiration"] < rfc3339(now_s))


def is_whole(value: object) -> bool:
    """Whether it is a whole number, of whatever type a store's driver has for it; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def problem_of(document: Mapping[str, Any]) -> str:
    """Why a stored document cannot be that of a node; "" if it can: then its file is known."""
    if missing := [key for key in _NEEDED if key not in document]:
        return f"it has no {', '.join(missing)}"
    file, blob = document["file"], document["_blob"]
    if not isinstance(document["expiration"], str) or not isinstance(blob, str | None):
        return "its expiration or _blob is no text"
    if file is None:
        return ""
    try:
        size, texts = file["size"], (file["checksum"]["md5"], file["checksum"]["sha256"], file["name"])
    except (KeyError, TypeError):
        return "its file lacks name, size or checksums"
    if not is_whole(size) or not all(isinstance(text, str) for text in texts):
        return "its file has a name, size or checksum that is none"
    return ""


def new_document(
    node_id: str,
    now_s: float,
    *,
    name: str = "",
    attributes: object = None,
    owner: str = "",
    parts: int = 0,
    job: str | None = None,
    task: str | None = None,
    header_lines: int = 0,
    expiration: str = "",
    tags: Sequence[str] = (),
) -> Document:
    """A node without content. Raises BadRequest, TooLarge."""
    return {
        "id": node_id,
        "version": secrets.token_hex(16),
        "file": None,
        "attributes": check_attributes(attributes),
        "indexes": {},
        "parts": check_parts(parts),
        "created_on": rfc3339(now_s),
        "last_modified": rfc3339(now_s),
        "expiration": expires_at(expiration, now_s),
        "owner": owner,
        "job": job,
        "task": task,
        "tags": list(tags),
        "header_lines": header_lines,
        "_blob": None,
        "_name": clean_name(name),
        "_assembled": None,
    }


def changed(document: Document, now_s: float, **fields: object) -> Document:
    """A copy with other fields, a new version and a new time."""
    return {**document, **fields, "version": secrets.token_hex(16), "last_modified": rfc3339(now_s)}


def with_file(
    document: Document,
    now_s: float,
    blob: str,
    fact: FileFact,
    *,
    name: str = "",
    assembled: str | None = None,
    indexes: Mapping[str, Any] | None = None,
) -> Document:
    """A copy with new content: the indexes of the old content are gone; `size`, and `indexes` that came along
    with the new one, are there at once.
    """
    name = name or document["_name"]
    file = {
        "name": name,
        "size": fact.size,
        "checksum": {"md5": fact.md5, "sha256": fact.sha256},
        "created_on": rfc3339(now_s),
    }
    size_index = IndexFact("size", size_units(fact.size), "size")
    known = {**(indexes or {}), "size": index_entry(size_index, fact.size, now_s)}
    return changed(document, now_s, file=file, indexes=known, _blob=blob, _name=name, _assembled=assembled)


def with_index(document: Document, now_s: float, fact: IndexFact) -> Document:
    """A copy that lists one more index."""
    entry = index_entry(fact, document["file"]["size"], now_s)
    return changed(document, now_s, indexes={**document["indexes"], fact.kind: entry})


def index_entry(fact: IndexFact, size: int, now_s: float) -> dict[str, Any]:
    """An index as Shock shows it, the format of its units, and how many records were counted."""
    average = SIZE_UNIT_BYTES if fact.kind == "size" else size // fact.total_units
    return {
        "total_units": fact.total_units,
        "average_unit_size": average,
        "created_on": rfc3339(now_s),
        "locked": None,
        "format": fact.format,
        "records": fact.records,
    }


def file_fact(document: Mapping[str, Any]) -> FileFact:
    """The facts of a node's present content (`file` must not be null)."""
    file = document["file"]
    return FileFact(file["size"], file["checksum"]["md5"], file["checksum"]["sha256"])


def assembly_key(parts: Sequence[tuple[int, int]], header_lines: int) -> str:
    """Names an assembly by what goes into it, so that a repeated one is recognised."""
    return sha256(repr((list(parts), header_lines)).encode()).hexdigest()
