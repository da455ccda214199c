"""An input whose document states its md5 has that content, or no command reads it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.test_exchange import Native
from tests.support.http_files import HttpFiles

pytestmark = pytest.mark.anyio

MD5 = hashlib.md5(b"data\n", usedforsecurity=False).hexdigest()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "in").write_bytes(b"data\n")
    return {"file_roots": (str(tmp_path / "shared"),)}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[HttpFiles]:
    (tmp_path / "web").mkdir()
    with HttpFiles(tmp_path / "web") as files:
        yield files


def reading(io: dict[str, Any], key: str = "inputs") -> dict[str, Any]:
    return {"taskid": "0", "cmd": {"name": "x"}, key: [{"filename": "in", **io}]}


@pytest.mark.parametrize("key", ["inputs", "predata"])
async def test_what_the_server_knows_to_be_other_content_suspends_the_job(api: Api, key: str) -> None:
    node = (await api.ok("POST", "/node", files={"upload": ("in", b"other\n")}))["id"]
    job = await api.submit(reading({"node": node, "md5": MD5.upper()}, key))
    shown = await api.state_of(job, "suspend")
    assert shown["notes"].endswith(f"not {MD5} as the document says")
    assert shown["tasks"][0][key][0]["md5"] == MD5
    await api.ok("PUT", f"/node/{node}", files={"upload": ("in", b"data\n")})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    await api.state_of(job, "queued")


async def test_what_the_server_does_not_know_is_for_a_client_that_checks_it(api: Api, tmp_path: Path) -> None:
    reads = reading({"url": f"file://{tmp_path}/shared/in", "md5": MD5})
    works_on = {"native": True, "incarnation": "i1", "file_roots": [str(tmp_path / "shared")]}
    job = await api.submit(reads)
    await api.state_of(job, "queued")
    native = Native(api, (await api.register("w1", **works_on))["id"])
    [shown] = (await native.exchange(want=1))["tasks"].values()
    assert shown["inputs"][0]["md5"] == MD5


async def test_a_stock_worker_would_not_check_it(api: Api, web: HttpFiles) -> None:
    (web.folder / "in").write_bytes(b"data\n")
    stock = await api.register()
    checked = await api.submit(reading({"url": f"{web.url}/in", "md5": MD5}))
    await api.state_of(checked, "queued")
    plain = await api.submit(reading({"url": f"{web.url}/in"}))
    await api.state_of(plain, "queued")
    assert (await api.checkout(stock))["id"] == f"{plain['id']}_0_0"
