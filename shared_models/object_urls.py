"""URLs of object stores: `s3://bucket/key`, `gs://bucket/object`, `az://container/blob`.

Where the store is and who asks (endpoint, region, account, keys) is the server's and the client's own
configuration, never part of a document.
"""

import re
from typing import NamedTuple
from urllib.parse import quote

from shared_models.errors import InvalidDocument
from shared_models.file_urls import SAFE_IN_PATHS, part_problem, unescaped

OBJECT_SCHEMES = ("s3", "gs", "az")

_URL = re.compile(r"(?P<scheme>s3|gs|az)://(?P<bucket>[^/?#]*)/?(?P<key>.*)", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._\-]{1,221}")
_MAX_KEY_BYTES = 1024


class ObjectPlace(NamedTuple):
    """An object, its key as the store knows it."""

    scheme: str
    bucket: str
    key: str  #: unescaped; ends in "/" if it stands for a folder, is empty for the whole bucket

    @property
    def url(self) -> str:
        """The one spelling of it."""
        return f"{self.scheme}://{self.bucket}/{quote(self.key, safe=SAFE_IN_PATHS)}"


def is_object_url(url: str) -> bool:
    """Whether a URL names an object of an object store."""
    return url.partition(":")[0].lower() in OBJECT_SCHEMES


def object_place(url: str) -> ObjectPlace:
    """Read the URL of an object. Raises InvalidDocument with the reason."""
    found = _URL.fullmatch(url)
    scheme = url.partition(":")[0].lower()
    if found is None or not found["bucket"]:
        raise InvalidDocument(f"'{url[:200]}' is not of the form {scheme}://bucket/key")
    if not _BUCKET.fullmatch(found["bucket"]):
        bucket = found["bucket"][:200]
        raise InvalidDocument(
            f"'{bucket}' is no bucket's name (letters, digits, '-', '_' and '.', at least 2)"
        )
    key = unescaped(found["key"], url)
    parts = key.split("/")
    reason = part_problem(parts)
    if reason is None and ("" in parts[:-1] or "." in parts):
        reason = "has an empty or '.' part, which object stores do not agree about"
    if reason is None and len(key.encode("utf-8")) > _MAX_KEY_BYTES:
        reason = f"is longer than {_MAX_KEY_BYTES} bytes"
    if reason:
        raise InvalidDocument(f"the key {key[:200]!r} {reason}")
    return ObjectPlace(scheme, found["bucket"], key)
