"""Which names this server goes by, and so which pages of a browser are its own.

While nobody logs in, whoever can speak to the server may do all, and a browser speaks for any page it shows.
A page of another site names its origin. One whose own name was made to mean 127.0.0.1 (DNS rebinding) is of
the same origin for the browser, but still asks by that name: nobody reaches a loopback address by a name of
the DNS.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit


class Names:
    """The hosts of one server: every name if it listens to other machines."""

    def __init__(self, listens_on: str, public_url: str = "") -> None:
        self._is_local = _is_loopback(listens_on)
        public = urlsplit(public_url)
        self._public_host = public.netloc.rpartition("@")[2].encode()
        self._public_name = public.hostname

    def has(self, host: bytes) -> bool:
        """Whether a request for this host (and port, if any) is for this server. Programs may name none."""
        if not self._is_local or not host:
            return True
        name = _name_of(host)
        return _is_loopback(name) or (bool(name) and name == self._public_name)

    def is_foreign(self, origins: Iterable[bytes], host: bytes) -> bool:
        """Whether a request is sent for a page of another origin, or of none. Programs send no Origin."""
        ours = {known for known in (host, self._public_host) if known}
        return any(origin.partition(b"://")[2] not in ours for origin in origins)


@lru_cache(maxsize=64)
def _name_of(host: bytes) -> str:
    """The name or address in a Host header; "" if there is none in it."""
    try:
        return (urlsplit(b"//" + host).hostname or b"").decode("ascii")
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def _is_loopback(name: str) -> bool:
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
