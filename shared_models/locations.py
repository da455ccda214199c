"""Where a file of a document lives: `host`, `node`, `url` and `origin` brought into one form.

After `settle_input` and `settle_output` an IO is one of
  own node       host "", node set, url ""
  foreign node   host, node and url set (another Shock)
  URL            url set, node ""
  origin         origin set, the rest empty (the server fills in the node)
  output         all empty (the server makes the node)
Source: AWE lib/core/io.go Url2Shock, DataUrl; differs: our own address is recognised and cleared, and what
the server or a client could not reach is refused at once.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from shared_models.documents import IO
from shared_models.placeholders import left_over, placeholder_in

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_NODE_ID = re.compile(_UUID)
_NODE_URL = re.compile(rf"(?P<host>[^?#]*)/node/(?P<node>{_UUID})/?(?:[?#].*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SOURCE_SCHEMES = ("http", "https")


class OwnHosts:
    """The addresses under which this server is reached, as `http://host:port[/path]` or `host:port`."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        self._known = {address for host in hosts if (address := _address(host))}

    def __contains__(self, url: str) -> bool:
        return _address(url) in self._known


def _address(url: str) -> str | None:
    """Give host:port/path, the same for every spelling of one address; None if it is not one."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}" if parts.hostname else None


def settle_input(io: IO, own: OwnHosts) -> str | None:
    """Bring an input or predata into its form, or say what is wrong as `<key>: <reason>`."""
    if io.origin:
        _clear(io)
        return None
    problem = _settle(io, own)
    if problem:
        return problem
    if io.url:
        reason = source_problem(io.url)
        return f"url: {reason}" if reason else None
    return None if io.node else "node: is missing; a file comes from a node, a url, or an origin task"


def settle_output(io: IO, own: OwnHosts) -> str | None:
    """Bring an output into its form, or say what is wrong as `<key>: <reason>`."""
    problem = _settle(io, own)
    if problem:
        return problem
    reason = sink_problem(io)
    if reason:
        return reason
    _clear(io)
    return None


def source_problem(url: str) -> str | None:
    """Say why data cannot be read from a URL, or None. The one place that knows the sources there are."""
    scheme = url.partition(":")[0].lower()
    if scheme in _SOURCE_SCHEMES:
        return None
    return f"data cannot be read from '{scheme}:' addresses; use a node, an origin, or an http(s) URL"


def sink_problem(io: IO) -> str | None:
    """Say why an output cannot be stored as wanted, or None. The one place that knows the sinks there are."""
    if io.host or io.url:
        key, value = ("host", io.host) if io.host else ("url", io.url)
        return f"{key}: '{value[:200]}' is not this server, and outputs are kept only here; leave {key} out"
    if io.type not in ("", "basic"):
        return f"type: outputs of type '{io.type}' are not supported; leave it out to store the file"
    return None


def _clear(io: IO) -> None:
    if io.host or io.node or io.url:
        io.host = io.node = io.url = ""


def _settle(io: IO, own: OwnHosts) -> str | None:
    if not (io.host or io.node or io.url):
        return None
    for key, value in (("host", io.host), ("node", io.node), ("url", io.url)):
        placeholder = placeholder_in(value)
        if placeholder:
            return f"{key}: '{value[:200]}' {left_over(placeholder)}"
    io.node = "" if io.node == "-" else io.node.lower()
    if io.node and not _NODE_ID.fullmatch(io.node):
        return f"node: '{io.node[:200]}' is not a node id (a uuid)"
    problem = _settle_url(io) or _settle_host(io, own)
    if problem:
        return problem
    if not io.node:
        io.host = "" if io.url else io.host
    elif not io.host:
        io.url = ""
    elif "?" not in io.url:
        io.url = f"{io.host}/node/{io.node}?download"
    return None


def _settle_url(io: IO) -> str | None:
    """Check the url and take host and node out of a Shock URL."""
    if not io.url:
        return None
    found = _NODE_URL.fullmatch(io.url)
    if not (found and not found["host"]):  # `/node/<id>` is how this server shows its own nodes
        reason = _malformed(io.url)
        if reason:
            return f"url: {reason}"
    if not found:
        return None
    node = found["node"].lower()
    if io.node and io.node != node:
        return f"node: '{io.node}' is not the node of the url, '{node}'"
    io.node, io.host = node, found["host"]
    return None


def _malformed(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        complete = bool(parts.scheme and parts.hostname and parts.path) and (parts.port or 0) >= 0
    except ValueError:
        complete = False
    if _UNPRINTABLE.search(url):
        complete = False
    elif not complete and "://" in url and source_problem(url):
        return source_problem(url)  # file:///x has no host, but that is not what is wrong with it
    return None if complete else f"Not a valid url: {url[:200]}"


def _settle_host(io: IO, own: OwnHosts) -> str | None:
    """Check the host; this server's own address is cleared."""
    host = io.host.rstrip("/")
    if not host or host in own:
        io.host = ""
        return None
    reason = _malformed(f"{host}/") or source_problem(host)
    if reason and "://" not in host:
        reason = f"'{host[:200]}' needs a scheme, as in http://{host[:200]}"
    io.host = host
    return f"host: {reason}" if reason else None
