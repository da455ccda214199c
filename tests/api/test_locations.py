"""Where a job may read and write: accepted or refused at submit, and nothing of a refused job is kept."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awe_server.api import job_submit
from awe_server.data.root_threads import MAX_PER_ROOT
from tests.api.conftest import Api
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

SHOCK = "http://shock.example.org:7445"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A root `shared` with a link out of it."""
    (tmp_path / "shared" / "sub").mkdir(parents=True)
    (tmp_path / "shared" / "a b.fna").write_text(">r1\nACGT\n")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "shared" / "away").symlink_to("../secret")
    (tmp_path / "shared" / "up").symlink_to("..")
    return tmp_path


@pytest.fixture
def settings(site: Path) -> dict[str, Any]:
    return {"file_roots": (str(site / "shared"),)}


def a_task(site: Path, files: dict[str, Any]) -> dict[str, Any]:
    """A task with these files, `SITE` in their URLs filled in."""
    lists = {
        key: [{k: v.replace("SITE", str(site)) if k == "url" else v for k, v in io.items()} for io in ios]
        for key, ios in files.items()
    }
    return {"taskid": "0", "cmd": {"name": "true"}, **lists}


async def test_files_and_sinks_below_a_root_are_accepted(api: Api, site: Path) -> None:
    inputs = [
        {"filename": "reads.fna", "url": "file://SITE/shared/a%20b.fna"},
        {"filename": "b", "url": "file://localhostSITE/shared/./a%20b.fna"},
    ]
    outputs = [
        {"filename": "x", "url": "file://SITE/shared/sub/"},
        {"filename": "y", "host": SHOCK, "node": "-"},
        {"filename": "z", "url": "s3://bucket/results/"},
    ]
    job = await api.submit(a_task(site, {"inputs": inputs, "outputs": outputs}))
    task = job["tasks"][0]
    assert [io["url"] for io in task["inputs"]] == [f"file://{site}/shared/a%20b.fna"] * 2
    assert [io["url"] for io in task["outputs"]] == [
        f"file://{site}/shared/sub/x", "", "s3://bucket/results/z",
    ]  # fmt: skip
    assert task["outputs"][1]["host"] == SHOCK


@pytest.mark.parametrize(
    ("key", "url", "reason"),
    [
        ("inputs", "file:///etc/passwd", "'/etc/passwd' is not below"),
        ("inputs", "file://SITE/secret", "'SITE/secret' is not below"),
        ("inputs", "file://SITE/shared/../secret", "'SITE/shared/../secret' has a '..' part"),
        ("inputs", "file://SITE/shared/%2e%2e/secret", "'SITE/shared/../secret' has a '..' part"),
        ("inputs", "file://SITE/shared/away", "a link leads away: 'SITE/shared/away' is not below"),
        (
            "predata",
            "file://SITE/shared/up/secret",
            "a link leads away: 'SITE/shared/up/secret' is not below",
        ),
        ("outputs", "file://SITE/shared/away", "a link leads away: 'SITE/shared/away' is not below"),
        ("outputs", "file://SITE/shared/up/", "a link leads away: 'SITE/shared/up/f' is not below"),
        ("outputs", "file://SITE/data/nodes/f", "'SITE/data/nodes/f' is not below"),
        ("outputs", "file://otherhost/shared/f", "'file://otherhost/shared/f' names the host 'otherhost'"),
        ("outputs", "ftp://h/f", "data cannot be written to 'ftp:' addresses"),
    ],
)
async def test_F_08_what_is_not_below_a_root_is_refused_by_name(
    api: Api, site: Path, key: str, url: str, reason: str
) -> None:
    document = {"tasks": [a_task(site, {key: [{"filename": "f", "url": url}]})]}
    (text,) = await api.refused("POST", "/job", 400, "invalid_document", json=document)
    assert text.startswith(f"tasks[0].{key}[0].url: {reason.replace('SITE', str(site))}")
    if "is not below" in reason:
        assert text.endswith(f"a directory that is open to jobs ({site}/shared)")
    assert (await api.http.get("/job")).json()["total_count"] == 0
    assert (await api.http.get("/node")).json()["total_count"] == 0
    assert (site / "secret").read_text() == "secret"


@pytest.mark.parametrize("lists", [("outputs", "outputs"), ("inputs", "outputs"), ("predata", "outputs")])
@pytest.mark.parametrize(
    ("one", "other"),
    [("real/f", "alias/f"), ("alias/f", "real/f"), ("real/f", "real/link"), ("other/f", "alias/f")],
)
@pytest.mark.parametrize("padding", ["", "x" * job_submit.INLINE_BYTES])
async def test_two_paths_to_one_file_are_refused_as_one(
    api: Api, site: Path, lists: tuple[str, str], one: str, other: str, padding: str
) -> None:
    (site / "shared" / "real").mkdir()
    (site / "shared" / "alias").symlink_to("real")
    (site / "shared" / "other").symlink_to(site / "shared" / "alias")
    (site / "shared" / "real" / "link").symlink_to("f")
    files: dict[str, list[dict[str, Any]]] = {"outputs": []}
    for name, key, path in (("x", lists[0], one), ("y", lists[1], other)):
        files.setdefault(key, []).append({"filename": name, "url": f"file://SITE/shared/{path}"})
    document = {"info": {"description": padding}, "tasks": [a_task(site, files)]}
    (text,) = await api.refused("POST", "/job", 400, "invalid_document", json=document)
    at, what = ("[1]", "where tasks[0].outputs[0] goes already")
    if lists[0] != "outputs":
        at, what = ("[0]", "an input of the same task")
    assert text == (
        f"tasks[0].outputs{at}.url: 'file://{site}/shared/{other}' is {what}: links lead both to "
        f"'{site}/shared/real/f'"
    )
    assert (await api.http.get("/job")).json()["total_count"] == 0


async def test_two_tasks_cannot_write_one_file_by_two_paths(api: Api, site: Path) -> None:
    (site / "shared" / "alias").symlink_to("sub")
    tasks = [
        {
            **a_task(site, {"outputs": [{"filename": "x", "url": f"file://SITE/shared/{path}/"}]}),
            "taskid": str(i),
        }
        for i, path in enumerate(("sub", "alias"))
    ]
    (text,) = await api.refused("POST", "/job", 400, "invalid_document", json={"tasks": tasks})
    assert text.startswith(
        f"tasks[1].outputs[0].url: 'file://{site}/shared/alias/x' is where tasks[0].outputs[0] goes already"
    )
    reads = a_task(site, {"inputs": [{"filename": "x", "url": "file://SITE/shared/alias/x"}]})
    await api.submit({**tasks[0], "dependsOn": ["1"]}, {**reads, "taskid": "1"})


async def test_a_client_shows_the_directories_that_it_opens(api: Api) -> None:
    client = await api.register(file_roots=["/shared/", "/more"])
    assert (await api.ok("GET", f"/client/{client['id']}"))["file_roots"] == ["/shared", "/more"]


async def test_every_file_of_a_long_document_is_looked_at(
    api: Api, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_submit, "PATHS_AT_ONCE", 7)
    files = [{"filename": str(n), "url": f"file://SITE/shared/{n}"} for n in range(500)]
    files[200]["url"] = "ftp://h/f"
    files[300]["url"] = "file://SITE/shared/away"
    files[400]["url"] = "file://SITE/shared/up/secret"
    document = {"tasks": [a_task(site, {"inputs": files})]}
    texts = await api.refused("POST", "/job", 400, "invalid_document", json=document)
    assert [text.partition(":")[0] for text in texts] == [
        f"tasks[0].inputs[{n}].url" for n in (200, 300, 400)
    ]
    await api.submit(a_task(site, {"inputs": [*files[:200], *files[201:300], *files[301:400]]}))


class Hung:
    """A file system that does not answer for paths with `hung` in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = 0
        plain = os.path.realpath

        def realpath(path: str, **more: Any) -> str:
            if "hung" in str(path):
                self.asked += 1
                self.answers.wait()
            return plain(path, **more)

        monkeypatch.setattr(os.path, "realpath", realpath)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    hung = Hung(monkeypatch)
    yield hung
    hung.answers.set()


async def test_a_file_system_that_hangs_stops_neither_uploads_nor_downloads_nor_other_jobs(
    api: Api, site: Path, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document(name: str) -> dict[str, Any]:
        inputs = [{"filename": "f", "url": f"file://SITE/shared/{name}"}]
        return {"tasks": [a_task(site, {"inputs": inputs})]}

    posts = [asyncio.create_task(api.http.post("/job", json=document(f"hung-{n}"))) for n in range(50)]
    await eventually(lambda: hung.asked == MAX_PER_ROOT)
    node = await api.ok("POST", "/node", files={"upload": ("x", b"1234")})
    assert (await api.http.get(f"/node/{node['id']}?download")).content == b"1234"
    await api.submit()
    monkeypatch.setattr(job_submit, "ANSWER_S", 0.1)
    [text] = await api.refused("POST", "/job", 503, "unavailable", json=document("hung"))
    assert text == (
        f"the file system of {site}/shared gives no answer in 0.1 s: nothing was submitted, try again"
    )
    assert (hung.asked, (await api.http.get("/job")).json()["total_count"]) == (MAX_PER_ROOT, 1)
    hung.answers.set()
    assert {reply.status_code for reply in await asyncio.gather(*posts)} == {200}


class TestWithoutRoots:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {}

    async def test_no_file_is_accepted_and_the_way_to_open_a_directory_is_named(
        self, api: Api, site: Path
    ) -> None:
        files = {"inputs": [{"filename": "f", "url": "file://SITE/shared/a%20b.fna"}]}
        document = {"tasks": [a_task(site, files)]}
        texts = await api.refused("POST", "/job", 400, "invalid_document", json=document)
        assert texts == [
            "tasks[0].inputs[0].url: no directory is open to jobs; the server's owner opens one with: "
            "awe-server serve --file-root DIR"
        ]
