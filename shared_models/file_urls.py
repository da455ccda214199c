"""`file:` URLs: one spelling for one path, and nothing in them that two programs could read differently.

`file:///data/a%20b.fna` is the path `/data/a b.fna`. A host part other than `localhost`, a query, an escaped
slash, a `..` and bytes that are no UTF-8 are refused, not guessed at.
"""

import re
from urllib.parse import quote, unquote_to_bytes

from shared_models.errors import InvalidDocument
from shared_models.limits import MAX_NAME_CHARS, MAX_PATH_BYTES

_URL = re.compile(r"file:(?P<slashes>/*)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: What stays as it is in a URL's path besides letters, digits and `_.-~`.
SAFE_IN_PATHS = "/!$&'()*+,;=:@"


def is_file_url(url: str) -> bool:
    """Whether a URL names a file of a shared file system."""
    return url[:5].lower() == "file:"


def path_of(url: str) -> str:
    """Give the absolute path that a `file:` URL names, without `.` and empty parts.

    The path of a directory ends in `/`. Raises InvalidDocument with the reason.
    """
    found = _URL.fullmatch(url)
    slashes, rest = (found["slashes"], found["rest"]) if found else ("", "")
    if len(slashes) == 2:
        host, _, rest = rest.partition("/")
        if host.lower() != "localhost":
            raise InvalidDocument(
                f"'{url[:200]}' names the host '{host[:100]}'; a file URL has three slashes and an absolute "
                "path, as in file:///data/reads.fna"
            )
    elif len(slashes) not in (1, 3):
        raise InvalidDocument(f"'{url[:200]}' is not of the form file:///absolute/path")
    return _path("/" + unescaped(rest, url))


def url_of(path: str) -> str:
    """Give the one `file:` URL of a path as `path_of` gives it."""
    return f"file://{quote(path, safe=SAFE_IN_PATHS)}"


def unescaped(text: str, url: str) -> str:
    """Turn the %XX of a URL's path into characters.

    Raises InvalidDocument if more than one meaning is possible, or none.
    """
    for mark, escape in (("?", "%3F"), ("#", "%23"), (" ", "%20")):
        if mark in text:
            raise InvalidDocument(f"'{url[:200]}' has a '{mark}'; if it is part of the name, write {escape}")
    if _BROKEN_ESCAPE.search(text):
        raise InvalidDocument(f"'{url[:200]}' has a '%' without two hex digits; a '%' in a name is %25")
    if "%2f" in text.lower():
        raise InvalidDocument(f"'{url[:200]}' has an escaped slash (%2F); no name has a slash in it")
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeError as exc:
        raise InvalidDocument(f"{url[:200]!r} is not UTF-8") from exc


def part_problem(parts: list[str]) -> str | None:
    """Say why the parts of a path or key are none that every program understands alike, or None."""
    if ".." in parts:
        return "has a '..' part; write the path it leads to"
    if any(_CONTROL.search(part) for part in parts):
        return "has a control character"
    if sum(len(part.encode("utf-8")) + 1 for part in parts) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    return None


def _path(text: str) -> str:
    parts = text.split("/")
    reason = part_problem(parts)
    if reason is None and any(len(part.encode("utf-8")) > MAX_NAME_CHARS for part in parts):
        reason = f"has a part longer than {MAX_NAME_CHARS} bytes"
    if reason:
        raise InvalidDocument(f"{text[:200]!r} {reason}")
    is_folder = parts[-1] in ("", ".")
    plain = "/".join(part for part in parts if part not in ("", "."))
    return f"/{plain}/" if is_folder and plain else f"/{plain}"
