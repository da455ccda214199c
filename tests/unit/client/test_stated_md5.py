"""An input whose document states its md5 has that content, or no command runs."""

import hashlib
from pathlib import Path

import pytest

from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("key", ["inputs", "predata"])
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_shared_file_is_checked(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, key: str, is_right: bool
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "in").write_text("data\n")
    start(file_roots=(str(tmp_path / "shared"),))
    md5 = hashlib.md5(b"data\n" if is_right else b"other\n", usedforsecurity=False).hexdigest()
    entry = {"filename": "in.txt", "url": f"file://{tmp_path}/shared/in", "md5": md5}
    [work] = await server.add_task(script=["cat in.txt"], **{key: [entry]})
    report = await server.result(work)
    if is_right:
        assert (report["outcome"], report["stdout_tail"]) == ("done", "data\n")
    else:
        assert (report["outcome"], report["kind"]) == ("failed", "input")
        assert f"md5 is 6137cde4893c59f76f005a8123d8e8e6, expected {md5}" in report["message"]
