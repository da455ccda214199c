"""The cache: one download for all, true entries only, bounded, and whole whenever it was killed."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from awe_client.daemon import cache as cache_module
from awe_client.daemon.cache import Cache, Cached, key_of
from awe_client.sdk.download import Wanted
from tests.support.tmpfs import fill, tmpfs

pytestmark = pytest.mark.anyio

BIG = 10**9
A, B, C, D = (f"md5-{letter * 32}" for letter in "abcd")


class Source:
    """Brings 100 bytes, and remembers how often."""

    def __init__(self, data: bytes = b"x" * 100) -> None:
        self.data = data
        self.count = 0
        self.gate: asyncio.Event | None = None  #: downloads wait for it
        self.begun = asyncio.Event()
        self.error: Exception | None = None
        self.ends = 0

    async def __call__(self, path: Path) -> None:
        self.count += 1
        part = path.with_name(path.name + ".0000.part")
        part.write_bytes(self.data[: len(self.data) // 2])
        self.begun.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            part.write_bytes(self.data)
            part.rename(path)
        finally:
            self.ends += 1
            part.unlink(missing_ok=True)


async def bring(cache: Cache, key: str, source: Source | None = None, size: int = -1) -> Cached:
    """Use an entry that is known to have room."""
    entry = await cache.use(key, size, source or Source())
    assert entry is not None
    return entry


async def put(cache: Cache, *keys: str) -> None:
    """Have entries that nobody uses."""
    for key in keys:
        cache.done(await bring(cache, key))
    await cache.close()


def keys_in(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("[!.]*"))


def reopened(folder: Path, max_bytes: int = BIG) -> Cache:
    cache = Cache(folder, max_bytes)
    cache.open()
    return cache


# --- keys ----------------------------------------------------------------------------------------


def test_an_entry_is_known_by_its_content_else_by_address_version_and_size() -> None:
    md5 = "0123456789abcdef" * 2
    assert (
        key_of("http://a/x", Wanted(md5=md5, etag="1"))
        == key_of("http://b/y", Wanted(md5=md5))
        == f"md5-{md5}"
    )
    assert key_of("http://a/x", Wanted(md5=md5, gunzip=True)) == f"md5-{md5}-unpacked"
    first = key_of("http://a/x", Wanted(size=5, etag='"1"'))
    assert first.startswith("url-")
    others = [
        key_of("http://a/y", Wanted(size=5, etag='"1"')),
        key_of("http://a/x", Wanted(size=5, etag='"2"')),
        key_of("http://a/x", Wanted(size=6, etag='"1"')),
        key_of("http://a/x", Wanted(size=5, etag='"1"', gunzip=True)),
        key_of("http://a/x", Wanted(size=5)),
        key_of("http://a/x", Wanted(size=5), scope="job 1"),
        key_of("http://a/x", Wanted(size=5), scope="job 2"),
    ]
    assert len({first, *others}) == 8
    assert key_of("http://a/x", Wanted(size=5, etag='"1"'), scope="job 1") == first
    assert key_of("http://a/x", Wanted(md5="../../etc/passwd")).startswith("url-")


# --- together ------------------------------------------------------------------------------------


async def test_fifty_attempts_wait_for_one_download(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    entries = await asyncio.gather(*(bring(cache, A, source) for _ in range(50)))
    assert source.count == 1
    assert len({entry.path for entry in entries}) == 1
    assert entries[0].path.read_bytes() == source.data
    assert entries[0].path.stat().st_mode & 0o777 == 0o444
    assert (entries[0].users, cache.hits, cache.misses) == (50, 49, 1)


async def test_a_download_goes_on_when_the_attempt_that_began_it_is_cancelled(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    source.gate = asyncio.Event()
    users = [asyncio.ensure_future(bring(cache, A, source)) for _ in range(3)]
    await source.begun.wait()
    users[0].cancel()
    await asyncio.wait((users[0],))
    source.gate.set()
    entries = [await user for user in users[1:]]
    assert source.count == 1
    assert [entry.users for entry in entries] == [2, 2]


async def test_a_download_that_nobody_waits_for_ends_and_leaves_nothing(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    source.gate = asyncio.Event()
    users = [asyncio.ensure_future(bring(cache, A, source)) for _ in range(3)]
    await source.begun.wait()
    for user in users:
        user.cancel()
    await asyncio.wait(users)
    again = Source()
    entry = await bring(cache, A, again)  # also while the old one is still ending
    await cache.close()
    assert (source.count, source.ends, again.count) == (1, 1, 1)
    assert list(tmp_path.iterdir()) == [entry.path]
    assert cache.unused_bytes == 0


async def test_all_who_wait_hear_of_a_failure_and_the_next_one_tries_again(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    source.error = OSError(5, "broken")
    results = await asyncio.gather(*(bring(cache, A, source) for _ in range(5)), return_exceptions=True)
    assert results == [source.error] * 5
    assert source.count == 1
    assert list(tmp_path.iterdir()) == []
    assert cache.unused_bytes == 0
    assert (await bring(cache, A)).users == 1


async def test_cancelled_while_it_gets_its_name_a_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, finish = Cache(tmp_path, BIG), cache_module._finish
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def slow(is_stopped: Callable[[], bool], entry: Cached) -> os.stat_result:
        info = finish(is_stopped, entry)
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return info

    monkeypatch.setattr(cache_module, "_finish", slow)
    user = asyncio.ensure_future(bring(cache, A))
    await reached.wait()
    user.cancel()
    await asyncio.wait((user,))
    go_on.set()
    await cache.close()
    assert list(tmp_path.iterdir()) == []


# --- true ----------------------------------------------------------------------------------------


def overwrite(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"y" * 100)


def truncate(path: Path) -> None:
    os.truncate(path, 50)


def replace(path: Path) -> None:
    """Other bytes, same size and time."""
    other = path.with_suffix(".other")
    other.write_bytes(b"y" * 100)
    shutil.copystat(path, other)
    other.rename(path)


@pytest.mark.parametrize("harm", [overwrite, truncate, replace, Path.unlink])
async def test_an_entry_that_was_changed_is_fetched_again(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    user = await bring(cache, A, source)
    harm(user.path)
    fresh = await bring(cache, A, source)
    assert source.count == 2
    assert fresh.path != user.path
    assert fresh.path.read_bytes() == source.data
    # What the first one has links to stays as long as it is in use.
    cache.done(user)
    cache.done(fresh)
    await cache.close()
    assert list(tmp_path.iterdir()) == [fresh.path]
    assert cache.unused_bytes == 100


@pytest.mark.parametrize("harm", [overwrite, truncate, replace, Path.unlink])
async def test_who_uses_an_entry_can_ask_whether_it_is_still_what_it_was(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    cache = Cache(tmp_path, BIG)
    first, second = await bring(cache, A), await bring(cache, A)
    # As it is: a second name and another mode change nothing of its bytes.
    os.link(first.path, tmp_path / "second.name")
    first.path.chmod(0o600)
    assert await cache.check(first)
    harm(first.path)
    assert not await cache.check(first)
    assert not await cache.check(second)
    assert not cache.has(A)


async def test_a_look_at_an_entry_that_others_use_hides_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, source = Cache(tmp_path, BIG), Source()
    user = await bring(cache, A, source)
    is_true = cache_module._is_true

    def changed_right_after(entry: Cached, info: os.stat_result) -> bool:
        said = is_true(entry, info)
        monkeypatch.setattr(cache_module, "_is_true", is_true)
        overwrite(entry.path)
        return said

    monkeypatch.setattr(cache_module, "_is_true", changed_right_after)
    await bring(cache, A, source)
    assert not await cache.check(user)


@pytest.mark.parametrize("harm", [overwrite, truncate, Path.unlink])
async def test_an_entry_that_was_changed_while_no_daemon_ran_is_fetched_again(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    await put(Cache(tmp_path, BIG), A)
    [path] = tmp_path.iterdir()
    harm(path)
    cache, source = reopened(tmp_path), Source()
    assert list(tmp_path.iterdir()) == []
    assert (await bring(cache, A, source)).path.read_bytes() == source.data
    assert source.count == 1


# --- killed --------------------------------------------------------------------------------------


async def test_a_restart_keeps_what_is_known_by_content_and_nothing_half(tmp_path: Path) -> None:
    cache = Cache(tmp_path, BIG)
    await put(cache, A, f"{B}-unpacked", "url-" + "0" * 64)
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("md5-")]
    for name in (
        f"{C}.12345678.new.abcd.part",  # killed while it came
        f"{C}.12345678.new",  # killed before it got its name
        C,
        f"{C}.100.5.12345678",  # not what its name says
        "something",
    ):
        (tmp_path / name).write_bytes(b"x" * 100)
    cache, source = reopened(tmp_path), Source()
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert [(await bring(cache, key, source)).path in kept for key in (A, f"{B}-unpacked")] == [True, True]
    assert source.count == 0
    assert (cache.hits, cache.misses) == (2, 0)


async def test_of_two_entries_with_one_content_one_stays(tmp_path: Path) -> None:
    await put(Cache(tmp_path, BIG), A)
    [path] = tmp_path.iterdir()
    shutil.copy2(path, path.with_suffix(".00000000"))
    cache = reopened(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert cache.unused_bytes == 100


# --- bounded -------------------------------------------------------------------------------------


async def test_the_longest_unused_go_and_what_is_in_use_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 350)
    used = await bring(cache, A)
    await put(cache, B, C)
    await put(cache, B)  # used again: C is older now
    await put(cache, D)
    assert keys_in(tmp_path) == [A, B, D]
    cache.done(used)
    await put(cache, C)
    assert keys_in(tmp_path) == [B, C, D]


async def test_the_order_of_use_survives_a_restart(tmp_path: Path) -> None:
    await put(Cache(tmp_path, 350), A, B, C)
    await put(reopened(tmp_path, 350), A)
    await put(reopened(tmp_path, 350), D)
    assert keys_in(tmp_path) == [A, C, D]
    cache = reopened(tmp_path, 150)
    assert keys_in(tmp_path) == [D]
    assert cache.unused_bytes == 100


async def test_what_has_no_room_is_not_taken_and_removes_nothing(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, 350), Source()
    await put(cache, A)
    assert await cache.use(B, 400, source) is None
    users = [await bring(cache, key, size=100) for key in (B, C, D)]
    assert await cache.use(A, 100, source) is None
    assert source.count == 0
    assert keys_in(tmp_path) == [B, C, D]
    cache.done(users.pop())
    assert (await bring(cache, A, source, 100)).users == 1
    assert keys_in(tmp_path) == [A, B, C]


async def test_room_is_kept_for_what_is_on_its_way(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, 250), Source()
    source.gate = asyncio.Event()
    users = [asyncio.ensure_future(bring(cache, key, source, 100)) for key in (A, B)]
    await source.begun.wait()
    assert await cache.use(C, 100, source) is None
    source.gate.set()
    await asyncio.gather(*users)
    assert keys_in(tmp_path) == [A, B]


async def test_a_file_that_turns_out_larger_than_the_cache_goes_when_nobody_uses_it(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path, 50), Source()
    entries = await asyncio.gather(*(bring(cache, A, source) for _ in range(3)))
    assert source.count == 1
    for entry in entries:
        assert entry.path.exists()
        cache.done(entry)
    await cache.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_cache_of_no_size_keeps_nothing(tmp_path: Path) -> None:
    source = Source()
    assert await Cache(tmp_path, 0).use(A, -1, source) is None
    assert source.count == 0


async def test_there_are_not_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 2)
    await put(Cache(tmp_path, BIG), A, B, C, D)
    assert keys_in(tmp_path) == [C, D]


async def test_a_short_disk_gets_back_what_is_unused(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 4 << 20) as disk:
        cache, source = Cache(disk, BIG), Source(bytes(1 << 20))
        used = await bring(cache, A, source)
        for key in (B, C):
            cache.done(await bring(cache, key, source))
        fill(disk, leave_bytes=100_000)
        assert cache.unused_bytes == 2 << 20
        assert not await cache.make_room(50_000)
        assert await cache.make_room(200_000)
        assert keys_in(disk) == [A, C]
        cache.give_way(3 << 20)
        await cache.close()
        assert used.path.exists()
        assert cache.unused_bytes == 0


KILLED = """
import asyncio, hashlib, itertools, sys
from pathlib import Path
from awe_client.daemon.cache import Cache

async def main():
    cache = Cache(Path(sys.argv[1]), 20_000_000)
    cache.open()
    for i in itertools.count():
        data = b"%d" % (i % 50) * 500_000
        async def fetch(path):
            with path.open("wb") as file:
                for at in range(0, len(data), 65536):
                    file.write(data[at:at + 65536])
        key = "md5-" + hashlib.md5(data).hexdigest()
        cache.done(await cache.use(key, len(data), fetch))
        if i == 3:
            print(flush=True)

asyncio.run(main())
"""


def test_killed_at_any_moment_the_cache_holds_whole_files_only(tmp_path: Path) -> None:
    seen = 0
    for after_s in (0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(after_s)
            child.kill()
        cache = reopened(tmp_path, 20_000_000)
        for path in tmp_path.iterdir():
            md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            assert path.name.startswith(f"md5-{md5}.")
            seen += 1
        assert 0 < cache.unused_bytes <= 20_000_000
    assert seen > 20
