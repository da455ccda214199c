"""Files from task to task: in sub-directories, many as one, missing, made twice (F-08, F-10)."""

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.env import AweEnv

READS = b"".join(b"@r%d\nACGTACGT\n+\nIIIIIIII\n" % i for i in range(40))


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client(slots=4)
        yield env


def task(name: str, *script: str, **keys: Any) -> dict[str, Any]:
    return {"taskid": name, "cmd": {"cmd_script": list(script)}, **keys}


def submit(site: AweEnv, *tasks: dict[str, Any]) -> str:
    return site.submit({"info": {"name": "many files"}, "tasks": list(tasks)})


def bytes_of(site: AweEnv, job: dict[str, Any], at: int = 0, output: int = 0) -> bytes:
    node = job["tasks"][at]["outputs"][output]["node"]
    return site.http.get(f"/node/{node}?download").content


def members(data: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {m.name: None if m.isdir() else archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


def test_F_08_a_file_in_a_sub_directory_goes_from_task_to_task(site: AweEnv) -> None:
    make = ["mkdir -p sub/dir results", "echo deep > sub/dir/ok.txt", "echo other > results/ok.txt"]
    log = {"stdout": "logs/of/use.txt"}
    use = ["cat sub/dir/ok.txt ok.txt", "[ ! -L sub/dir ]", "mkdir -p more; cat sub/dir/* > more/deep.txt"]
    job = submit(
        site,
        task(
            "make",
            *make,
            outputs=[{"filename": "sub/dir/ok.txt"}, {"filename": "ok.txt", "directory": "results"}],
        ),
        {
            "taskid": "use",
            "cmd": {"cmd_script": use, **log},
            "inputs": [
                {"filename": "sub/dir/ok.txt", "origin": "make"},
                {"filename": "ok.txt", "origin": "make"},
            ],
            "outputs": [{"filename": "logs/of/use.txt"}, {"filename": "./more/deep.txt"}],
        },
    )
    done = site.wait_for(job)
    made = [io["filename"] for io in done["tasks"][0]["outputs"]]
    assert made == ["sub/dir/ok.txt", "ok.txt"]
    assert bytes_of(site, done, 0) == b"deep\n"
    assert (bytes_of(site, done, 1, 0), bytes_of(site, done, 1, 1)) == (b"deep\nother\n", b"deep\n")
    node = site.data("GET", f"/node/{done['tasks'][0]['outputs'][0]['node']}")
    assert node["file"]["name"] == "ok.txt"


def test_a_folder_goes_from_task_to_task(site: AweEnv) -> None:
    make = ["mkdir -p out/sub results/deep", "echo a > out/a", "echo b > out/sub/b", "ln -s sub/b out/l"]
    make += ["echo c > results/deep/c", "printf '#!/bin/sh\\necho ran' > out/run; chmod +x out/run"]
    use = ["cat out/a out/l deep/c > all", "./out/run >> all", "ls @out/sub >> all"]
    job = submit(
        site,
        task("make", *make, outputs=[{"filename": "out/"}, {"filename": "deep/", "directory": "results"}]),
        {
            "taskid": "use",
            "cmd": {"name": "sh", "args_array": ["-c", "; ".join(use)]},
            "inputs": [{"filename": "out/", "origin": "make"}, {"filename": "deep/", "origin": "make"}],
            "outputs": [{"filename": "all"}],
        },
    )
    done = site.wait_for(job)
    assert bytes_of(site, done, 1) == b"a\nb\nc\nran\nb\n"
    node = site.data("GET", f"/node/{done['tasks'][0]['outputs'][0]['node']}")
    assert (node["file"]["name"], node["tags"]) == ("out.tar", ["archive:tar"])


def test_F_10_an_index_of_six_files_goes_from_task_to_task(site: AweEnv) -> None:
    """As bowtie2-build writes it; the names are used by their common beginning."""
    make = ["for i in 1 2 3 4 rev.1 rev.2; do echo $i > lambda.$i.bt2; done", "echo log > build.log"]
    job = submit(
        site,
        task("make", *make, outputs=[{"filename": "lambda.*.bt2", "nonzero": True}]),
        task(
            "use",
            "ls > seen",
            "cat lambda.rev.2.bt2 >> seen",
            inputs=[{"filename": "lambda.*.bt2", "origin": "make"}],
            outputs=[{"filename": "seen"}],
        ),
    )
    done = site.wait_for(job)
    names = [f"lambda.{i}.bt2" for i in ("1", "2", "3", "4", "rev.1", "rev.2")]
    assert list(members(bytes_of(site, done))) == names
    seen = bytes_of(site, done, 1).decode().split()
    assert [name for name in seen if name.endswith(".bt2")] == names
    assert (seen[-1], "build.log" in seen) == ("rev.2", False)


def test_F_10_e_one_match_and_three_of_a_pattern_in_a_stable_order(site: AweEnv) -> None:
    jobs = [
        submit(site, task("t", f"touch {names}", outputs=[{"filename": "*.out"}]))
        for names in ("b.out", "c.out a.out b.out other")
    ]
    found = [list(members(bytes_of(site, site.wait_for(job)))) for job in jobs]
    assert found == [["b.out"], ["a.out", "b.out", "c.out"]]


def test_folders_of_a_split_task_become_one_folder(site: AweEnv) -> None:
    node = site.data("POST", "/node", files={"upload": ("reads.fastq", READS)})["id"]
    job = submit(
        site,
        task(
            "split",
            "mkdir out; cp reads.fastq out/part-$AWE_RANK; echo $AWE_RANK > rank.$AWE_RANK.txt",
            totalwork=4,
            partinfo={"input": "reads.fastq", "index": "record"},
            inputs=[{"filename": "reads.fastq", "node": node}],
            outputs=[{"filename": "out/"}, {"filename": "rank.*.txt"}],
        ),
        task(
            "join",
            "cat out/part-* > whole; cat rank.*.txt > ranks",
            inputs=[{"filename": "out/", "origin": "split"}, {"filename": "rank.*.txt", "origin": "split"}],
            outputs=[{"filename": "whole"}, {"filename": "ranks"}],
        ),
    )
    done = site.wait_for(job)
    assert done["tasks"][0]["totalwork"] == 4
    assert bytes_of(site, done, 1) == READS
    assert bytes_of(site, done, 1, 1) == b"1\n2\n3\n4\n"


def test_a_file_that_two_ranks_made_suspends_the_job_by_name(site: AweEnv) -> None:
    job = submit(
        site, task("t", "mkdir out; echo $AWE_RANK > out/result", totalwork=3, outputs=[{"filename": "out/"}])
    )
    stopped = site.wait_for(job, "suspend")
    assert "output out/: ranks 1 and 2 both made 'out/result'" in stopped["error"]["servernotes"]


def test_F_10_an_optional_pattern_without_a_match_is_fine(site: AweEnv) -> None:
    outputs = [{"filename": "*.none", "optional": True}, {"filename": "x"}]
    one = submit(site, task("t", "echo x > x", outputs=outputs))
    many = submit(
        site,
        task("t", "echo x > x; [ $AWE_RANK != 2 ] || echo > 2.none", totalwork=3, outputs=outputs),
    )
    assert site.wait_for(one)["tasks"][0]["outputs"][0]["size"] == 0
    assert list(members(bytes_of(site, site.wait_for(many)))) == ["2.none"]


@pytest.mark.parametrize(
    ("script", "output", "says"),
    [
        ("true", {"filename": "out.txt"}, "declared output out.txt missing; the work directory has: "),
        ("echo x > Out.txt", {"filename": "out.txt"}, "Out.txt"),
        ("mkdir out.txt", {"filename": "out.txt"}, "write 'out.txt/' to keep the whole folder"),
        (
            "echo x > a.txt",
            {"filename": "*.out"},
            "output *.out missing; the work directory has: a.txt",
        ),
        ("setsid sh -c 'sleep 1; echo late > out.txt' &", {"filename": "out.txt"}, "output out.txt missing"),
        ("mkdir a", {"filename": "out/"}, "declared output out/ missing; the work directory has: a/"),
        ("echo x > out", {"filename": "out/"}, "output out/ is no folder; write 'out' to keep the file"),
        ("mkdir out; touch out/x", {"filename": "out/", "nonzero": True}, "out/ has only empty files"),
        ("mkdir out; mkfifo out/p", {"filename": "out/"}, "'out/p' is a pipe, socket or device"),
        ("mkdir out; ln -s /etc out/l", {"filename": "out/"}, "'out/l' leaves the work directory"),
    ],
)
def test_F_10_an_output_that_is_not_there_is_a_failure_that_says_what_is(
    site: AweEnv, script: str, output: dict[str, Any], says: str
) -> None:
    job = submit(
        site,
        task("t", script, outputs=[output], max_failures=1),
        task("next", "true", inputs=[{"filename": output["filename"], "origin": "t"}]),
    )
    stopped = site.wait_for(job, "suspend")
    assert says in stopped["error"]["worknotes"]
    assert [t["state"] for t in stopped["tasks"]] == ["suspend", "pending"]
    [unit] = site.data("GET", "/work", params={"query": "", "jobid": job})
    assert (unit["taskid"], unit["exit"]["kind"]) == (f"{job}_t", "output")


def test_F_10_d_an_empty_output_is_kept(site: AweEnv) -> None:
    job = submit(
        site, task("t", ": > out.txt; mkdir out", outputs=[{"filename": "out.txt"}, {"filename": "out/"}])
    )
    done = site.wait_for(job)
    assert bytes_of(site, done) == b""
    assert members(bytes_of(site, done, 0, 1)) == {"out": None}


def test_patterns_that_take_the_same_file_are_a_failure(site: AweEnv) -> None:
    outputs = [{"filename": "*.txt"}, {"filename": "a.*"}]
    job = submit(site, task("t", "touch a.txt b.txt a.log", outputs=outputs, max_failures=1))
    stopped = site.wait_for(job, "suspend")
    assert "'a.txt' is in the output a.*, too" in stopped["error"]["worknotes"]


def test_what_is_wrong_with_the_names_of_outputs_is_said_at_submission(site: AweEnv) -> None:
    outputs: list[dict[str, Any]] = [
        {"filename": "a/b"},
        {"filename": "b", "directory": "a"},
        {"filename": "a/*"},
        {"filename": "../x/"},
    ]
    outputs += [{"filename": "o/", "header_lines": 1}, {"filename": "p*", "shockindex": "line"}]
    reply = site.http.post("/job", json={"info": {}, "tasks": [task("t", "true", outputs=outputs)]})
    assert reply.status_code == 400
    assert reply.json()["error"] == [
        "tasks[0].outputs[3].filename: '../x/' has a '..' part, which would leave the work directory",
        "tasks[0].outputs[4].header_lines: does not apply to 'o/', which is kept as a tar",
        "tasks[0].outputs[5].shockindex: does not apply to 'p*', which is kept as a tar",
        "tasks[0].outputs[1].filename: 'a/b' is the same file as 'a/b'",
        "tasks[0].outputs[2].filename: 'a/*' matches the output 'a/b', too",
    ]


def test_an_archive_that_is_none_is_the_inputs_fault(site: AweEnv) -> None:
    node = site.data("POST", "/node", files={"upload": ("x.tar", b"no tar" * 200)})["id"]
    job = submit(site, task("t", "true", inputs=[{"filename": "x/", "node": node}], max_failures=1))
    stopped = site.wait_for(job, "suspend")
    assert (
        "input x/ cannot be unpacked: it is not a whole tar: it is not a tar" in stopped["error"]["worknotes"]
    )
