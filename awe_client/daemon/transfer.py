"""Get one source into one file, with the patience that its kind of source deserves.

Our own server may be away for hours: that is nobody's fault, so it is waited for as long as the attempt is
held. A foreign host gets a bounded number of tries; then the input is at fault, and the report says what was
seen.
"""

import errno
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from awe_client.daemon.outcome import Failure
from awe_client.daemon.servers import Patience, Servers
from awe_client.sdk.download import Download, DownloadCorrupt, Downloaded, Wanted
from awe_client.sdk.transport import cause_of
from shared_models.errors import AweError
from shared_models.states import FailureKind

log = logging.getLogger(__name__)

FOREIGN_ATTEMPTS = 4
CORRUPT_ATTEMPTS = 2
_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class StepError(Exception):
    """A step of an attempt failed for good."""

    def __init__(self, kind: FailureKind, message: str, *, disk_full: bool = False) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)
        self.disk_full = disk_full


class Sources:
    """Opens own nodes (`/node/…`, at whichever server answers) and http(s) addresses."""

    def __init__(self, servers: Servers, *, timeout_s: float) -> None:
        self._servers = servers
        self._timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 15.0))
        self._foreign: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._foreign is not None:
            await self._foreign.aclose()

    async def get(self, url: str, target: Path, wanted: Wanted) -> Downloaded:
        """Fetch until it is there. Raises StepError."""
        own = url.startswith("/")
        if not own and urlsplit(url).scheme not in ("http", "https"):
            raise StepError(FailureKind.INPUT, f"{shown(url)}: only http and https addresses can be fetched")
        download = Download(target, wanted)
        patience = Patience() if own else Patience(cap_s=5.0)
        corrupt = 0
        try:
            while True:
                server = self._servers.current
                try:
                    return await download.attempt(lambda headers: self._open(url, headers))
                except httpx.TransportError as exc:
                    error = AweError(f"{cause_of(exc)}")
                    if own:
                        self._servers.failed(server)
                    elif patience.failures + 1 >= FOREIGN_ATTEMPTS:
                        raise StepError(FailureKind.INPUT, f"cannot fetch {shown(url)}: {error}") from exc
                except DownloadCorrupt as exc:
                    error, corrupt = exc, corrupt + 1
                    if corrupt >= CORRUPT_ATTEMPTS:
                        raise StepError(FailureKind.INPUT, f"{shown(url)}: {exc}") from exc
                    download.close()
                    download = Download(target, wanted)
                except AweError as exc:
                    error = exc
                    if not exc.retryable or (not own and patience.failures + 1 >= FOREIGN_ATTEMPTS):
                        raise StepError(FailureKind.INPUT, f"cannot fetch {shown(url)}: {exc}") from exc
                except OSError as exc:
                    raise disk_error(exc, target.name) from exc
                log.info("fetch_retried", extra={"url": shown(url), "error": str(error)})
                await patience.wait(error)
        finally:
            download.close()

    def _open(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[httpx.Response]:
        if url.startswith("/"):
            return self._servers.current.open_url(url, headers)
        if self._foreign is None:
            # A client of its own: our credentials must never reach a foreign host.
            self._foreign = httpx.AsyncClient(follow_redirects=True, timeout=self._timeout)
        return self._foreign.stream("GET", url, headers=headers)


def disk_error(exc: OSError, name: str) -> StepError:
    """Whose fault an error of our own file system is: a full or broken disk is the machine's."""
    text = exc.strerror or str(exc)
    if exc.errno in _DISK_ERRNOS:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"cannot write {name} on the client: {text.lower()}"
        return StepError(FailureKind.NODE, message, disk_full=full)
    return StepError(FailureKind.INPUT, f"cannot write {name}: {text.lower()}")


def shown(url: str) -> str:
    """An address for messages: without user, password and query, which may hold secrets."""
    parts = urlsplit(url)
    if not parts.netloc:
        return parts.path
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
