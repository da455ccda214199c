"""Who has a place to fetch files, and who waits for one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from awe_client.daemon.places import Places
from awe_client.daemon.transfer import foreign_hosts

pytestmark = pytest.mark.anyio


class Crowd:
    """Attempts that want a place, and have it until they are sent away."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.has: list[str] = []
        self.says: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, *hosts: str) -> None:
        self._tasks[name] = asyncio.ensure_future(self._be(name, frozenset(hosts)))
        await asyncio.sleep(0)

    async def _be(self, name: str, hosts: frozenset[str]) -> None:
        async with self._places.take(hosts, lambda why: self.says.update({name: why})):
            self.has.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.has.remove(name)

    async def go(self, *names: str) -> None:
        going = [self._tasks.pop(name) for name in names or list(self._tasks)]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await asyncio.sleep(0)


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd(Places(4))
    yield made
    await made.go()
    assert made.has == []


async def test_one_host_has_half_of_the_places_at_most(crowd: Crowd) -> None:
    for i in range(8):
        await crowd.come(f"slow{i}", "slow")
    assert crowd.has == ["slow0", "slow1"]
    assert crowd.says["slow2"] == "this client moves 2 workunits' files from or to slow already"
    await crowd.come("own0")
    await crowd.come("other0", "other")
    assert crowd.has == ["slow0", "slow1", "own0", "other0"]
    await crowd.come("own1")
    assert crowd.says["own1"] == "other workunits' files are moved first"
    await crowd.go("slow0")
    assert crowd.has == ["slow1", "own0", "other0", "slow2"]
    assert crowd.says["slow2"] == ""


async def test_our_own_server_always_has_a_place(crowd: Crowd) -> None:
    for host in "abcd":
        await crowd.come(f"{host}0", host)
    assert crowd.has == ["a0", "b0", "c0"]
    await crowd.come("own")
    assert crowd.has[-1] == "own"
    await crowd.go("own")
    assert "d0" not in crowd.has


async def test_who_needs_two_hosts_holds_up_neither_while_it_waits(crowd: Crowd) -> None:
    await crowd.come("a0", "a")
    await crowd.come("a1", "a")
    await crowd.come("both", "a", "b")
    await crowd.come("b0", "b")
    assert crowd.has == ["a0", "a1", "b0"]
    await crowd.go("a0")
    assert crowd.has == ["a1", "b0", "both"]


async def test_with_one_place_everybody_takes_turns() -> None:
    crowd = Crowd(Places(1))
    await crowd.come("a0", "a")
    await crowd.come("own")
    assert crowd.has == ["a0"]
    await crowd.go("a0")
    assert crowd.has == ["own"]
    await crowd.come("a1", "a")
    await crowd.go("own")
    assert crowd.has == ["a1"]
    await crowd.go()


async def test_who_goes_while_it_waits_or_is_just_called_leaves_no_gap(crowd: Crowd) -> None:
    for i in range(4):
        await crowd.come(f"own{i}")
    for i in range(4, 8):
        await crowd.come(f"own{i}")
    await crowd.go("own5")
    await crowd.go("own0", "own4")  # called and told to go in the same moment
    assert sorted(crowd.has) == ["own1", "own2", "own3", "own6"]
    await crowd.go("own1", "own2", "own3", "own6")
    assert crowd.has == ["own7"]


def test_hosts_are_those_of_strangers_and_never_tell_a_password() -> None:
    urls = [
        "/node/1?download", "file:///a", "https://me:secret@Host.org:8080/x", "http://host.org:8080/y",
        "s3://bucket/k", "", "http:///x",
    ]  # fmt: skip
    assert foreign_hosts(urls) == {"/a", "host.org:8080", "bucket"}


async def test_who_stands_aside_gives_its_place_until_it_goes_on() -> None:
    places, pause, goes_on = Places(1), asyncio.Event(), asyncio.Event()
    said: list[str] = []

    async def stand_aside() -> None:
        async with places.take(frozenset(), said.append) as place:
            await place.aside(pause.wait(), said.append)
            goes_on.set()

    aside = asyncio.ensure_future(stand_aside())
    await asyncio.sleep(0)
    async with asyncio.timeout(5), places.take(frozenset(), said.append):
        pause.set()
        await asyncio.sleep(0.01)
        assert said == ["other workunits' files are moved first"]
        assert not goes_on.is_set()
    await asyncio.wait_for(aside, 5)
    assert said[1:] == [""]


@pytest.mark.parametrize("during", ["pause", "line"])
async def test_who_is_sent_away_while_it_stands_aside_gives_back_what_it_has_and_no_more(during: str) -> None:
    places, pause = Places(1), asyncio.Event()

    async def stand_aside() -> None:
        async with places.take(frozenset(), lambda _: None) as place:
            await place.aside(pause.wait(), lambda _: None)

    aside = asyncio.ensure_future(stand_aside())
    await asyncio.sleep(0)
    async with places.take(frozenset(), lambda _: None):
        if during == "line":
            pause.set()
            await asyncio.sleep(0.01)
        aside.cancel()
        await asyncio.gather(aside, return_exceptions=True)
        late = asyncio.ensure_future(stand_aside())
        await asyncio.sleep(0.01)
        assert not late.done()
    pause.set()
    await asyncio.wait_for(late, 5)
