"""Fill an attempt's directory: predata, inputs, attributes, script."""

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from awe_client.daemon.attempt import USERATTR_NAME, Attempt
from awe_client.daemon.environment import SCRIPT_NAME
from awe_client.daemon.predata import PredataCache
from awe_client.daemon.progress import Meter
from awe_client.daemon.servers import Patience, Servers
from awe_client.daemon.transfer import Sources, StepError, disk_error
from awe_client.daemon.unpack import Refused, unpack
from awe_client.daemon.workdir import NotInside, make_directory, place, write_new
from awe_client.sdk.address import shown
from awe_client.sdk.download import Wanted, known_of
from shared_models.archives import is_archive
from shared_models.errors import AweError
from shared_models.file_urls import is_file_url
from shared_models.limits import MAX_ATTRIBUTES_BYTES
from shared_models.messages import TaskForClient
from shared_models.paths import normal_relative_path
from shared_models.states import FailureKind
from shared_models.views import NodeView

_MAX_DOCUMENT_BYTES = 2 * MAX_ATTRIBUTES_BYTES  #: of a foreign node, which may say more than attributes

#: Where an archive lies until it is unpacked.
_ARCHIVE_NAME = ".awe-archive"


class Fetcher:
    """Brings everything an attempt needs into its directory. Every method raises StepError."""

    def __init__(self, servers: Servers, sources: Sources, cache: PredataCache) -> None:
        self._servers = servers
        self._sources = sources
        self._cache = cache

    async def fetch(self, attempt: Attempt, meter: Meter) -> list[str]:
        """Fill the directory; returns the predata entries in use, to be given to `release` at the end."""
        used: list[str] = []
        _expect(attempt, meter)
        try:
            await asyncio.to_thread(self._lay_out, attempt)
            for entry in attempt.task.message["predata"]:
                if key := await self._link_predata(attempt, entry, meter):
                    used.append(key)
            for entry in attempt.task.message["inputs"]:
                await self._fetch_input(attempt, entry, meter)
        except BaseException as exc:
            self.release(used)
            if isinstance(exc, NotInside):
                raise StepError(FailureKind.INPUT, str(exc)) from exc
            if isinstance(exc, OSError):
                raise disk_error(exc, str(exc.filename or "a file")) from exc
            raise
        return used

    def release(self, used: list[str]) -> None:
        """The attempt is over: its predata may go."""
        for key in used:
            self._cache.done(key)

    def _lay_out(self, attempt: Attempt) -> None:
        """Make the directory and everything that is not fetched."""
        make_directory(attempt.directory)
        message = attempt.task.message
        if message.get("userattr"):
            write_new(attempt.directory, USERATTR_NAME, json.dumps(message["userattr"], indent=1))
        script = message["cmd"].get("cmd_script")
        if script:
            if SCRIPT_NAME in _names_of(message):
                raise StepError(FailureKind.INPUT, f"{SCRIPT_NAME} is the script's own name: choose another")
            write_new(attempt.directory, SCRIPT_NAME, "\n".join(script) + "\n")
        # Directories of outputs are the command's to make: a plain mkdir of its own must not fail.
        for name in (attempt.task.stdout, attempt.task.stderr, attempt.task.stdin):
            if name:
                place(attempt.directory, name)

    async def _fetch_input(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter) -> None:
        name = entry["filename"]
        url = entry.get("url") or ""
        if entry.get("attrfile"):
            await self._fetch_attributes(attempt, entry)
        if entry.get("nofile"):
            return
        if is_archive(name):
            await self._fetch_archive(attempt, entry)
            return
        target = place(attempt.directory, name)
        if name in attempt.pieces:
            await self._fetch_part(attempt, entry, meter)
            return
        if not url:
            raise StepError(FailureKind.INPUT, f"input {name} has no address")
        wanted = _whole(entry)
        if is_file_url(url) and not wanted.gunzip:
            await self._link_shared(attempt, name, url, wanted)
            meter.there(name)
        else:
            await self._sources.get(url, target, wanted, meter.follow(name), is_shock=_is_shock(entry))

    async def _fetch_archive(self, attempt: Attempt, entry: Mapping[str, Any]) -> None:
        """Get an archive, whole and checked, and unpack what the input's name takes of it."""
        name, url = entry["filename"], entry.get("url") or ""
        if not url:
            raise StepError(FailureKind.INPUT, f"input {name} has no address")
        archive = place(attempt.directory, _ARCHIVE_NAME)
        await self._sources.get(url, archive, _whole(entry))
        is_stopped = threading.Event()
        work = asyncio.ensure_future(
            asyncio.to_thread(unpack, archive, attempt.directory, name, is_stopped.is_set)
        )
        try:
            await asyncio.shield(work)
        except Refused as exc:
            raise StepError(FailureKind.INPUT, f"input {name} cannot be unpacked: {exc}") from exc
        except asyncio.CancelledError:
            # The directory is removed next: nobody may write there any more.
            is_stopped.set()
            await asyncio.wait([work])
            raise
        finally:
            archive.unlink(missing_ok=True)

    async def _link_shared(self, attempt: Attempt, name: str, url: str, wanted: Wanted) -> None:
        """A whole file of a shared file system is not copied."""
        target = place(attempt.directory, name)
        attempt.links.append(await self._sources.link(url, target, wanted))

    async def _fetch_part(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter) -> None:
        """Get the attempt's own piece: by exact bytes if the server said which, else by Shock's index."""
        name, url = entry["filename"], entry.get("url") or ""
        target = place(attempt.directory, name)
        wanted = replace(_whole(entry), size=-1, md5="")
        offset, length = attempt.pieces[name]
        if length == 0:
            await asyncio.to_thread(target.touch)
            return
        if length > 0:
            wanted = replace(wanted, offset=offset, length=length)
        else:
            index = attempt.task.message.get("index") or "chunkrecord"
            query = urlencode({"index": index, "part": attempt.part})
            url = f"{url}{'&' if '?' in url else '?'}{query}"
        await self._sources.get(url, target, wanted, meter.follow(name), is_shock=_is_shock(entry))

    async def _fetch_attributes(self, attempt: Attempt, entry: Mapping[str, Any]) -> None:
        """Write the attributes of the input's node to a file."""
        name, host, node = entry["attrfile"], entry.get("host") or "", entry.get("node") or ""
        if host and node:
            target = place(attempt.directory, name)
            await self._sources.get(f"{host}/node/{node}", target, Wanted())
            document = await asyncio.to_thread(_foreign_document, target, f"{host}/node/{node}")
            attributes = document.get("attributes")
        else:
            attributes = (await self._node(entry.get("url") or "")).attributes
        text = json.dumps(attributes)
        await asyncio.to_thread(write_new, attempt.directory, name, text)

    async def _node(self, url: str) -> NodeView:
        base = url.partition("?")[0]
        if not base.startswith("/node/"):
            raise StepError(FailureKind.INPUT, f"{shown(url)} is not a node of this server: no attributes")
        patience = Patience()
        while True:
            server = self._servers.current
            try:
                return await server.get_node(base.removeprefix("/node/"))
            except AweError as exc:
                if not exc.retryable:
                    raise StepError(
                        FailureKind.INPUT, f"cannot read the attributes of {base}: {exc}"
                    ) from exc
                self._servers.failed(server)
                await patience.wait(exc)

    async def _link_predata(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter) -> str:
        """Link reference data; returns the entry of the cache that is used now, "" if none is."""
        url, name = entry.get("url") or "", entry["filename"]
        if not url:
            raise StepError(FailureKind.INPUT, f"predata {name} has no address")
        wanted = _whole(entry)
        if is_file_url(url) and not wanted.gunzip:
            await self._link_shared(attempt, name, url, wanted)
            meter.there(f"predata {name}")
            return ""
        if not wanted.md5 and url.startswith("/node/"):
            wanted = replace(known_of((await self._node(url)).file), gunzip=wanted.gunzip)
        key = self._cache.key(url, wanted.md5, unpacked=wanted.gunzip)
        follow, is_shock = meter.follow(f"predata {name}"), _is_shock(entry)
        path = await self._cache.use(
            key, lambda target: self._sources.get(url, target, wanted, follow, is_shock=is_shock)
        )
        meter.there(f"predata {name}")
        try:
            place(attempt.directory, name).symlink_to(path)
        except BaseException:
            self._cache.done(key)
            raise
        return key


def _foreign_document(path: Path, url: str) -> Mapping[str, Any]:
    """A node's document as another Shock sent it. Raises StepError if it is none."""
    what = f"cannot read the attributes of {shown(url)}"
    if path.stat().st_size > _MAX_DOCUMENT_BYTES:
        raise StepError(FailureKind.INPUT, f"{what}: more than {_MAX_DOCUMENT_BYTES} bytes came")
    try:
        document = json.loads(path.read_bytes())["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise StepError(FailureKind.INPUT, f"{what}: what came is not a node's document") from exc
    if not isinstance(document, dict):
        raise StepError(FailureKind.INPUT, f"{what}: what came is not a node's document")
    return document


def _names_of(message: TaskForClient) -> set[str]:
    """Names that are written before the command reads its script, or by its start."""
    cmd = message["cmd"]
    names = [cmd.get("stdout"), cmd.get("stderr")]
    for entry in (*message["inputs"], *message["predata"]):
        names += [entry["filename"], entry.get("attrfile")]
    return {normal_relative_path(name) for name in names if name}


def _expect(attempt: Attempt, meter: Meter) -> None:
    """Tell the meter what will be moved; predata may be here already."""
    message = attempt.task.message
    for entry in message["predata"]:
        meter.expect(f"predata {entry['filename']}", _whole(entry).size)
    for entry in message["inputs"]:
        if entry.get("nofile"):
            continue
        name = entry["filename"]
        meter.expect(name, attempt.pieces[name][1] if name in attempt.pieces else _whole(entry).size)


def _is_shock(entry: Mapping[str, Any]) -> bool:
    """Whether it is a node of another Shock; own nodes have an address without a host."""
    return bool(entry.get("host")) and entry.get("node") not in (None, "", "-")


def _whole(entry: Mapping[str, Any]) -> Wanted:
    """What is known of a whole file. A size of 0 is what a document says that does not know."""
    return Wanted(
        size=int(entry.get("size") or 0) or -1,
        md5=entry.get("md5") or "",
        gunzip=entry.get("uncompress") == "gzip",
        etag=entry.get("etag") or "",
    )
