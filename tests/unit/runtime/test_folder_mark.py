"""A server starts only on the folder that holds its files: an unmounted file system is no new, empty one."""

import asyncio
import logging
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from awe_server.runtime.folder_mark import HAS_FOLDER, FilesMissing, WrongFolder, check_folder, make_mark
from awe_server.store.base import Delete, Document, Put
from awe_server.store.errors import StoreCorrupt
from awe_server.store.memory import MemoryStore
from tests.support.faulty import FaultyStore
from tests.unit.runtime.site import Site

pytestmark = pytest.mark.anyio


async def stopped(root: Path, *contents: bytes) -> tuple[Site, list[str]]:
    """A site that was used and stopped; its nodes."""
    site = Site(root)
    await site.start()
    await asyncio.sleep(0)
    nodes = [await site.node(content) for content in contents]
    await site.engine.stop()
    return site, nodes


async def started_and_stopped(site: Site) -> None:
    await site.start()
    await asyncio.sleep(0)  # the duties begin
    await site.engine.stop()


async def known_server(store: FaultyStore) -> Document:
    await store.open()
    known = await store.get("meta", "server") or {}
    await store.close()
    return known


async def as_before_folders_were_known(store: FaultyStore) -> None:
    known = await known_server(store)
    await store.open()
    await store.commit([Put("meta", {"id": "server", "uuid": known["uuid"]})])
    await store.close()


async def refused(root: Path, store: FaultyStore) -> str:
    """Start on a folder that is not the one; why it does not."""
    again = Site(root, store=store)
    with pytest.raises(FilesMissing) as refusal:
        await again.engine.start()
    await again.engine.stop()
    assert not again.engine.ready
    assert again.fatal == []
    return refusal.value.message


@pytest.mark.parametrize("is_there", [False, True], ids=["gone", "an empty mount point"])
async def test_a_store_with_files_does_not_start_without_them(tmp_path: Path, is_there: bool) -> None:
    site, _ = await stopped(tmp_path / "a", b"one", b"two")
    shutil.move(tmp_path / "a" / "nodes", tmp_path / "elsewhere")
    if is_there:
        (tmp_path / "a" / "nodes").mkdir()
    said = await refused(tmp_path / "a", site.store)
    assert said.startswith(
        f"{tmp_path}/a/nodes does not hold the files of this store, which has 2 nodes: is "
    )
    assert "\n" not in said
    assert sorted((tmp_path / "a").rglob("nodes/*")) == []
    shutil.rmtree(tmp_path / "a" / "nodes", ignore_errors=True)
    shutil.move(tmp_path / "elsewhere", tmp_path / "a" / "nodes")
    again = Site(tmp_path / "a", store=site.store)
    await started_and_stopped(again)


async def test_a_store_remembers_its_folder_when_it_has_no_nodes_any_more(tmp_path: Path) -> None:
    site, _ = await stopped(tmp_path / "a")
    assert "which has 0 nodes" in await refused(tmp_path / "b", site.store)
    assert not (tmp_path / "b" / "nodes").exists()


async def test_the_store_of_an_older_version_is_known_by_its_nodes_and_learns(tmp_path: Path) -> None:
    site, _ = await stopped(tmp_path / "a", b"one")
    known = await known_server(site.store)
    await as_before_folders_were_known(site.store)
    assert "which has 1 node:" in await refused(tmp_path / "b", site.store)
    again = Site(tmp_path / "a", store=site.store)
    await started_and_stopped(again)
    assert await known_server(site.store) == {**known, HAS_FOLDER: True} == known


async def test_files_that_are_lost_for_good_are_given_up_as_the_refusal_says(tmp_path: Path) -> None:
    root = tmp_path / "a site's files"
    site, (node,) = await stopped(root, b"one")
    shutil.rmtree(root / "nodes")
    said = await refused(root, site.store)
    command = said.partition("Only if they are lost for good: ")[2].partition("; then")[0]
    await asyncio.to_thread(subprocess.run, command, shell=True, check=True)
    again = Site(root, store=site.store)
    await again.start()
    assert await again.engine.get("nodes", node)
    assert await again.text(await again.node(b"new")) == b"new"
    await again.engine.stop()


async def test_a_start_that_died_between_mark_and_note_is_taken_up(tmp_path: Path) -> None:
    site, _ = await stopped(tmp_path / "a")
    known = await known_server(site.store)
    for folder in (tmp_path / "a", tmp_path / "b"):  # after the mark, before the mark
        await as_before_folders_were_known(site.store)
        again = Site(folder, store=site.store)
        await started_and_stopped(again)
        assert await known_server(site.store) == known


async def test_a_check_takes_no_folder_for_its_own_that_is_nobodys(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.open()
    await check_folder(tmp_path / "not there", store)
    with pytest.raises(WrongFolder, match="server nobody"):
        await check_folder(tmp_path, store)
    await store.commit([Put("meta", {"id": "server", "uuid": "u"}), Put("nodes", {"id": "n"})])
    with pytest.raises(FilesMissing, match="which has 1 node:"):
        await check_folder(tmp_path / "not there", store)
    await store.commit([Delete("nodes", "n")])
    make_mark(tmp_path / "not there", "u")
    await check_folder(tmp_path / "not there", store)


async def test_a_store_that_cannot_say_which_folder_is_its_own_is_damaged(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.open()
    await store.commit([Put("meta", {"id": "server"}), Put("nodes", {"id": "n"})])
    with pytest.raises(StoreCorrupt, match="meta document 'server' has no uuid"):
        await check_folder(tmp_path, store)


@pytest.mark.parametrize("folder", ["its own", "gone", "another one's"])
async def test_a_store_that_has_lost_its_server_document_is_what_is_damaged(
    tmp_path: Path, folder: str
) -> None:
    site, _ = await stopped(tmp_path, b"one")
    known = await known_server(site.store)
    if folder == "gone":
        shutil.rmtree(tmp_path / "nodes")
    elif folder == "another one's":
        (tmp_path / "nodes" / "server").write_text("somebody-else\n")
    await site.store.open()
    odd = {"id": "odd", "state": "queued", "jid": "1"}  # is marked where it can be
    await site.store.commit([Delete("meta", "server"), Put("jobs", odd)])
    says = "has nodes and no document 'server' in meta"
    with pytest.raises(StoreCorrupt, match=says) as refusal:
        await check_folder(tmp_path / "nodes", site.store)
    assert "None" not in refusal.value.message
    again = Site(tmp_path, store=site.store)
    with pytest.raises(StoreCorrupt, match=says):
        await again.engine.start()
    await again.engine.stop()
    await site.store.open()
    assert await site.store.get("meta", "server") is None
    assert await site.store.get("jobs", "odd") == odd, "it was left as it is"
    if folder == "its own":  # as the refusal says
        uuid = (tmp_path / "nodes" / "server").read_text().strip()
        await site.store.commit([Put("meta", {"id": "server", "uuid": uuid})])
        await started_and_stopped(Site(tmp_path, store=site.store))
        assert await known_server(site.store) == known


async def test_a_new_store_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[Any]:
        return [getattr(r, "store", None) for r in caplog.records if r.msg == "new_store"]

    site, _ = await stopped(tmp_path)
    assert told() == [site.store.name]
    again = Site(tmp_path, store=site.store)
    await started_and_stopped(again)
    assert told() == [site.store.name]
