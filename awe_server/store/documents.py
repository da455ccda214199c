"""The form in which every store takes a document, so that all of them refuse and keep the same things."""

from typing import Any

import orjson

from awe_server.store.base import Document
from shared_models.errors import InvalidDocument

#: MongoDB ends at 16 MiB of BSON; all stores refuse the same documents, so moving between them never fails.
MAX_STORED_BYTES = 12 * 1024 * 1024


def encode(document: Document) -> bytes:
    """Give a document's JSON; the caller's dict may change afterwards.

    Raises InvalidDocument if it has no id, is not JSON (integers: 64 bits) or larger than MAX_STORED_BYTES.
    """
    id = document.get("id")
    if not isinstance(id, str) or not id:
        raise InvalidDocument("id: a stored document needs a text here")
    try:
        text = orjson.dumps(document)
    except TypeError as exc:
        raise InvalidDocument(f"{id}: cannot be stored as JSON: {exc}") from exc
    if len(text) > MAX_STORED_BYTES:
        raise InvalidDocument(f"{id}: {len(text)} bytes are too many to store; at most {MAX_STORED_BYTES}")
    return text


def decode(text: bytes | str) -> Any:
    """Read a document back. Raises ValueError if it is not JSON."""
    return orjson.loads(text)
