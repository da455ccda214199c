"""Who is at fault when an input cannot be had: it, this machine, or nobody, for another may have it."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.outcome import Failure, report_of
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, Sources, StepError, disk_error
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.fake_server import FakeServer
from tests.support.http_files import HttpFiles
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.test_transfers import Place, files, place, shock, sources, sources_for

__all__ = ["files", "place", "shock", "sources"]

pytestmark = pytest.mark.anyio

MACHINES_OWN = (
    "ENOSPC", "EDQUOT", "EROFS", "EIO", "EMFILE", "ENFILE", "ENOMEM", "EACCES", "EPERM", "ESTALE",
    "ETIMEDOUT", "ENOENT", "EFBIG", "EXDEV", "ENOTCONN",
)  # fmt: skip
OF_THE_NAME = ("ENAMETOOLONG", "ENOTDIR", "EISDIR", "EEXIST", "ELOOP", "EINVAL", "EILSEQ")


async def failure_of(sources: Sources, url: str, target: Path, **how: Any) -> Failure:
    with pytest.raises(StepError) as caught:
        await sources.get(url, target, Wanted(), **how)
    assert list(target.parent.glob(f"{target.name}*")) == []
    return caught.value.failure


@pytest.mark.parametrize("name", MACHINES_OWN)
def test_what_no_name_can_cause_is_the_machines_own(name: str) -> None:
    number = getattr(errno, name)
    error = disk_error(OSError(number, os.strerror(number)), "in.txt")
    assert error.failure.kind == FailureKind.NODE
    assert str(error) == f"cannot write in.txt on the client: {os.strerror(number).lower()}"
    assert error.disk_full == (name in ("ENOSPC", "EDQUOT"))
    # There is room again once the attempt is cleaned away, but a quota or a broken disk stays.
    assert error.failure.out_of_reach == (name == "ENOSPC")


@pytest.mark.parametrize("name", OF_THE_NAME)
def test_what_a_name_causes_is_the_inputs_fault(name: str) -> None:
    number = getattr(errno, name)
    error = disk_error(OSError(number, os.strerror(number)), "in.txt")
    assert (error.failure.kind, error.disk_full) == (FailureKind.INPUT, False)


async def test_a_client_short_of_descriptors_does_not_blame_the_input(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    start()
    monkeypatch.setattr("awe_client.sdk.download.Download._open", short)
    [work] = await server.add_task(inputs=[server.input("in.txt", b"x")])
    report = await server.result(work)
    assert (report["kind"], report.get("out_of_reach")) == ("node", None)
    assert report["message"] == "cannot write in.txt on the client: too many open files"


@pytest.mark.parametrize(("name", "kind"), [("EMFILE", "node"), ("EIO", "node"), ("ENOENT", "output")])
async def test_what_the_machine_cannot_read_is_not_the_outputs_fault(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    def unreadable(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    start()
    monkeypatch.setattr("awe_client.sdk.bodies.FileBody.__aiter__", unreadable)
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    report = await server.result(work)
    assert report["kind"] == kind
    assert report["message"] == f"cannot read what the command wrote: {os.strerror(getattr(errno, name))}"


# --- what another client may have ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["get", "link"])
@pytest.mark.parametrize("name", ["ENOENT", "ESTALE", "ETIMEDOUT", "EACCES", "EPERM", "EMFILE"])
async def test_a_shared_file_that_is_not_seen_here_may_be_elsewhere(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    tries = 0

    def unseen(*_: object) -> int:
        nonlocal tries
        tries += 1
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    url = place.put("file", b"hello")
    monkeypatch.setattr("awe_client.daemon.shared_files.open_allowed", unseen)
    async with sources_for(file_roots=place.roots) as sources:
        with pytest.raises(StepError) as caught:
            await getattr(sources, how)(url, tmp_path / "x", Wanted())
    failure = caught.value.failure
    assert (failure.kind, failure.out_of_reach) == (FailureKind.NODE, True)
    assert failure.message == f"cannot fetch {url}: {os.strerror(getattr(errno, name)).lower()}"
    assert tries == (FOREIGN_ATTEMPTS if name in ("ENOENT", "ESTALE", "ETIMEDOUT") else 1)


@pytest.mark.parametrize("status", [401, 403, 407])
async def test_a_web_server_that_refuses_this_machine_may_not_refuse_another(
    files: HttpFiles, sources: Sources, tmp_path: Path, status: int
) -> None:
    url = files.put("x", b"hello")
    files.faults.fail(status)
    failure = await failure_of(sources, url, tmp_path / "x")
    assert (failure.kind, failure.out_of_reach) == (FailureKind.NODE, True)
    assert str(status) in failure.message


@pytest.mark.parametrize("status", [400, 404, 410, 451, 503])
async def test_what_a_web_server_says_to_everybody_is_the_inputs_fault(
    files: HttpFiles, sources: Sources, tmp_path: Path, status: int
) -> None:
    url = files.put("x", b"hello")
    files.faults.fail(status, FOREIGN_ATTEMPTS)
    failure = await failure_of(sources, url, tmp_path / "x")
    assert (failure.kind, failure.out_of_reach) == (FailureKind.INPUT, False)


@pytest.mark.parametrize("name", ["EMFILE", "ENETUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"])
async def test_a_machine_that_reaches_nobody_does_not_blame_the_input(
    files: HttpFiles, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    url = files.put("x", b"hello")
    monkeypatch.setattr("anyio.connect_tcp", lost)
    failure = await failure_of(sources, url, tmp_path / "x")
    is_the_hosts = name == "ECONNREFUSED"
    assert failure.kind == (FailureKind.INPUT if is_the_hosts else FailureKind.NODE)
    assert failure.out_of_reach == (not is_the_hosts)
    assert os.strerror(getattr(errno, name)) in failure.message


S3 = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "r", "AWS_ALLOW_HTTP": "true"}


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "node"), (403, "node"), (400, "input"), (404, "input"), (503, "input")]
)
async def test_an_object_store_refuses_the_machine_or_says_what_is_wrong(
    files: HttpFiles,
    sources: Sources,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    kind: str,
) -> None:
    for name, value in {**S3, "AWS_ENDPOINT_URL": files.url}.items():
        monkeypatch.setenv(name, value)
    files.faults.fail(status, FOREIGN_ATTEMPTS, text="<Key>bucket/credentials</Key>")
    failure = await failure_of(sources, "s3://bucket/my-credentials", tmp_path / "x")
    assert (str(failure.kind), failure.out_of_reach) == (kind, kind == "node")


@pytest.mark.parametrize(
    ("url", "env", "says"),
    [
        ("az://container/blob", {}, "no credentials for the store"),
        ("gs://bucket/key", {"GOOGLE_SERVICE_ACCOUNT": "/none"}, "no credentials for the store"),
        ("s3://bucket/key", {**S3, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "error sending request"),
    ],
    ids=["account", "credentials", "connection"],
)
async def test_a_machine_without_a_way_to_an_object_store_does_not_blame_the_object(
    sources: Sources,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    env: dict[str, str],
    says: str,
) -> None:
    """Where the store is, and who asks, only the machine's configuration says."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    failure = await failure_of(sources, url, tmp_path / "x")
    assert (failure.kind, failure.out_of_reach) == (FailureKind.NODE, True)
    assert says in failure.message


def test_the_report_says_so() -> None:
    failure = Failure(FailureKind.NODE, "cannot fetch it", out_of_reach=True)
    assert report_of(("w", 1), "t", failure=failure)["out_of_reach"] is True
    assert "out_of_reach" not in report_of(("w", 1), "t", failure=Failure(FailureKind.NODE, "broken"))


# --- addresses that nobody can ask ---------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://☃.net/node/7b1de3f2-0000-4000-8000-000000000000?download",
        "http://xn--a/x",
        "http://999.1.1.1/x",
        f"http://h/{'x' * 70_000}",
    ],
    ids=["snowman", "punycode", "numbers", "long"],
)
@pytest.mark.parametrize("is_shock", [False, True])
async def test_an_address_that_cannot_be_read_is_the_inputs_fault(
    sources: Sources, tmp_path: Path, url: str, is_shock: bool
) -> None:
    failure = await failure_of(sources, url, tmp_path / "x", is_shock=is_shock)
    assert failure.kind == FailureKind.INPUT
    assert failure.message.startswith("cannot fetch http://")


@pytest.mark.parametrize("target", ["http://☃.net/x", "http://xn--a/x", "http://[::1/x"])
async def test_so_is_a_redirect_to_one(
    files: HttpFiles, sources: Sources, tmp_path: Path, target: str
) -> None:
    url = files.redirect("there", target.encode().decode("latin-1"))
    assert (await failure_of(sources, url, tmp_path / "x")).kind == FailureKind.INPUT


# --- connections ---------------------------------------------------------------------------------


class Gate:
    """A host that answers nobody before so many are connected, and then everybody slowly."""

    def __init__(self, wanted: int, body_s: float) -> None:
        self._wanted = wanted
        self._body_s = body_s
        self._enough = asyncio.Event()
        self._served: list[asyncio.Task[Any]] = []
        self.connected = 0
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.append(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.connected += 1
            if self.connected >= self._wanted:
                self._enough.set()
            await self._enough.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 10\r\n\r\n")
            for _ in range(10):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(self._body_s / 10)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def __aenter__(self) -> "Gate":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/x"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._enough.set()
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._served)


@contextlib.asynccontextmanager
async def with_transfers(transfers: int, timeout_s: float) -> AsyncIterator[Sources]:
    async with sources_for(timeout_s=timeout_s, transfers=transfers) as sources:
        yield sources


async def test_as_many_files_come_from_elsewhere_at_once_as_transfers_are_allowed(tmp_path: Path) -> None:
    async with Gate(wanted=150, body_s=0.0) as gate, with_transfers(150, 10.0) as sources:
        await asyncio.gather(*(sources.get(gate.url, tmp_path / f"{i}", Wanted()) for i in range(150)))
    assert gate.connected == 150


async def test_who_waits_for_a_connection_waits_as_long_as_it_takes(tmp_path: Path) -> None:
    async with Gate(wanted=1, body_s=1.0) as gate, with_transfers(1, 0.5) as sources:
        await asyncio.gather(*(sources.get(gate.url, tmp_path / f"{i}", Wanted()) for i in range(60)))
    assert gate.connected == 60
