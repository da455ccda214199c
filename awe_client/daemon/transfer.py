"""Get one source into one file, with the patience that its kind of source deserves.

Our own server may be away for hours: that is nobody's fault, so it is waited for as long as the attempt is
held, also while a proxy answers in its place. Others get a bounded number of tries in a row without progress;
then the input is at fault, and the report says what was seen. So it is with one that does not keep the pace
(pace.py) or breaks off after a few bytes each time. Tried again is only what may go better: lost and cut
connections, 202, 408, 425, 429, 5xx (no sooner than Retry-After says, within bounds), and wrong bytes, once.
Not: other refusals, and a source that is not any more what the server saw.

What this machine lacks (descriptors, room, a way to the host) is not the input's fault, nor is what it may
not read or does not see: another client may.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from awe_client.daemon.disk import BeforeRemoval
from awe_client.daemon.outcome import Failure
from awe_client.daemon.pace import TooSlow, min_bytes, paced
from awe_client.daemon.progress import Follower
from awe_client.daemon.servers import BACKOFF_BASE_S, Patience, Servers
from awe_client.daemon.shared_files import SharedFiles
from awe_client.daemon.shock_source import shock_opener
from awe_client.sdk.address import shown
from awe_client.sdk.download import Download, Downloaded, Opener, Wanted
from awe_client.sdk.download_errors import DownloadCorrupt, OutOfReach
from awe_client.sdk.http_source import http_opener
from awe_client.sdk.objects import Objects
from shared_models.cookies import no_cookies
from shared_models.errors import AweError, BadRequest, Forbidden, ServerUnreachable, Unauthenticated
from shared_models.file_urls import is_file_url
from shared_models.object_urls import is_object_url
from shared_models.states import FailureKind

T = TypeVar("T")
log = logging.getLogger(__name__)

FOREIGN_ATTEMPTS = 4
FOREIGN_CAP_S = 15.0
MIN_GAIN_BYTES = 4096  #: a try that brought less was in vain
CORRUPT_ATTEMPTS = 2
#: What the name of a file can cause; everything else is the machine's own.
_NAME_ERRNOS = frozenset({
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.EILSEQ,
})  # fmt: skip


class StepError(Exception):
    """A step of an attempt failed for good."""

    def __init__(
        self, kind: FailureKind, message: str, *, disk_full: bool = False, out_of_reach: bool = False
    ) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message, out_of_reach=out_of_reach)
        self.disk_full = disk_full


class Sources:
    """Own nodes (`/node/…`, at whichever server answers), other Shocks, http(s), file, s3, gs, az."""

    def __init__(
        self,
        servers: Servers,
        *,
        timeout_s: float,
        file_roots: Sequence[str] = (),
        retry_base_s: float = BACKOFF_BASE_S,
        before_removal: BeforeRemoval = lambda: None,
    ) -> None:
        """`before_removal` is called before what came of a file is removed."""
        self._before_removal = before_removal
        self._servers = servers
        self._silence_s = timeout_s
        self._timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 15.0), pool=None)
        self._retry_base_s = retry_base_s
        self._foreign: httpx.AsyncClient | None = None
        self._files = SharedFiles(file_roots, before_removal)
        self._objects = Objects(timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        if self._foreign is not None:
            await self._foreign.aclose()

    async def get(
        self,
        url: str,
        target: Path,
        wanted: Wanted,
        on_progress: Follower | None = None,
        *,
        is_shock: bool = False,
        datatoken: str = "",
    ) -> Downloaded:
        """Fetch until it is there. Raises StepError.

        `datatoken` of the job is for Shocks that give nothing without one, and for nobody else.
        """
        if is_file_url(url) and not (wanted.gunzip or wanted.md5):
            return await self._insist(
                url, target, lambda: self._files.copy(url, target, wanted, on_progress), on_progress
            )
        try:
            opener = self._opener(url, datatoken, is_shock=is_shock)
        except (AweError, httpx.InvalidURL, UnicodeError) as exc:
            raise StepError(FailureKind.INPUT, f"cannot fetch {shown(url)}: {exc}") from exc
        download = Download(target, wanted, on_progress, self._before_removal)
        try:
            return await self._insist(
                url, target, lambda: download.attempt(opener), on_progress, download, is_shock=is_shock
            )
        finally:
            await download.close()

    async def link(self, url: str, target: Path, wanted: Wanted) -> Path:
        """Make `target` a link to a shared file that is wanted whole; returns the file's own path.

        Raises StepError.
        """
        return await self._insist(url, target, lambda: self._files.link(url, target, wanted))

    async def _insist(
        self,
        url: str,
        target: Path,
        once: Callable[[], Awaitable[T]],
        follower: Follower | None = None,
        download: Download | None = None,
        *,
        is_shock: bool = False,
    ) -> T:
        """Try until it works or makes no sense any more. Raises StepError."""
        own = url.startswith("/")
        patience = (
            self._servers.patience(base_s=self._retry_base_s)
            if own
            else Patience(base_s=self._retry_base_s, cap_s=FOREIGN_CAP_S)
        )
        corrupt = most = 0
        while True:
            server = self._servers.current
            try:
                done = await once()
                if follower is not None:
                    follower.waits("")
                return done
            except DownloadCorrupt as exc:
                error: AweError = exc
                corrupt += 1
                if corrupt >= CORRUPT_ATTEMPTS or download is None:
                    raise StepError(FailureKind.INPUT, f"{shown(url)}: {exc}") from exc
                download.start_over()
            except AweError as exc:
                error = exc
                gained = download.most - most if download is not None else 0
                if gained >= (min_bytes() if isinstance(exc, TooSlow) else MIN_GAIN_BYTES):
                    patience.reset()
                most += max(gained, 0)
                # Our own server's internal errors do not go away by waiting for hours.
                bounded = not own or exc.fields.get("status") == 500
                no_server = isinstance(exc, ServerUnreachable)
                tries = patience.failures + 1
                if not (exc.retryable or no_server) or (bounded and tries >= FOREIGN_ATTEMPTS):
                    raise _gave_up(url, exc, is_shock=is_shock) from exc
                if own:
                    self._servers.failed(server, exc)
            except OSError as exc:
                raise disk_error(exc, target.name) from exc
            log.info("fetch_retried", extra={"url": shown(url), "error": str(error)})
            if follower is not None:
                follower.waits(f"{shown(url)} cannot be fetched for now: {error}")
            await patience.wait(error)

    def _opener(self, url: str, datatoken: str, *, is_shock: bool) -> Opener:
        """Make a source of an address. Raises AweError, InvalidURL, UnicodeError if nobody can open it."""
        if url.startswith("/"):
            # Whichever server is the current one when it is asked.
            return lambda asked: self._servers.current.opener(url)(asked)
        if is_file_url(url):
            return self._files.opener(url)
        if is_object_url(url):
            return paced(self._objects.opener(url), self._silence_s)
        if urlsplit(url).scheme not in ("http", "https"):
            raise BadRequest("only http, https, file, s3, gs and az addresses can be fetched")
        address = httpx.URL(url)
        _ = address.host  # its letters may be none: better said here than in the middle of a request
        if is_shock:
            opener = shock_opener(
                lambda stretch, headers: self._client().stream("GET", stretch, headers=headers),
                url,
                datatoken,
            )
        else:
            opener = http_opener(lambda headers: self._client().stream("GET", address, headers=headers))
        return paced(opener, self._silence_s)

    def _client(self) -> httpx.AsyncClient:
        if self._foreign is None:
            # A client of its own: our credentials must never reach a foreign host. Who waits for a connection
            # waits for our own transfers, and for as long as they take.
            self._foreign = httpx.AsyncClient(
                follow_redirects=True,
                timeout=self._timeout,
                limits=self._servers.limits,
                cookies=no_cookies(),
            )
        return self._foreign


def foreign_hosts(urls: Iterable[str]) -> frozenset[str]:
    """The hosts (or buckets) of those that our own server does not have; of a shared file system its top."""
    hosts = set()
    for url in urls:
        if is_file_url(url):
            # As far as can be told without asking it: what hangs there holds up nothing elsewhere.
            hosts.add("/" + url.partition(":")[2].lstrip("/").partition("/")[0])
        elif not url.startswith("/"):
            # Without what is before it: a password may be. What is no address, nobody is asked for.
            hosts.add(url.partition("://")[2].partition("/")[0].rpartition("@")[2].lower())
    return frozenset(hosts - {""})


def _gave_up(url: str, exc: AweError, *, is_shock: bool) -> StepError:
    """Who is at fault for a source that cannot be had.

    Another client may see what this one does not, and have other credentials; a Shock is shown those of the
    job, whoever asks.
    """
    refused = isinstance(exc, Unauthenticated | Forbidden) or exc.fields.get("status") == 407
    message = f"cannot fetch {shown(url)}: {exc}"
    if isinstance(exc, OutOfReach) or (refused and not is_shock):
        return StepError(FailureKind.NODE, message, out_of_reach=True)
    return StepError(FailureKind.INPUT, message)


def disk_error(exc: OSError, name: str) -> StepError:
    """Whose fault an error of our own file system is: the machine's, unless the file's name can cause it.

    A disk that this very file may have filled has room again when the attempt is cleaned away: the client is
    not at fault.
    """
    text = (exc.strerror or str(exc)).lower()
    if exc.errno in _NAME_ERRNOS:
        return StepError(FailureKind.INPUT, f"cannot write {name}: {text}")
    full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
    return StepError(
        FailureKind.NODE,
        f"cannot write {name} on the client: {text}",
        disk_full=full,
        out_of_reach=exc.errno == errno.ENOSPC,
    )
