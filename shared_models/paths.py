"""File names from outside: always relative, always below the work directory."""

import re

from shared_models.limits import MAX_NAME_CHARS, MAX_PATH_BYTES

_PLAIN = re.compile(r"\w[\w.\-]{0,200}", re.ASCII)  #: most names; saves the checks below
_DOT_PART = re.compile(r"(?:^|/)\.(?:/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def check_relative_path(text: str) -> str | None:
    """Say why a file name may not be used, or None if it may.

    Sub-directories are fine (`sub/dir/ok.txt`, `./ok`). What leads out of the work directory, or means
    something else on another system, is not: absolute names, `..`, a leading `~/`, `C:\\x`, control
    characters, empty parts.
    """
    if _PLAIN.fullmatch(text):
        return None
    if not text:
        return "is empty"
    if _CONTROL.search(text):
        return "has a control character"
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if len(encoded) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if text.startswith("/"):
        return "is absolute; give a name relative to the work directory"
    if _DRIVE.match(text):
        return "starts with a drive letter; give a name relative to the work directory"
    return _check_parts(text.split("/"))


def _check_parts(parts: list[str]) -> str | None:
    if ".." in parts:
        return "has a '..' part, which would leave the work directory"
    if parts[0] == "~":
        return "starts with '~', which names a home directory"
    if parts[-1] in ("", "."):
        return "names a directory, not a file"
    if "" in parts:
        return "has an empty part ('//')"
    if any(len(part.encode("utf-8")) > MAX_NAME_CHARS for part in parts):
        return f"has a part longer than {MAX_NAME_CHARS} bytes"
    return None


def normal_relative_path(text: str) -> str:
    """Leave out `.` parts of a checked name, so that `./ok` and `ok` are one name."""
    if "." not in text or not _DOT_PART.search(text):
        return text
    return "/".join(part for part in text.split("/") if part != ".")
