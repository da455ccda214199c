"""Split equals whole for paired reads: mates meet in every part, and pairs in one file are never torn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_models.limits import MIB
from tests.support.env import AweEnv
from tests.support.pairs import INTERLEAVED, PAIRS

#: Prints the names of the reads of a FASTA or FASTQ file, without what tells mates apart.
NAMES = (
    "names() { tr -d '\\r' < $1 | awk 'NR == 1 { fastq = /^@/ } "
    'fastq ? NR % 4 == 1 : /^>/ { sub(/^./, "", $1); sub(/\\/.*/, "", $1); print $1 }\'; }'
)
#: Fails unless mates stand at the same place of both files.
PAIRED = [NAMES, "names r1 > n1; names r2 > n2; cmp n1 n2; test -s n1"]
#: Fails unless each name comes twice, one after the other.
ADJACENT = [NAMES, "names r1 | uniq -c | awk '$1 != 2 { exit 1 } END { exit !NR }'"]

SPLITS: dict[str, dict[str, int]] = {
    "totalwork": {"totalwork": 7},
    "maxworksize": {"maxworksize": 1},
    "whole": {},
}


def document(
    files: dict[str, str], partinfo: dict[str, Any], check: list[str], **keys: Any
) -> dict[str, Any]:
    """One task that checks its pieces, copies them, and says how many there were."""
    script = ["set -eu", *check, *(f"cp {name} {name}.copy" for name in files), "echo $AWE_RANK > rank"]
    task = {
        "taskid": "0",
        "cmd": {"cmd_script": script},
        "inputs": [{"filename": name, "node": node} for name, node in files.items()],
        "outputs": [{"filename": name} for name in (*(f"{name}.copy" for name in files), "rank")],
        "partinfo": partinfo,
        "max_failures": 1,
        **keys,
    }
    return {"info": {"name": "pairs"}, "tasks": [task]}


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client(slots=2)
        env.start_client(slots=2)
        yield env


def upload(site: AweEnv, files: dict[str, bytes]) -> dict[str, str]:
    return {
        name: site.data("POST", "/node", files={"upload": (name, content)})["id"]
        for name, content in files.items()
    }


def outputs(site: AweEnv, job: dict[str, Any]) -> dict[str, bytes]:
    return {
        file["filename"]: site.http.get(f"/node/{file['node']}?download").content
        for file in job["tasks"][0]["outputs"]
    }


def ranks(made: dict[str, bytes]) -> list[int]:
    return [int(line) for line in made["rank"].split()]


@pytest.mark.parametrize("name", PAIRS)
def test_mates_meet_in_every_part(site: AweEnv, name: str) -> None:
    first, second = PAIRS[name]
    files = upload(site, {"r1": first, "r2": second})
    part = {"input": ["r1", "r2"]}
    jobs = {how: site.submit(document(files, part, PAIRED, **keys)) for how, keys in SPLITS.items()}
    for how, job_id in jobs.items():
        job = site.wait_for(job_id, within_s=100)
        made = outputs(site, job)
        assert (made["r1.copy"], made["r2.copy"]) == (first, second)
        by_size = -(-(len(first) + len(second)) // MIB)
        count = {"totalwork": 7, "maxworksize": by_size, "whole": 1}[how]
        assert ranks(made) == (list(range(1, count + 1)) if count > 1 else [0])
        shown = job["tasks"][0]["partinfo"]
        assert (shown["input"], shown["inputs"]) == ("r1", ["r1", "r2"])
        if count > 1:
            assert (shown["index"], shown["totalindex"], shown["donerecords"]) == ("record", 500, 500)


@pytest.mark.parametrize("name", INTERLEAVED)
def test_pairs_in_one_file_are_never_torn(site: AweEnv, name: str) -> None:
    whole = INTERLEAVED[name]
    files = upload(site, {"r1": whole})
    part = {"index": "record", "options": "records=2"}
    jobs = {how: site.submit(document(files, part, ADJACENT, **keys)) for how, keys in SPLITS.items()}
    for how, job_id in jobs.items():
        job = site.wait_for(job_id, within_s=100)
        made = outputs(site, job)
        assert made["r1.copy"] == whole
        assert len(ranks(made)) == {"totalwork": 7, "maxworksize": -(-len(whole) // MIB), "whole": 1}[how]
        shown = job["tasks"][0]["partinfo"]
        if how != "whole":
            assert (shown["totalindex"], shown["totalrecords"], shown["doneindex"]) == (500, 1000, 500)


def test_files_of_different_counts_are_refused_by_name_and_run_once_they_agree(site: AweEnv) -> None:
    first, second = PAIRS["fastq"]
    fewer = second[: second.rindex(b"@pair")]
    files = upload(site, {"r1": first, "r2": fewer})
    job_id = site.submit(document(files, {"input": ["r1", "r2"]}, PAIRED, totalwork=3))
    job = site.wait_for(job_id, "suspend")
    reason = "paired inputs differ: r1 has 500 records, r2 has 499 records"
    assert (job["tasks"][0]["notes"], job["tasks"][0]["state"]) == (reason, "suspend")
    assert reason in job["notes"]
    assert site.data("GET", f"/work?jobid={job_id}") == []
    site.data("PUT", f"/node/{files['r2']}", files={"upload": ("r2", second)})
    site.data("PUT", f"/job/{job_id}?resume")
    made = outputs(site, site.wait_for(job_id))
    assert (made["r1.copy"], made["r2.copy"], ranks(made)) == (first, second, [1, 2, 3])


def test_an_odd_number_of_interleaved_records_is_refused(site: AweEnv) -> None:
    whole = INTERLEAVED["fasta"]
    files = upload(site, {"r1": whole[: whole.rindex(b">pair")]})
    job_id = site.submit(document(files, {"options": "records=2"}, ADJACENT, totalwork=3))
    job = site.wait_for(job_id, "suspend")
    assert job["tasks"][0]["notes"] == "r1 has 999 records, no multiple of 2 (partinfo.options)"
    assert site.data("GET", f"/work?jobid={job_id}") == []


def test_where_one_file_cannot_be_cut_none_is(site: AweEnv) -> None:
    first, _ = PAIRS["fastq"]
    files = upload(site, {"r1": first, "r2": b"\x1f\x8b packed"})
    job = site.wait_for(site.submit(document(files, {"input": ["r1", "r2"]}, [], totalwork=3)))
    assert ranks(outputs(site, job)) == [0]
    assert job["tasks"][0]["notes"].startswith("not split: r2")


def test_pairs_from_the_command_line(site: AweEnv, tmp_path: Path) -> None:
    for name, content in zip(("r1", "r2"), PAIRS["wrapped-fasta"], strict=True):
        (tmp_path / name).write_bytes(content)
    inputs = ["--input", str(tmp_path / "r1"), "--input", str(tmp_path / "r2")]
    names = [f"<(grep -o '^>pair[0-9]*' r{mate})" for mate in (1, 2)]
    script = f"cmp {names[0]} {names[1]}; wc -l < r1"
    done = site.awe("run", *inputs, "--paired", "--parts", "4", "--watch", "--", "bash", "-ec", script)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 4
