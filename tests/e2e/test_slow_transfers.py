"""Whoever asks why nothing seems to happen is told how far the files are."""

from collections.abc import Callable
from pathlib import Path

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.http_files import HttpFiles


def test_a_slow_input_shows_its_progress_until_it_is_there(
    new_store: Callable[[], str], tmp_path: Path
) -> None:
    size = 6_000_000
    with AweEnv.temporary(store=new_store()) as env, HttpFiles(tmp_path / "www") as files:
        env.server.start()
        env.start_client(slots=1)
        url = files.put("in.bin", bytes(size))
        files.block_delay_s = 1.0  # a minute and a half for all of it, if nobody lets go
        task = {"taskid": "0", "cmd": {"name": "true"}, "inputs": [{"filename": "in.bin", "url": url}]}
        job_id = env.submit({"tasks": [task]})
        work = f"/work/{job_id}_0_0"

        def has_begun() -> bool:
            return any(unit.get("progress", {}).get("bytes", 0) > 0 for unit in env.data("GET", "/work"))

        eventually_sync(has_begun, within_s=60)
        first = env.data("GET", work)["progress"]
        assert first["stage"] == "fetching"
        assert 0 < first["bytes"] < size == first["total_bytes"]
        assert "fetching files" in env.data("GET", f"{work}?why")[0]["reason"]
        assert "fetching" in env.awe("show", job_id).stdout
        files.block_delay_s = 0.0
        env.wait_for(job_id)
        assert "progress" not in env.data("GET", work)
