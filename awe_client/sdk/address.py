"""The address of a server, as people write it: read once, before anything is sent there."""

import re

import httpx

from shared_models.errors import BadRequest

#: Where awe-server listens if it is not told otherwise.
DEFAULT_SERVER = "http://127.0.0.1:8001"
MAX_PORT = 65_535

_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)
#: What httpx would escape or take, and no name server knows.
_NOT_IN_A_HOST = re.compile(r"[\s\x00-\x20%<>\"\\^`{|}]")


def without_credentials(url: str) -> str:
    """The address without name and password: for messages, logs and the environment of commands."""
    return _CREDENTIALS.sub(r"\1", url)


def shown(url: str) -> str:
    """An address for messages: without user, password, query and fragment, which may hold secrets."""
    return re.split(r"[?#]", without_credentials(url), maxsplit=1)[0]


def server_address(text: str) -> str:
    """Check an address, `http[s]://[name:password@]host[:port][/path]`; it comes back without a final slash.

    Raises BadRequest that says what is wrong with it.
    """
    problem = _problem(text)
    if problem:
        shown = without_credentials(text)
        raise BadRequest(f"{shown!r} is not the address of a server: {problem}, such as {DEFAULT_SERVER}")
    return text.rstrip("/")


def _problem(text: str) -> str:
    if not text.lower().startswith(("http://", "https://")):
        return "it has to begin with http:// or https://"
    try:
        url = httpx.URL(text)
        host, port = url.host, url.port
    except (httpx.InvalidURL, ValueError) as exc:  # idna's errors are ValueErrors
        return f"it cannot be read ({exc})"
    if not host or _NOT_IN_A_HOST.search(host):
        return "it has to name a host"
    if port is not None and not 1 <= port <= MAX_PORT:
        return f"a port lies between 1 and {MAX_PORT}"
    if url.query or url.fragment or "?" in text or "#" in text:
        return "it has to end before ? and #"
    return ""
