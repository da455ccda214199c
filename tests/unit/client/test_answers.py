"""What a web server may answer in place of a file, and what is taken for the file."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from awe_client.daemon.servers import Servers
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, Sources, StepError
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.faults import Cut
from tests.support.served import Served

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 100


class Odd(Served):
    """Answers every GET with what `answer` makes of it."""

    def __init__(self, answer: Callable[[Request], Response]) -> None:
        super().__init__()
        self._answer = answer

    def routes(self) -> list[BaseRoute]:
        return [Route("/{name:path}", self.guarded(self._get), methods=["GET"])]

    async def _get(self, request: Request) -> ASGIApp:
        return self._answer(request)


@contextmanager
def answering(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Iterator[Odd]:
    with Odd(lambda _: Response(body, status, headers)) as served:
        yield served


Get = Callable[[str, Path, Wanted], Awaitable[object]]


@pytest.fixture
async def get() -> AsyncIterator[Get]:
    servers = Servers(["http://127.0.0.1:9"], authorization="", transfer_timeout_s=5.0, transfers=8)
    sources = Sources(servers, timeout_s=5.0, retry_base_s=0.001)
    try:
        yield sources.get
    finally:
        await sources.close()
        await servers.close()


@pytest.mark.parametrize("status", [200, 203])
async def test_an_answer_that_is_the_file_is_taken(get: Get, tmp_path: Path, status: int) -> None:
    with answering(status, DATA) as served:
        await get(f"{served.url}/x", tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "body", "tries"),
    [
        (201, b"made", 1),
        (202, b"soon", FOREIGN_ATTEMPTS),  # it is being prepared: a little later it may be there
        (204, b"", 1),
        (205, b"", 1),
        (207, b"many", 1),
        (226, b"diff", 1),
        (300, b"abcd", 1),
        (302, b"abc", 1),
        (304, b"", 1),
    ],
)
@pytest.mark.parametrize("wanted", [Wanted(), Wanted(offset=2, length=3)], ids=["whole", "piece"])
async def test_an_answer_that_is_no_file_is_not_taken_for_it(
    get: Get, tmp_path: Path, status: int, body: bytes, tries: int, wanted: Wanted
) -> None:
    with (
        answering(status, body) as served,
        pytest.raises(StepError, match=f"cannot fetch .*answered {status} ") as caught,
    ):
        await get(f"{served.url}/x", tmp_path / "x", wanted)
    assert caught.value.failure.kind is FailureKind.INPUT
    assert len(served.requests) == tries
    assert os.listdir(tmp_path) == []


async def test_a_piece_that_nobody_asked_for_is_not_the_file(get: Get, tmp_path: Path) -> None:
    headers = {"Content-Range": f"bytes 0-999/{len(DATA)}"}
    with answering(206, DATA[:1000], headers) as served, pytest.raises(StepError, match="206") as caught:
        await get(f"{served.url}/x", tmp_path / "x", Wanted())
    assert caught.value.failure.kind is FailureKind.INPUT
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "said",
    ["", "bytes */25600", "bytes 0-2/25600", "bytes 3-5/25600", "bytes 4-2/9", "bytes 2-4/4", "lines 2-4/9"],
)
async def test_a_piece_must_say_that_it_is_the_one_that_was_asked_for(
    get: Get, tmp_path: Path, said: str
) -> None:
    headers = {"Content-Range": said} if said else {}
    with answering(206, DATA[2:5], headers) as served, pytest.raises(StepError) as caught:
        await get(f"{served.url}/x", tmp_path / "x", Wanted(offset=2, length=3))
    assert caught.value.failure.kind is FailureKind.INPUT
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", ["25600", "*"])
async def test_a_piece_that_says_so_is_taken(get: Get, tmp_path: Path, size: str) -> None:
    with answering(206, DATA[2:5], {"Content-Range": f"bytes 2-4/{size}"}) as served:
        await get(f"{served.url}/x", tmp_path / "x", Wanted(offset=2, length=3))
    assert (tmp_path / "x").read_bytes() == DATA[2:5]


class Growing(Odd):
    """Breaks off after 1000 bytes, and says then that it has so many."""

    def __init__(self, size: int) -> None:
        super().__init__(self._rest)
        self._size = size

    def _rest(self, request: Request) -> Response:
        asked = request.headers.get("range", "")
        if not asked:
            return StreamingResponse(self._begin(), 200, {"ETag": '"1"', "Content-Length": str(len(DATA))})
        first = int(asked.removeprefix("bytes=").rstrip("-"))
        headers = {"ETag": '"1"', "Content-Range": f"bytes {first}-{len(DATA) - 1}/{self._size}"}
        return Response(DATA[first:], 206, headers)

    async def _begin(self) -> AsyncIterator[bytes]:
        yield DATA[:1000]
        raise Cut


async def test_the_rest_of_a_file_of_another_size_is_not_its_rest(get: Get, tmp_path: Path) -> None:
    with Growing(len(DATA)) as served:
        await get(f"{served.url}/x", tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == DATA
    with Growing(len(DATA) + 5) as served, pytest.raises(StepError, match="25605 bytes") as caught:
        await get(f"{served.url}/y", tmp_path / "y", Wanted())
    assert caught.value.failure.kind is FailureKind.INPUT
    assert not (tmp_path / "y").exists()
