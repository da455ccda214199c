"""The data token of a job opens nodes of other Shocks, and nobody else sees it."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.transfer import Sources, StepError
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.http_files import HttpFiles
from tests.support.shock import ShockServer
from tests.unit.client.test_at_fault import failure_of
from tests.unit.client.test_transfers import files, shock, sources

__all__ = ["files", "shock", "sources"]

pytestmark = pytest.mark.anyio

TOKEN = "canary-4711"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "private", token=TOKEN) as served:
        yield served


def shown_to(served: ShockServer | HttpFiles) -> list[str]:
    """What Authorization came with each request."""
    return [seen.headers.get("authorization", "") for seen in served.requests]


@pytest.mark.parametrize("token", [TOKEN, f"mgrast {TOKEN}"])
async def test_a_private_node_comes_whole_in_pieces_by_index_and_after_cuts(
    private: ShockServer, sources: Sources, tmp_path: Path, token: str
) -> None:
    private.token = token
    data = os.urandom(3 * 1_048_576)
    node = private.add(data, attributes={"a": 1})
    private.faults.cut(2_000_000)
    how: dict[str, Any] = {"is_shock": True, "datatoken": token}
    await sources.get(private.node_url(node), tmp_path / "whole", Wanted(size=len(data)), **how)
    assert (tmp_path / "whole").read_bytes() == data
    assert any("seek" in seen.query for seen in private.requests)
    await sources.get(private.node_url(node), tmp_path / "piece", Wanted(offset=10, length=1000), **how)
    assert (tmp_path / "piece").read_bytes() == data[10:1010]
    url = f"{private.node_url(node)}&index=size&part=2"
    await sources.get(url, tmp_path / "part", Wanted(), **how)
    assert (tmp_path / "part").read_bytes() == data[1_048_576 : 2 * 1_048_576]
    await sources.get(private.node_url(node).partition("?")[0], tmp_path / "document", Wanted(), **how)
    assert json.loads((tmp_path / "document").read_bytes())["data"]["attributes"] == {"a": 1}
    assert set(shown_to(private)) == {"", private.authorization}


@pytest.mark.parametrize("token", ["", "another-canary"])
async def test_a_shock_that_refuses_the_job_says_so_to_every_client(
    private: ShockServer, sources: Sources, tmp_path: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = private.node_url(private.add(b"hello"))
    if token:
        private.faults.fail(401)
        private.faults.fail(403, text=f"no: OAuth {token}")
    failure = await failure_of(sources, url, tmp_path / "x", is_shock=True, datatoken=token)
    assert (failure.kind, failure.out_of_reach) == (FailureKind.INPUT, False)
    said = (
        "it answers 403 to the job's data token" if token else "it answers 401 and the job has no data token"
    )
    assert failure.message.startswith(f"cannot fetch {url.partition('?')[0]}: {said}: ")
    assert "canary" not in failure.message
    assert "canary" not in caplog.text


async def test_a_shock_that_wants_no_token_is_shown_none(
    shock: ShockServer, sources: Sources, tmp_path: Path
) -> None:
    """One without users refuses every token."""
    url = shock.node_url(shock.add(b"hello"))
    await sources.get(url, tmp_path / "x", Wanted(), is_shock=True, datatoken=TOKEN)
    assert shown_to(shock) == [""]


async def test_nobody_but_a_shock_is_shown_the_token(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    url = files.put("x", b"hello")
    files.faults.fail(401)
    await failure_of(sources, url, tmp_path / "x", datatoken=TOKEN)
    assert shown_to(files) == [""]


async def test_a_redirect_does_not_take_the_token_along(
    files: HttpFiles, private: ShockServer, sources: Sources, tmp_path: Path
) -> None:
    files.put("x", b"hello")
    for where in (files.url_of("x"), private.node_url(private.add(b"hello"))):
        url = files.redirect("node/1", where)
        files.faults.fail(401)
        files.requests.clear()
        private.requests.clear()
        with contextlib.suppress(StepError):
            await sources.get(url, tmp_path / "x", Wanted(), is_shock=True, datatoken=TOKEN)
        asked = [seen.headers.get("authorization") for seen in files.requests if "node/1" in seen.path]
        assert asked == [None, f"OAuth {TOKEN}"]
        assert set(shown_to(private)) <= {""}
