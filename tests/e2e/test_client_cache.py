"""What many workunits read comes to a client once, and a client may be killed while it comes."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cutting import CuttingProxy
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.http_files import HttpFiles

SIZE = 5_000_000


@pytest.fixture
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        yield env


def upload(site: AweEnv, data: bytes) -> str:
    return str(site.data("POST", "/node", files={"upload": ("shared.bin", data)})["id"])


def submit(site: AweEnv, script: str, ranks: int = 1, **files: Any) -> str:
    task = {"taskid": "t", "cmd": {"cmd_script": [script]}, "outputs": [{"filename": "sums.txt"}], **files}
    if ranks > 1:
        task |= {"totalwork": ranks, "partinfo": {"index": "none"}}
    return site.submit({"info": {"name": "cache"}, "tasks": [task]})


def sums(site: AweEnv, job: str) -> list[str]:
    [task] = site.wait_for(job)["tasks"]
    text = site.http.get(f"/node/{task['outputs'][0]['node']}?download").text
    return [line.split()[0] for line in text.splitlines()]


def test_an_array_fetches_its_shared_input_once_and_its_commands_may_change_it(site: AweEnv) -> None:
    data = os.urandom(SIZE)
    node, md5 = upload(site, data), hashlib.md5(data, usedforsecurity=False).hexdigest()
    entry = {"filename": "in.bin", "node": node}
    in_place = "md5sum in.bin > sums.txt; echo spoilt >> in.bin; truncate -s 7 in.bin"
    with CuttingProxy(site.server.url) as proxy:
        site.start_client(slots=4, server=proxy.url)
        job = submit(site, in_place, 20, inputs=[entry])
        assert sums(site, job) == [md5] * 20
        assert proxy.count(f"GET /node/{node}?download") == 1
        # It is as good as on the first day for other jobs, however they read it.
        for files in ({"inputs": [entry]}, {"predata": [entry]}, {"inputs": [{**entry, "cache": True}]}):
            assert sums(site, submit(site, "md5sum in.bin > sums.txt", **files)) == [md5]
        assert proxy.count(f"GET /node/{node}?download") == 1


def test_whoever_read_a_file_that_another_command_changed_meanwhile_reads_it_again(
    site: AweEnv, tmp_path: Path
) -> None:
    data = os.urandom(SIZE)
    node, md5 = upload(site, data), hashlib.md5(data, usedforsecurity=False).hexdigest()
    reading, written = tmp_path / "reading", tmp_path / "written"
    wait = "until [ -e %s ]; do sleep 0.05; done"
    reads = f"touch {reading}; {wait % written}; md5sum db.bin > sums.txt"
    once = f"{wait % reading}; chmod u+w $(readlink db.bin); echo spoilt > db.bin; touch {written}"
    writes = f"md5sum db.bin > sums.txt; [ $AWE_ATTEMPT -gt 1 ] || {{ {once}; }}"
    with CuttingProxy(site.server.url) as proxy:
        site.start_client(slots=2, server=proxy.url)
        jobs = [
            submit(site, script, predata=[{"filename": "db.bin", "node": node}]) for script in (reads, writes)
        ]
        assert [sums(site, job) for job in jobs] == [[md5], [md5]]
        assert proxy.count(f"GET /node/{node}?download") == 2
    for job in jobs:
        [unit] = site.data("GET", "/work", params={"query": "", "jobid": job})
        assert (unit["attempt"], unit["failed"]) == (2, 0)


def test_a_client_killed_while_a_file_comes_fetches_it_again_and_keeps_what_was_whole(
    site: AweEnv, tmp_path: Path
) -> None:
    data, work = os.urandom(SIZE), site.home / "work"
    node, md5 = upload(site, data), hashlib.md5(data, usedforsecurity=False).hexdigest()
    script = "md5sum in.bin db.bin > sums.txt"
    with CuttingProxy(site.server.url) as proxy, HttpFiles(tmp_path / "www") as files:
        reference = os.urandom(SIZE)
        url = files.put("db.bin", reference)
        files.block_delay_s = 0.5  # it is on its way for 38 s, if nobody is killed
        client = site.start_client("--work", str(work), server=proxy.url)
        job = submit(
            site,
            script,
            inputs=[{"filename": "in.bin", "node": node, "cache": True}],
            predata=[{"filename": "db.bin", "url": url}],
        )
        first = submit(site, "md5sum in.bin > sums.txt", 2, inputs=[{"filename": "in.bin", "node": node}])
        assert sums(site, first) == [md5] * 2
        eventually_sync(lambda: any((work / "cache").glob("*.part")))
        client.kill()
        assert any((work / "cache").glob("*.part"))
        files.block_delay_s = 0.0
        site.start_client("--work", str(work), server=proxy.url)
        assert sums(site, job) == [md5, hashlib.md5(reference, usedforsecurity=False).hexdigest()]
        assert proxy.count(f"GET /node/{node}?download") == 1
        kept = {path.stat().st_size for path in (work / "cache").iterdir()}
        assert (len(list((work / "cache").iterdir())), kept) == (2, {SIZE})
