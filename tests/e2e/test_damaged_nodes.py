"""What `awe-server check` says to do about damaged files mends them."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.support.env import AweEnv


def test_the_advice_of_check_mends_an_upload_and_an_output(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"one\n")
    with AweEnv(tmp_path) as env:
        env.server.start()
        node = env.awe("node", "put", str(file)).stdout.strip()
        env.start_client()
        task = {
            "taskid": "copy",
            "cmd": {"name": "cp", "args": "@in.txt out.txt"},
            "inputs": [{"filename": "in.txt", "node": node}],
            "outputs": [{"filename": "out.txt"}],
        }
        job = env.submit({"tasks": [task]})
        env.wait_for(job)
        made = env.job(job)["tasks"][0]["outputs"][0]["node"]
        env.server.stop()
        for id in (node, made):
            [blob] = (env.server.data / "nodes" / "blobs").rglob(f"*{id}.*")
            blob.write_bytes(b"onE\n")
        found = env.check_store()
        assert found.returncode == 1
        send = re.search(rf"node {node} is damaged: send its file again \((.*?)\)", found.stdout)
        again = re.search(rf"node {made} is damaged: awe (recompute {job} copy) makes it again", found.stdout)
        assert send
        assert again
        env.server.start()
        words = send[1].replace("FILE", str(file)).replace("SERVER", env.server.url)
        subprocess.run(shlex.split(words), capture_output=True, check=True)
        assert env.awe(*again[1].split()).returncode == 0
        env.wait_for(job)
        made = env.job(job)["tasks"][0]["outputs"][0]["node"]
        assert env.http.get(f"/node/{made}?download").content == b"one\n"
        env.server.stop()
        assert env.check_store().returncode == 0
