"""A server that may not lead any more delivers nothing to its end, and removes nothing, elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from awe_server.data.root_threads import RootThreads
from awe_server.data.sinks import files as files_module
from awe_server.data.sinks.base import About
from awe_server.data.sinks.files import Wanted
from awe_server.data.sinks.objects import ObjectSink
from awe_server.data.sinks.sinks import Sinks
from shared_models.errors import LeadInDoubt
from shared_models.file_urls import url_of
from shared_models.ids import TaskId
from tests.support.http_files import HttpFiles
from tests.support.shock import ShockServer
from tests.support.staged import stage_path
from tests.unit.data.test_sinks import File, Notes

pytestmark = pytest.mark.anyio


class Lead:
    """Is lost after so many questions."""

    def __init__(self, questions: int = 0) -> None:
        self.left = questions

    def require(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LeadInDoubt


@pytest.fixture
def content(tmp_path: Path) -> File:
    return File(tmp_path / "content")


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock") as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> Iterator[HttpFiles]:
    (tmp_path / "web").mkdir()
    with HttpFiles(tmp_path / "web") as server:
        yield server


def sinks(http: httpx.AsyncClient, lead: Lead, root: Path | None = None) -> Sinks:
    return Sinks(http, RootThreads((str(root),) if root else ()), lead.require)


@pytest.mark.parametrize("questions", [0, 1, 2])
async def test_a_file_on_its_way_to_the_web_never_gets_there(
    content: File, files: HttpFiles, tmp_path: Path, questions: int
) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(LeadInDoubt):
            await sinks(http, Lead(questions)).to_url(files.url_of("x"), content)
    assert not (tmp_path / "web" / "x").exists()


@pytest.mark.parametrize("questions", [0, 1, 2])
async def test_a_file_on_its_way_to_another_shock_never_gets_there(
    content: File, shock: ShockServer, questions: int
) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(LeadInDoubt):
            await sinks(http, Lead(questions)).to_shock(shock.url, content, About("x"), Notes())
    assert not any(map(shock.content, shock.nodes))


async def test_an_object_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[str] = []

    async def delete(sink: ObjectSink, url: str) -> None:
        deleted.append(url)

    monkeypatch.setattr(ObjectSink, "delete", delete)
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(LeadInDoubt):
            await sinks(http, Lead()).remove("s3://b/x", "")
    assert deleted == []


async def test_a_file_and_a_node_elsewhere_stay(tmp_path: Path, shock: ShockServer) -> None:
    (tmp_path / "out").write_text("kept")
    node = shock.add(b"kept")
    async with httpx.AsyncClient(trust_env=False) as http:
        for url in (url_of(str(tmp_path / "out")), f"{shock.url}/node/{node}"):
            with pytest.raises(LeadInDoubt):
                await sinks(http, Lead(), tmp_path).remove(url, "")
    assert (tmp_path / "out").read_text() == "kept"
    assert node in shock.nodes


def stage(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("late")


async def test_a_shared_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when the lead was lost while its parts were joined."""
    target = tmp_path / "out"
    target.write_text("of the other server")
    wanted = Wanted(str(target), TaskId("j_0"), 1, [(1, 1), (2, 1)])
    for part in wanted.parts:
        stage(Path(stage_path(str(target), wanted.task_id, 1, *part)))
    lead, join = Lead(1), files_module._join

    def slowly(*arguments: object) -> object:
        made = join(*arguments)  # type: ignore[arg-type]
        lead.left = 0
        return made

    monkeypatch.setattr(files_module, "_join", slowly)
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(LeadInDoubt):
            await sinks(http, lead, tmp_path).to_file(wanted)
    assert target.read_text() == "of the other server"
