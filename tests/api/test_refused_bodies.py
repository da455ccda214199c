"""Bodies that are refused before all of them came: the sender is told, and not listened to for ever."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from awe_client.sdk.bodies import CountedBody
from awe_client.sdk.resuming import LARGE_BYTES, Resumed
from awe_server.api.front import Front
from awe_server.api.names import Names
from shared_models.errors import NoSpace
from shared_models.limits import MIB
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio


class Sender:
    """Sends as long as somebody reads."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces
        self.taken = 0

    async def receive(self) -> Message:
        self.left -= 1
        self.taken += MIB
        return {"type": "http.request", "body": bytes(MIB), "more_body": self.left > 0}


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 507, "headers": []})
    await send({"type": "http.response.body", "body": b"full"})


async def refused(sender: Sender, length: int) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % length)]
    scope = {"type": "http", "method": "POST", "path": "/node", "headers": headers}
    await Front(refuse, Names("127.0.0.1", ""), lambda: False)(scope, sender.receive, send)
    return sent


async def test_what_comes_after_a_refusal_is_taken_in_up_to_a_bound() -> None:
    sender = Sender(10**6)
    start, answer, end = await refused(sender, 10**6 * MIB)
    assert (b"connection", b"close") in start["headers"]
    assert (answer["body"], answer["more_body"]) == (b"full", True)
    assert not end.get("more_body")
    assert 0 < sender.taken <= 8 * MIB


async def test_a_small_body_costs_no_connection() -> None:
    sender = Sender(1)
    start, _ = await refused(sender, 100)
    assert (b"connection", b"close") not in start["headers"]
    assert sender.taken == 0


async def test_room_is_asked_for_before_a_large_body_is_sent(api: Api) -> None:
    path = f"/node/{(await api.ok('POST', '/node'))['id']}?unfinished"
    assert await api.ok("GET", path, headers={"Awe-Upload-Length": "100"}) == {"offset": 0}
    huge = {"Awe-Upload-Length": str(2**62)}
    await api.refused("GET", path, 507, "no_space", headers=huge)


class Huge:
    size = LARGE_BYTES


async def test_a_first_try_sends_all_whatever_is_there_of_others() -> None:
    async def ask(server: str, size: int) -> int:
        return size

    async def put(server: str, body: CountedBody, offset: int) -> int:
        return offset

    body: CountedBody = Huge()  # type: ignore[assignment]
    assert await Resumed(ask, put, lambda: None).attempt("server", body) == 0


async def test_an_upload_that_does_not_fit_is_not_sent() -> None:
    asked: list[int] = []

    async def ask(server: str, size: int) -> int:
        asked.append(size)
        raise NoSpace

    async def put(server: str, body: CountedBody, offset: int) -> None:
        raise AssertionError("nothing is to be sent")

    upload = Resumed(ask, put, lambda: None)
    body: CountedBody = Huge()  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(NoSpace):
            await upload.attempt("server", body)
    assert asked == [LARGE_BYTES, LARGE_BYTES]
