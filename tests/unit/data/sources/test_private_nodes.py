"""Nodes of another Shock that not everybody may read: opened with the job's data token."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import to_thread

from awe_server.data.build import build_index
from awe_server.data.source_indexes import key_of
from awe_server.data.sources import shock
from awe_server.data.sources.facts import Place, SourceRefused
from awe_server.data.sources.reading import open_source
from tests.support.http_files import HttpFiles
from tests.support.shock import ShockServer
from tests.unit.data.samples import READS

pytestmark = pytest.mark.anyio

TOKEN = "canary-4711"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock", token=TOKEN) as served:
        yield served


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


def shown_to(served: ShockServer | HttpFiles) -> list[str]:
    """What Authorization came with each request."""
    return [seen.headers.get("authorization", "") for seen in served.requests]


@pytest.mark.parametrize("token", [TOKEN, f"mgrast {TOKEN}"])
async def test_the_token_opens_them(
    private: ShockServer, http: httpx.AsyncClient, tmp_path: Path, token: str
) -> None:
    private.token = token
    node = f"{private.url}/node/{private.add(READS)}"
    assert (await shock.look(http, node, token)).size_bytes == len(READS)
    assert await shock.build_index(http, node, "record", token) == 250
    place = Place("shock", f"{node}?download", len(READS), "", token=token)
    private.requests.clear()
    fact = await to_thread.run_sync(build_index, tmp_path / "x", "record", "reads.fastq", place)
    assert fact.total_units == 250
    assert shown_to(private)[:2] == ["", private.authorization]
    assert set(shown_to(private)[1:]) == {private.authorization}


async def test_a_shock_that_wants_no_token_is_shown_none(http: httpx.AsyncClient, tmp_path: Path) -> None:
    with ShockServer(tmp_path / "shock") as served:
        node = f"{served.url}/node/{served.add(READS)}"
        assert (await shock.look(http, node, TOKEN)).size_bytes == len(READS)
        assert await shock.build_index(http, node, "record", TOKEN) == 250
        with open_source(Place("shock", f"{node}?download", len(READS), "", token=TOKEN)) as source:
            assert source.read_at(5, 10) == READS[5:15]
        assert set(shown_to(served)) == {""}


@pytest.mark.parametrize(
    ("token", "says"), [("", "401 and the job has no"), ("wrong-canary", "403 to the job's")]
)
async def test_a_refusal_says_what_was_shown_and_not_the_token(
    private: ShockServer, http: httpx.AsyncClient, token: str, says: str
) -> None:
    def refuse() -> None:
        if token:
            private.faults.fail(401, times=1)
            private.faults.fail(403, times=1, text=f"not with OAuth {token}")

    node = f"{private.url}/node/{private.add(READS)}"
    asked: list[Any] = [
        lambda: shock.look(http, node, token),
        lambda: shock.build_index(http, node, "record", token),
    ]
    for ask in asked:
        refuse()
        with pytest.raises(
            (SourceRefused, shock.NotBuilt), match=f"its host answers {says} data token"
        ) as no:
            await ask()
        assert "canary" not in str(no.value)
    refuse()
    with (
        pytest.raises(SourceRefused, match=f"its host answers {says} data token") as no,
        open_source(Place("shock", f"{node}?download", len(READS), "", token=token)) as source,
    ):
        source.read_at(0, 10)
    assert "canary" not in str(no.value)


async def test_what_a_shock_says_of_an_index_does_not_repeat_the_token(
    private: ShockServer, http: httpx.AsyncClient
) -> None:
    node = f"{private.url}/node/{private.add(READS)}"
    private.faults.fail(401, method="PUT")
    private.faults.fail(400, method="PUT", text=f"OAuth {TOKEN} may not")
    with pytest.raises(shock.NotBuilt, match="may not") as caught:
        await shock.build_index(http, node, "record", TOKEN)
    assert "canary" not in str(caught.value)


async def test_a_redirect_does_not_take_the_token_along(
    private: ShockServer, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with HttpFiles(tmp_path / "web") as files:
        node = files.redirect("node/1", f"{private.url}/node/{private.add(READS)}")
        for _ in range(2):
            files.faults.fail(401)
            with pytest.raises(SourceRefused, match="its host answers 401 to the job's data token"):
                await shock.look(http, node, TOKEN)
        files.faults.fail(401)
        with (
            pytest.raises(SourceRefused, match="its host answers 401 to the job's data token"),
            open_source(Place("shock", f"{node}", len(READS), "", token=TOKEN)) as source,
        ):
            source.read_at(0, 10)
        assert shown_to(files) == ["", f"OAuth {TOKEN}"] * 3
    assert set(shown_to(private)) == {""}


def test_the_token_is_in_no_name_and_no_message() -> None:
    with_token, without = (Place("shock", "http://h/node/1", 7, "v", token=t) for t in (TOKEN, ""))
    assert key_of(with_token) == key_of(without)
    assert TOKEN not in repr(with_token)
