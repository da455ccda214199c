"""Fill an attempt's directory: predata, inputs, attributes, script."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from awe_client.daemon import looks
from awe_client.daemon.attempt import USERATTR_NAME, Attempt, Link
from awe_client.daemon.cache import Cache
from awe_client.daemon.copies import in_thread
from awe_client.daemon.environment import SCRIPT_NAME
from awe_client.daemon.outcome import Failure
from awe_client.daemon.progress import Meter
from awe_client.daemon.servers import Servers
from awe_client.daemon.transfer import Sources, StepError, disk_error
from awe_client.daemon.unpack import Refused, unpack
from awe_client.daemon.whole_files import WholeFiles, is_shock, token_of, whole
from awe_client.daemon.workdir import NotInside, make_directory, place, write_new
from awe_client.sdk.address import shown
from awe_client.sdk.download import Wanted
from awe_client.sdk.threads import file_work
from shared_models.archives import is_archive, is_pattern
from shared_models.errors import AweError, ServerUnreachable
from shared_models.file_urls import is_file_url
from shared_models.limits import MAX_ATTRIBUTES_BYTES
from shared_models.messages import TaskForClient
from shared_models.paths import normal_relative_path
from shared_models.states import FailureKind
from shared_models.views import NodeView

_MAX_DOCUMENT_BYTES = 2 * MAX_ATTRIBUTES_BYTES  #: of a foreign node, which may say more than attributes


class Fetcher:
    """Brings everything an attempt needs into its directory. Every method raises StepError."""

    def __init__(self, servers: Servers, sources: Sources, cache: Cache, free_floor_bytes: int) -> None:
        """`free_floor_bytes` of the disk are to stay free beside what is fetched."""
        self._servers = servers
        self._sources = sources
        self._cache = cache
        self._whole = WholeFiles(sources, cache)
        self._free_floor_bytes = free_floor_bytes

    async def fetch(self, attempt: Attempt, meter: Meter) -> None:
        """Fill the directory. What it has links to stays in the cache until `release` is called."""
        _expect(attempt, meter)
        try:
            await self._cache.make_room(self._free_floor_bytes + meter.bytes_known)
            await file_work(self._lay_out, attempt)
            for entry in attempt.task.message["predata"]:
                with _named(entry["filename"]):
                    await self._link(attempt, entry, meter, f"predata {entry['filename']}")
            for entry in attempt.task.message["inputs"]:
                with _named(entry["filename"]):
                    await self._fetch_input(attempt, entry, meter)
        except BaseException as exc:
            self.release(attempt)
            if isinstance(exc, NotInside):
                raise StepError(FailureKind.INPUT, str(exc)) from exc
            if isinstance(exc, OSError):
                raise disk_error(exc, str(exc.filename or "a file")) from exc
            raise

    def release(self, attempt: Attempt) -> None:
        """The attempt is over: what it has links to may leave the cache."""
        self._whole.release(attempt)

    async def spoilt(self, attempt: Attempt) -> Failure | None:
        """Why the command cannot have read what it was meant to: a file it had a link to was changed."""
        return await looks.changed(attempt.links) or await self._whole.spoilt(attempt)

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
            await self._fetch_archive(attempt, entry, meter)
            return
        if name in attempt.pieces:
            await self._fetch_part(attempt, entry, meter)
            return
        if entry.get("cache") or (is_file_url(url) and not whole(entry).gunzip):
            await self._link(attempt, entry, meter, name)
            return
        if not url:
            raise StepError(FailureKind.INPUT, f"input {name} has no address")
        target = place(attempt.directory, name)
        await self._whole.copy(attempt, entry, target, meter.follow(name))
        meter.there(name)

    async def _fetch_archive(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter) -> None:
        """Get an archive, whole and checked, and unpack what the input's name takes of it."""
        name, url = entry["filename"], entry.get("url") or ""
        if not url:
            raise StepError(FailureKind.INPUT, f"input {name} has no address")

        async def read(archive: Path) -> None:
            try:
                made = await in_thread(unpack, archive, attempt.directory, name)
            except Refused as exc:
                raise StepError(FailureKind.INPUT, f"input {name} cannot be unpacked: {exc}") from exc
            if any(is_pattern(output["filename"]) for output in attempt.task.outputs):
                attempt.unpacked |= made

        # Beside the directory: whatever name it had there, an input or a member could have it, too.
        target = attempt.directory.with_name(f"{attempt.directory.name}.archive")
        await self._whole.read(attempt, entry, target, meter.follow(name), read)
        meter.there(name)

    async def _link(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter, label: str) -> None:
        """Link a file that others use, too: of a shared file system as it is, else of the cache."""
        name, url = entry["filename"], entry.get("url") or ""
        if not url:
            raise StepError(FailureKind.INPUT, f"{label} has no address")
        target, wanted = place(attempt.directory, name), whole(entry)
        if is_file_url(url) and not (wanted.gunzip or wanted.md5):
            path = await self._sources.link(url, target, wanted)
            version = wanted.etag or await looks.version_before(path)
            attempt.links.append(Link(name, path, version=version))
        else:
            await self._whole.link(attempt, entry, target, meter.follow(label))
        meter.there(label)

    async def _fetch_part(self, attempt: Attempt, entry: Mapping[str, Any], meter: Meter) -> None:
        """Get the attempt's own piece: by exact bytes if the server said which, else by Shock's index."""
        name, url = entry["filename"], entry.get("url") or ""
        target = place(attempt.directory, name)
        wanted = replace(whole(entry), size=-1, md5="")
        offset, length = attempt.pieces[name]
        if length == 0:
            await file_work(target.touch)
            return
        if length > 0:
            wanted = replace(wanted, offset=offset, length=length)
        else:
            index = attempt.task.message.get("index") or "chunkrecord"
            query = urlencode({"index": index, "part": attempt.part})
            url = f"{url}{'&' if '?' in url else '?'}{query}"
        await self._sources.get(
            url,
            target,
            wanted,
            meter.follow(name),
            is_shock=is_shock(entry),
            datatoken=token_of(attempt),
        )

    async def _fetch_attributes(self, attempt: Attempt, entry: Mapping[str, Any]) -> None:
        """Write the attributes of the input's node to a file."""
        name, host, node = entry["attrfile"], entry.get("host") or "", entry.get("node") or ""
        if host and node:
            target = place(attempt.directory, name)
            url, wanted = f"{host}/node/{node}", Wanted(max_bytes=_MAX_DOCUMENT_BYTES)
            await self._sources.get(url, target, wanted, is_shock=True, datatoken=token_of(attempt))
            document = await file_work(_foreign_document, target, url)
            attributes = document.get("attributes")
        else:
            attributes = (await self._node(entry.get("url") or "")).attributes
        text = json.dumps(attributes)
        await file_work(write_new, attempt.directory, name, text)

    async def _node(self, url: str) -> NodeView:
        base = url.partition("?")[0]
        if not base.startswith("/node/"):
            raise StepError(FailureKind.INPUT, f"{shown(url)} is not a node of this server: no attributes")
        patience = self._servers.patience()
        while True:
            server = self._servers.current
            try:
                return await server.get_node(base.removeprefix("/node/"))
            except AweError as exc:
                if not (exc.retryable or isinstance(exc, ServerUnreachable)):
                    raise StepError(
                        FailureKind.INPUT, f"cannot read the attributes of {base}: {exc}"
                    ) from exc
                self._servers.failed(server, exc)
                await patience.wait(exc)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Let a failure say which file it is about: the address of a node does not."""
    try:
        yield
    except StepError as exc:
        if name not in exc.failure.message:
            exc.failure = replace(exc.failure, message=f"{name}: {exc.failure.message}")
        raise


def _foreign_document(path: Path, url: str) -> Mapping[str, Any]:
    """A node's document as another Shock sent it. Raises StepError if it is none."""
    what = f"cannot read the attributes of {shown(url)}"
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
        meter.expect(f"predata {entry['filename']}", whole(entry).size)
    for entry in message["inputs"]:
        if entry.get("nofile"):
            continue
        name = entry["filename"]
        meter.expect(name, attempt.pieces[name][1] if name in attempt.pieces else whole(entry).size)
