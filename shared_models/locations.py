"""Where a file of a document lives: `host`, `node`, `url` and `origin` brought into one form.

After `settle_input` an input or predata is one of
  own node       host "", node set, url ""
  foreign node   host, node and url set (another Shock)
  URL            url set, the rest empty: http, https, file, s3, gs, az
  origin         origin set, the rest empty (the server fills in the node)
and after `settle_output` an output is one of
  own            all empty (the server makes the node)
  foreign Shock  host set, the rest empty (a node is made there)
  URL            url set, the rest empty: http and https (PUT), file, s3, gs, az
  update         type "update": an own node, or an origin (whose output of the same name is meant)
URLs of files and objects have one spelling each: see file_urls.py and object_urls.py.
Source: AWE lib/core/io.go Url2Shock, DataUrl; differs: our own address is recognised and cleared, files and
objects are places too, and what the server or a client could not reach is refused at once.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, urlsplit

from shared_models.archives import is_archive, node_name
from shared_models.documents import IO
from shared_models.errors import InvalidDocument
from shared_models.file_urls import SAFE_IN_PATHS, is_file_url, path_of, url_of
from shared_models.hostnames import is_host
from shared_models.object_urls import OBJECT_SCHEMES, is_object_url, object_place
from shared_models.placeholders import left_over, placeholder_in
from shared_models.roots import NO_ROOTS

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_NODE_ID = re.compile(_UUID)
_NODE_URL = re.compile(rf"(?P<host>(?:https?://[^?#]*)?)/node/(?P<node>{_UUID})/?(?:[?#].*)?", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_WEB_SCHEMES = ("http", "https")
_LOGIN = (
    "holds a user name or password, which everybody who sees the job would see; "
    "servers and clients have logins in their own configuration, and Shocks are sent the job's data token"
)
_SCHEMES = (*_WEB_SCHEMES, "file", *OBJECT_SCHEMES)

#: Says why the file of a path may not be used by jobs, or None if it may.
Closed = Callable[[str], str | None]
#: Says where a path leads, all links followed.
LeadsTo = Callable[[str], str]


def no_roots(_path: str) -> str | None:
    """Where no directory is open to jobs."""
    return NO_ROOTS


def as_written(path: str) -> str:
    """Where nobody looks links up."""
    return path


class OwnHosts:
    """The addresses under which this server is reached, as `http://host:port[/path]` or `host:port`."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        self._hosts = hosts

    @cached_property
    def _known(self) -> set[str]:
        """Most documents name no place elsewhere."""
        return {address for host in self._hosts if (address := _address(host))}

    def __contains__(self, url: str) -> bool:
        return _address(url) in self._known

    def hold(self, url: str) -> bool:
        """Whether a URL is one of these addresses or below one."""
        address = _address(url) or ""
        return any(address == known or address.startswith(f"{known}/") for known in self._known)


@dataclass(slots=True, frozen=True)
class Reach:
    """What a server knows of places: its own addresses, and the files that jobs may use."""

    own: OwnHosts
    closed: Closed = no_roots
    leads_to: LeadsTo = as_written


def _address(url: str) -> str | None:
    """Give host:port/path, the same for every spelling of one address; None if it is not one."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}" if parts.hostname else None


def settle_input(io: IO, reach: Reach) -> str | None:
    """Bring an input or predata into its form, or say what is wrong as `<key>: <reason>`."""
    if io.origin:
        _clear(io)
        return None
    problem = _settle(io, reach.own)
    if problem:
        return problem
    if io.node:
        return None
    if not io.url:
        return "node: is missing; a file comes from a node, a url, or an origin task"
    reason = source_problem(io.url) or _spell(io) or _folder(io.url) or _closed(io.url, reach)
    return f"url: {reason}" if reason else None


def settle_output(io: IO, reach: Reach) -> str | None:
    """Bring an output into its form, or say what is wrong as `<key>: <reason>`."""
    if io.type == "update" and io.origin:
        _clear(io)
        return None
    given = io.host.rstrip("/")
    problem = _settle(io, reach.own) or sink_problem(io)
    if problem:
        return problem
    if io.url:
        if given and given not in reach.own:
            return f"host: '{given[:200]}' is given beside a url; leave out one of them"
        reason = _own_address(io.url, reach.own) or _spell(io) or _name(io) or _closed(io.url, reach)
        return f"url: {reason}" if reason else None
    if io.node and io.type != "update":
        io.node = ""  # the server makes the node of an output itself
    return None


def source_problem(url: str) -> str | None:
    """Say why data cannot be read from a URL, or None. The one place that knows the sources there are."""
    scheme = _scheme(url)
    if scheme in _SCHEMES:
        return None
    return f"data cannot be read from '{scheme[:50]}:' addresses; use a node, an origin, or {_a_url()}"


def sink_problem(io: IO) -> str | None:
    """Say why an output cannot be stored as wanted, or None. The one place that knows the sinks there are."""
    if io.type not in ("", "basic") and (io.host or io.url):
        key = "host" if io.host else "url"
        return f"{key}: outputs of type '{io.type}' are nodes of this server; leave {key} out"
    if io.host and io.node:
        return "node: an output makes its own node in another Shock; give only host"
    if io.url and _scheme(io.url) not in _SCHEMES:
        scheme = _scheme(io.url)
        return f"url: data cannot be written to '{scheme[:50]}:' addresses; use a Shock's host, or {_a_url()}"
    return None


def is_node_id(text: str) -> bool:
    """Whether a text is the id of a node."""
    return bool(_NODE_ID.fullmatch(text))


def stored_name(io: IO) -> str:
    """Give the name that an output has where it is kept."""
    if io.shockfilename:
        return io.shockfilename
    return node_name(io.filename) if is_archive(io.filename) else io.filename


def _a_url() -> str:
    return f"a URL of {', '.join(_SCHEMES[:-1])} or {_SCHEMES[-1]}"


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def is_web_url(url: str) -> bool:
    """Whether a URL is one of http or https."""
    return _scheme(url) in _WEB_SCHEMES


def _own_address(url: str, own: OwnHosts) -> str | None:
    if is_web_url(url) and own.hold(url):
        return f"'{url[:200]}' is an address of this server; leave url out to keep the file here"
    return None


def _spell(io: IO) -> str | None:
    """Bring the URL of a file or an object into its one spelling, or say why nothing can be there."""
    try:
        if is_file_url(io.url):
            io.url = url_of(path_of(io.url))
        elif is_object_url(io.url):
            io.url = object_place(io.url).url
    except InvalidDocument as exc:
        return exc.message
    return None


def _folder(url: str) -> str | None:
    is_folder = url.endswith("/") and not is_web_url(url)
    return f"'{url[:200]}' names a directory; name the file in it" if is_folder else None


def _closed(url: str, reach: Reach) -> str | None:
    return reach.closed(path_of(url)) if is_file_url(url) else None


def _name(io: IO) -> str | None:
    """Make a URL that ends in "/" name the file, or say why it cannot."""
    name = stored_name(io)
    quoted = quote(name, safe="/" if is_web_url(io.url) else SAFE_IN_PATHS)
    if io.url.endswith("/") and "?" not in io.url and "#" not in io.url:
        io.url += quoted
        return _spell(io)
    if io.shockfilename and not io.url.endswith(f"/{quoted}"):
        return f"names the file, and so does shockfilename '{name[:200]}'; leave that out, or end with '/'"
    return None


def _clear(io: IO) -> None:
    if io.host or io.node or io.url:
        io.host = io.node = io.url = ""


def _settle(io: IO, own: OwnHosts) -> str | None:
    if not (io.host or io.node or io.url):
        return None
    for key, value in (("host", io.host), ("node", io.node), ("url", io.url)):
        if _login(value):
            return f"{key}: {_LOGIN}"
        placeholder = placeholder_in(value)
        if placeholder:
            return f"{key}: '{value[:200]}' {left_over(placeholder)}"
    io.node = "" if io.node == "-" else io.node.lower()
    if io.node and not is_node_id(io.node):
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


def _login(address: str) -> bool:
    """Whether an address holds a user name or password; nobody may show it then."""
    authority = re.split(r"[/?#\\]", address.partition("://")[2] or address, maxsplit=1)[0]
    return "@" in authority


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
    """Check what every web address has; other schemes have rules of their own."""
    scheme = _scheme(url)
    if scheme in _SCHEMES and scheme not in _WEB_SCHEMES:
        return None
    try:
        parts = urlsplit(url)
        host, bracketed = parts.hostname or "", "[" in parts.netloc
        complete = bool(parts.scheme and host and parts.path) and (parts.port or 0) >= 0
    except ValueError:
        complete = False
    if scheme not in _SCHEMES and "://" in url:
        complete = True  # sftp:///x has no host, but that is not what is wrong with it
    if _UNPRINTABLE.search(url):
        complete = False
    if not complete:
        return f"Not a valid url: {url[:200]}"
    if scheme in _WEB_SCHEMES and not is_host(host, bracketed=bracketed):
        return f"Not a valid url: {url[:200]}: there can be no host '{host[:100]}'"
    return None


def _settle_host(io: IO, own: OwnHosts) -> str | None:
    """Check the host; this server's own address is cleared."""
    host = io.host.rstrip("/")
    if not host or host in own:
        io.host = ""
        return None
    reason = _malformed(f"{host}/")
    if "://" not in host:
        reason = f"'{host[:200]}' needs a scheme, as in http://{host[:200]}"
    elif not is_web_url(host):
        reason = f"'{host[:200]}' is not the address of a Shock, which begins with http:// or https://"
    io.host = host
    return f"host: {reason}" if reason else None
