"""An HTTP proxy before a real server, which does to requests and replies what bad lines and bad middlemen do.

    with FaultProxy(env.server.url) as proxy:
        proxy.faults.drop_reply(3, method="POST", where="/exchange")   # exactly the next three
        proxy.seed(7, {"drop-reply": 0.05, "stall": 0.02})             # any request, by odds

Bodies of any size stream through. While the server is down, connections are closed without an answer. Every
fault is counted by kind in `counts` and in the tally, as "fault drop-reply".
"""

import asyncio
import contextlib
import random
import re
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import httpx

from tests.support import tally
from tests.support.faults import Fault, Faults
from tests.support.raw_http import BLOCK, FIRST, End, Gone, Head, connect, listen
from tests.support.served import Seen

#: What may go wrong with a request by chance.
KINDS = frozenset({"503", "503-retry-after", "reset", "cut-request", "repeat", "drop-reply", "cut", "stall"})
_ANY = "GET|HEAD|PUT|POST|DELETE"
_IN_MEMORY = 2**20  #: what is kept of a request that is sent twice; the rest is in a file
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ProxyFaults(Faults):
    """What goes wrong next, as `Faults`, and what only a middleman can do. Each call arms one fault, for the
    next `times` requests of these methods with the piece `where` in path and query.

    `fail` answers without asking the server; `stall` holds the request back, before any byte of its body is
    read, until `release`; `cut` ends the reply, of whatever request, after so many bytes of its body.
    """

    def cut(self, after: int, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Close the connection after so many bytes of the reply's body; the server knows nothing of it."""
        super().cut(after, times, method=method, where=where)

    def stall(self, after: int = 0, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Hold the request back until `release`."""
        assert not after, "a request is held back as a whole"
        super().stall(0, times, method=method, where=where)

    def cut_request(self, after: int, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Pass so many bytes of the request's body on, then close both connections."""
        self._arm(Fault("cut-request", times, method, where, at=after))

    def drop_reply(self, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Let the server do what it was asked, and lose the reply: the connection is closed instead."""
        self._arm(Fault("drop-reply", times, method, where))

    def repeat(self, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Send the request twice, and give the second reply."""
        self._arm(Fault("repeat", times, method, where))

    def reset(self, times: float = 1, *, method: str = _ANY, where: str = "") -> None:
        """Reset the connection; the server sees nothing of the request."""
        self._arm(Fault("reset", times, method, where))


class FaultProxy:
    """Use it in a with statement; it runs in a thread of its own and listens at `url`.

    `faults` says what goes wrong next, `seed` what does by chance. `drops` says of a reply of up to 1 MiB,
    whole as it is, whether it is lost on its way, when the server has acted already. `counts` has the faults
    by kind.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.faults = ProxyFaults()
        self.drops: Callable[[Seen, httpx.Response], bool] | None = None
        self.counts: Counter[str] = Counter()
        self.url = ""
        self._chance: _Chance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = asyncio.Event()

    @property
    def dropped(self) -> int:
        """How many replies were lost."""
        return self.counts["drop-reply"]

    def seed(self, seed: int, odds: Mapping[str, float], *, stall_s: float = 1.0) -> None:
        """From now on each request has these odds of each kind of fault; a stall lasts up to `stall_s`.

        The same seed gives the n-th request of a method and path (ids aside) the same fault, whatever others
        do meanwhile. What must not be repeated blindly (docs/wire.md, Repeating) is not.
        """
        assert KINDS.issuperset(odds), odds
        self._chance = _Chance(seed, dict(odds), stall_s)

    def clear(self) -> None:
        """Be well again."""
        self._chance = None
        self.faults.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Listen."""
        line = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{line.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop, line), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Cut every connection and listen no more."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the proxy does not end"
        self._loop = self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop, line: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._listen(line))

    async def _listen(self, line: socket.socket) -> None:
        server = await listen(line, self._serve)
        await self._stopped.wait()
        server.close()
        await asyncio.sleep(0)  # who was accepted in this moment is closed only once its task has begun
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed is closed for good in the next round of the loop

    async def _serve(self, near: End) -> None:
        """One connection of a client, request after request."""
        gone = asyncio.ensure_future(near.gone.wait())
        try:
            goes_on = True
            while goes_on:
                head = await near.head()
                passing = asyncio.ensure_future(self._pass_on(head, near))
                try:
                    await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
                    goes_on = passing.done() and passing.result()
                finally:
                    passing.cancel()
                    await asyncio.gather(passing, return_exceptions=True)
        except (Gone, OSError, asyncio.CancelledError):  # the last: the proxy ends, and nobody waits for this
            return
        finally:
            gone.cancel()
            near.close()

    async def _pass_on(self, head: Head, near: End) -> bool:
        """One request and its reply; whether the connection may be used again."""
        method, target, _ = head.first.split(" ")
        path, _, query = target.partition("?")
        seen = Seen(method, path, query, head.headers)
        fault = await self._next_fault(seen)
        body = near.body(head)
        if fault is None:
            return (await self._exchange(seen, head, body, near)).goes_on
        self._count(_name(fault))
        if fault.status:
            async for _ in body:
                pass
            await near.send(_refusal(fault))
            return True
        match fault.kind:
            case "reset":
                near.reset()
            case "cut-request":
                await self._cut_request(head, body, fault.at)
            case "repeat":
                return await self._repeat(seen, head, body, near)
            case "drop-reply":
                await self._exchange(seen, head, body, None)
            case "cut":
                await self._exchange(seen, head, body, near, cut_at=fault.at)
        return False

    async def _next_fault(self, seen: Seen) -> Fault | None:
        """The fault of this request; it was held back already if it had to be."""
        target = f"{seen.path}?{seen.query}"
        if self.faults.take("stall", seen.method, target):
            self._count("stall")
            await self._hold()
        for kind in ("fail", "reset", "cut-request", "repeat", "drop-reply", "cut"):
            if fault := self.faults.take(kind, seen.method, target):
                return fault
        if self._chance is None or (chosen := self._chance.next(seen)) is None:
            return None
        fault, pause_s = chosen
        if fault.kind == "stall":
            self._count("stall")
            await asyncio.sleep(pause_s)
            return None
        return fault

    async def _hold(self) -> None:
        self.faults.stalled += 1
        try:
            while self.faults.held.is_set():  # noqa: ASYNC110 - set and cleared by other threads
                await asyncio.sleep(0.01)
        finally:
            self.faults.stalled -= 1

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1
        tally.count(f"fault {kind}")

    async def _cut_request(self, head: Head, body: AsyncIterator[bytes], after: int) -> None:
        with contextlib.closing(await connect(*self._target)) as far:
            await far.send(head.raw)
            async for piece in body:
                await far.send(piece[:after])
                after -= len(piece)
                if after <= 0:
                    break

    async def _repeat(self, seen: Seen, head: Head, body: AsyncIterator[bytes], near: End) -> bool:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
            async for piece in body:
                kept.write(piece)
            kept.seek(0)
            first = await self._exchange(seen, head, _pieces(kept), None)
            kept.seek(0)
            more = f"{FIRST}: {first.status}\r\n".encode()
            return (await self._exchange(seen, head, _pieces(kept), near, more=more)).goes_on

    async def _exchange(
        self,
        seen: Seen,
        head: Head,
        body: AsyncIterator[bytes],
        near: End | None,
        cut_at: int | None = None,
        more: bytes = b"",
    ) -> "_Passed":
        """Ask the server, and give its reply, with `more` headers, to `near`, or to nobody."""
        with contextlib.closing(await connect(*self._target)) as far:
            await far.send(head.raw)
            sending = asyncio.ensure_future(_send(body, far))
            try:
                while (reply := await far.head()).status < 200:
                    if near is not None:
                        await near.send(reply.raw)
                reply = replace(reply, raw=reply.raw[:-2] + more + reply.raw[-2:])
                has_body = seen.method != "HEAD" and reply.status not in (204, 304)
                pieces = far.body(reply, until_close=True) if has_body else _nothing()
                if self.drops and near and (reply.length or 0) <= _IN_MEMORY and not reply.is_chunked:
                    whole = b"".join([piece async for piece in pieces])
                    if self.drops(seen, httpx.Response(reply.status, headers=reply.headers, content=whole)):
                        self._count("drop-reply")
                        return _Passed(reply.status, goes_on=False)
                    pieces = _nothing(whole)
                goes_on = await _give(reply, pieces, near, cut_at)
                await sending  # an early reply: the rest of the request is read, and nobody wants it
                return _Passed(reply.status, goes_on)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


class _Passed(NamedTuple):
    """A request and its reply."""

    status: int
    goes_on: bool  #: the connection of who asked may be used again


class _Chance:
    """Faults by odds, the same for the same seed."""

    def __init__(self, seed: int, odds: dict[str, float], stall_s: float) -> None:
        self._seed, self._odds, self._stall_s = seed, odds, stall_s
        self._seen: Counter[str] = Counter()

    def next(self, seen: Seen) -> tuple[Fault, float] | None:
        """A fault for this request, and how long it lasts if it is a stall."""
        what = f"{seen.method} {_ID.sub('*', seen.path)}"
        self._seen[what] += 1
        rng = random.Random(f"{self._seed} {what} {self._seen[what]}")
        at, pause_s, drawn = int(200 ** rng.random()), rng.uniform(0, self._stall_s), rng.random()
        for kind, odds in self._odds.items():
            drawn -= odds
            if drawn < 0:
                is_allowed = kind != "repeat" or _may_be_repeated(seen)
                return (_chosen(kind, at), pause_s) if is_allowed else None
        return None


def _chosen(kind: str, at: int) -> Fault:
    """A fault as if it had been armed; only cuts look at `at`, a number of bytes."""
    if kind.startswith("503"):
        headers = {"Retry-After": "1"} if kind == "503-retry-after" else {}
        return Fault("fail", 1, _ANY, "", status=503, text="failed on purpose", headers=headers)
    return Fault(kind, 1, _ANY, "", at=at)


def _name(fault: Fault) -> str:
    """As it is counted."""
    if fault.kind != "fail":
        return fault.kind
    return f"{fault.status}-retry-after" if "Retry-After" in fault.headers else str(fault.status)


def _may_be_repeated(seen: Seen) -> bool:
    if seen.method == "POST" and seen.path == "/job":
        return "idempotency-key" in seen.headers
    return not (seen.method == "POST" and seen.path == "/node") or "work=" in seen.query


def _refusal(fault: Fault) -> bytes:
    """As proxies do it: no envelope."""
    text = fault.text.encode()
    headers = {"Content-Type": "text/plain", "Content-Length": str(len(text)), **fault.headers}
    lines = [f"HTTP/1.1 {fault.status} On purpose", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + text


async def _send(body: AsyncIterator[bytes], far: End) -> None:
    """Pass a request's body on; when the server wants no more of it, read the rest all the same, as the
    client looks for a reply only then.
    """
    wanted = True
    async for piece in body:
        if wanted:
            try:
                await far.send(piece)
            except OSError:
                wanted = False


async def _give(reply: Head, pieces: AsyncIterator[bytes], near: End | None, cut_at: int | None) -> bool:
    """Pass a reply on; whether the connection goes on after it."""
    if near is not None:
        await near.send(reply.raw)
    async for piece in pieces:
        if cut_at is not None and len(piece) >= cut_at:
            if near is not None:
                await near.send(piece[:cut_at])
            return False
        if near is not None:
            await near.send(piece)
        if cut_at is not None:
            cut_at -= len(piece)
    is_framed = reply.is_chunked or reply.length is not None or reply.status in (204, 304)
    return cut_at is None and is_framed and reply.headers.get("connection", "").lower() != "close"


async def _nothing(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _pieces(file: "tempfile.SpooledTemporaryFile[bytes]") -> AsyncIterator[bytes]:
    while piece := file.read(BLOCK):
        yield piece
