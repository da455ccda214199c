"""The `awe` command, word by word, against a real server and a real client."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.env import BIN, AweEnv
from tests.support.eventually import eventually_sync

NOWHERE = "http://127.0.0.1:9"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
READS = b"".join(b">r%d\nACGT\n" % i for i in range(8))
ODD = "reads of Müller, данные β.fa"

Ran = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    """One server and one client with two slots."""
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client("--name", "node one")
        eventually_sync(lambda: bool(env.data("GET", "/client")))
        yield env


@pytest.fixture
def reads(tmp_path: Path) -> Path:
    """A small FASTA file."""
    path = tmp_path / "reads.fa"
    path.write_bytes(READS)
    return path


def said(ran: Ran, code: int = 0) -> str:
    """What it printed, if it ended so."""
    assert ran.returncode == code, f"{ran.args} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def answered(ran: Ran, code: int = 0) -> Any:
    """What it printed as JSON, and nothing else."""
    return json.loads(said(ran, code))


def run(site: AweEnv, *arguments: str) -> dict[str, Any]:
    """Run a command to its end; the job."""
    job: dict[str, Any] = answered(site.awe("run", "--watch", "--json", *arguments))
    return job


def held(site: AweEnv, *arguments: str) -> dict[str, Any]:
    """Submit a command that no client may run; the job."""
    job: dict[str, Any] = answered(site.awe("run", "--group", "nobody", "--json", *arguments))
    return job


def sh(script: str) -> tuple[str, ...]:
    return "--", "sh", "-c", script


# --- run ------------------------------------------------------------------------------------------


def test_run_prints_the_commands_output_and_nothing_else_on_stdout(site: AweEnv) -> None:
    ran = site.awe("run", "--watch", *sh("printf 'one\\ntwo'; echo seen >&2"))
    assert said(ran) == "one\ntwo"
    assert "submitted" in ran.stderr
    assert "completed: 1 of 1 workunits done" in ran.stderr


def test_run_without_watch_prints_the_jobs_id(site: AweEnv) -> None:
    id = said(site.awe("run", "--", "true")).strip()
    assert UUID.fullmatch(id)
    assert said(site.awe("watch", id)) == ""


def test_run_cuts_an_input_and_merges_what_the_parts_print(site: AweEnv, reads: Path) -> None:
    whole = ("--watch", "--input", str(reads), "--parts", "4", "--index", "record")
    assert said(site.awe("run", *whole, "--", "cat", "reads.fa")).encode() == READS
    job = run(site, "--input", str(reads), "--split", "1MB", "--", "cat", "reads.fa")
    assert job["tasks"][0]["maxworksize"] == 1


def test_run_an_array_in_order_of_its_indexes(site: AweEnv) -> None:
    ran = site.awe("run", "--watch", "--array", "5-9", *sh("echo member $AWE_ARRAY_INDEX of $AWE_TOTALWORK"))
    assert said(ran) == "".join(f"member {i} of 5\n" for i in range(5, 10))


def test_run_with_everything_that_it_knows(site: AweEnv, reads: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("more\n")
    job = run(
        site, "-i", str(reads), "-i", str(other), "-o", "made.txt", "-e", "GREETING=hällo, wörld",
        "--name", "ein Name", "--priority", "7", "--cores", "1", "--memory", "1MB", "--time-limit", "60",
        "--retries", "0", *sh('cat other.txt > made.txt; echo "$GREETING"'),
    )  # fmt: skip
    assert (job["info"]["name"], job["info"]["priority"], job["state"]) == ("ein Name", 7, "completed")
    task = job["tasks"][0]
    assert (task["time_limit_s"], task["max_failures"]) == (60, 1)
    assert task["resources"]["memory_bytes"] == 2**20
    outputs = {file["filename"]: file["node"] for file in task["outputs"]}
    assert said(site.awe("node", "get", outputs["made.txt"], "--output", "-")) == "more\n"
    assert said(site.awe("node", "get", outputs["stdout.txt"], "-o", "-")) == "hällo, wörld\n"


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("PATH=$PATH:/opt/x; echo ${PATH} | tr : '\\n' | tail -1", "/opt/x\n"),
        ("for i in 1 2; do echo ${i}; done", "1\n2\n"),
        ("echo 'a${HOME}b $${HOME}' me@host.org @nobody", "a${HOME}b $${HOME} me@host.org @nobody\n"),
    ],
)
def test_run_leaves_the_words_to_the_commands_own_shell(site: AweEnv, script: str, printed: str) -> None:
    assert said(site.awe("run", "--watch", *sh(script))) == printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("--parts", "2", "--", "cat"), "--input"),
        (("--index", "line", "--", "cat"), "give --split or --parts"),
        (("--parts", "3", "--split", "1MB", "--", "cat"), "give one of them"),
        (("--array", "1-3", "--index", "line", "--", "cat"), "--array"),
        (("--env", "AWE_RANK=9", "--", "cat"), "AWE_RANK"),
        (("--cores", "999999", "--", "cat"), "tasks[0].resources.cores"),
        (("--memory", "9999999TB", "--", "cat"), "tasks[0].resources.memory_bytes"),
        (("--array", "9-1", "--", "cat"), "runs backwards"),
        (("--split", "half", "--", "cat"), "not a size"),
        (("--input", "/no/such/file", "--", "cat"), "there is no such file"),
        (("--env", "A", "--", "cat"), "KEY=VALUE"),
        (("--env", "A B=1", "--", "cat"), "A B"),
        (("--retries", "-1", "--", "cat"), "--retries"),
        (("--output", "/etc/passwd", "--", "cat"), "outputs[1].filename"),
    ],
)
def test_run_refuses_what_makes_no_sense(site: AweEnv, arguments: tuple[str, ...], words: str) -> None:
    before = answered(site.awe("jobs", "--json"))["total"]
    ran = site.awe("run", *arguments)
    assert said(ran, 2) == ""
    assert words in ran.stderr
    assert answered(site.awe("jobs", "--json"))["total"] == before


def test_what_was_uploaded_for_a_job_that_is_refused_goes_again(site: AweEnv, reads: Path) -> None:
    before = answered(site.awe("node", "ls", "--json"))["total"]
    said(site.awe("run", "--input", str(reads), "--output", "../up", "--", "cat", "reads.fa"), 2)
    assert answered(site.awe("node", "ls", "--json"))["total"] == before


# --- submit ---------------------------------------------------------------------------------------

#: As AWE's own: files as maps, placeholders everywhere, one of them where only a number may stand.
TEMPLATE = """{
  "info": {"pipeline": "two steps", "name": "#jobname", "project": "#project", "user": "#user",
           "clientgroups": "#clientgroups", "noretry": true},
  "tasks": [
    {"taskid": "0", "dependsOn": [],
     "cmd": {"name": "sh", "args": "-c 'tr a-z A-Z < \\"$1\\" > \\"$2\\"' x @#inputfile #jobname.prep.fna",
             "description": "preprocess"},
     "inputs": {"#inputfile": {"host": "http://#shockurl", "node": "#shocknode"}},
     "outputs": {"#jobname.prep.fna": {"host": "http://#shockurl"}}},
    {"taskid": "1", "dependsOn": ["0"], "totalwork": #totalwork,
     "partinfo": {"input": "#jobname.prep.fna", "index": "record"},
     "cmd": {"name": "cat", "args": "@#jobname.prep.fna", "stdout": "#jobname.found"},
     "inputs": {"#jobname.prep.fna": {"host": "http://#shockurl", "origin": "0"}},
     "outputs": {"#jobname.found": {"host": "http://#shockurl"}}}
  ]
}"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "template of mine.json"
    path.write_text(TEMPLATE, encoding="utf-8")
    return path


def filled(site: AweEnv, **values: str) -> list[str]:
    """The values of the template as arguments."""
    known = {
        "jobname": "run7", "project": "Prüfung", "user": "anna", "clientgroups": "default",
        "inputfile": "reads.fa", "shockurl": site.server.url.removeprefix("http://"),
        "shocknode": "none-yet", "totalwork": "4",
    }  # fmt: skip
    return [word for key, value in {**known, **values}.items() for word in ("--set", f"{key}={value}")]


def test_submit_an_awe_template_with_a_file(site: AweEnv, template: Path, reads: Path) -> None:
    upload = ("--upload", f"reads.fa={reads}")
    job = answered(site.awe("submit", str(template), *filled(site), *upload, "--watch", "--json"))
    assert job["state"] == "completed"
    assert (job["info"]["name"], job["info"]["project"]) == ("run7", "Prüfung")
    assert [task["totalwork"] for task in job["tasks"]] == [1, 4]
    found = job["tasks"][1]["outputs"][0]
    assert found["filename"] == "run7.found"
    assert said(site.awe("node", "get", found["node"], "-o", "-")).encode() == READS.upper()


def test_submit_names_with_blanks_and_letters_of_other_scripts(site: AweEnv, tmp_path: Path) -> None:
    path = tmp_path / ODD
    path.write_bytes(READS)
    document = {
        "info": {"name": "Задача № 1"},
        "tasks": [
            {
                "taskid": "0",
                "cmd": {"name": "cp", "args_array": [f"@{ODD}", "Ergebnis für β.txt"]},
                "inputs": [{"filename": ODD}],
                "outputs": [{"filename": "Ergebnis für β.txt"}],
            }
        ],
    }
    name = tmp_path / "Auftrag β.json"
    name.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    job = answered(site.awe("submit", str(name), "--upload", f"{ODD}={path}", "--watch", "--json"))
    output = job["tasks"][0]["outputs"][0]
    assert said(site.awe("node", "get", output["node"], "-o", "-")).encode() == READS
    assert "Задача № 1" in said(site.awe("jobs", "--name", "Задача № 1"))
    assert "Ergebnis für β.txt" in said(site.awe("show", job["jid"]))


def test_submit_reads_standard_input_and_prints_the_id(site: AweEnv) -> None:
    document = json.dumps({"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]})
    ran = subprocess.run(
        [str(BIN / "awe"), "submit", "-"], input=document, text=True, capture_output=True, check=False,
        env={**os.environ, "AWE_SERVER": site.server.url}, timeout=60,
    )  # fmt: skip
    id = said(ran).strip()
    assert answered(site.awe("watch", id, "--json"))["state"] == "completed"


def test_submit_refuses_with_field_path_and_reason(site: AweEnv, template: Path, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        ran = site.awe("submit", *arguments)
        assert said(ran, 2) == ""
        return ran.stderr

    assert "#totalwork" in refusal(str(template), "--set", "jobname=x")
    assert "#project has no value: add --set project=VALUE" in refusal(str(template), "--set", "jobname=x")
    assert "no placeholder #nope" in refusal(str(template), "--set", "nope=1")
    assert "did you mean 'jobname'?" in refusal(str(template), "--set", "jobnam=1")
    assert "NAME=PATH" in refusal(str(template), "--upload", "reads.fa")
    assert "no task has an input" in refusal(str(template), *filled(site), "--upload", "other=/etc/passwd")
    assert "No such file" in refusal(str(tmp_path / "none.json"))
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"tasks": [{"taskid": "0", "cmd": {"nmae": "x"}}]}')
    assert "tasks[0].cmd.nmae" in refusal(str(wrong))
    envelope = answered(site.awe("submit", str(wrong), "--json"), 2)
    assert (envelope["status"], envelope["code"]) == (400, "invalid_document")
    assert "tasks[0].cmd.nmae" in envelope["error"][0]


# --- look at jobs -----------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_and_filtered(site: AweEnv) -> None:
    mine = [run(site, "--name", f"list {i}", "--", "true") for i in range(3)]
    listed = answered(site.awe("jobs", "--json", "--limit", "1000"))
    jids = [int(job["jid"]) for job in listed["jobs"]]
    assert jids == sorted(jids, reverse=True)
    assert listed["total"] == len(jids)
    assert [job["id"] for job in listed["jobs"][:3]] == [job["id"] for job in reversed(mine)]

    [whole] = answered(site.awe("jobs", "--json", "--full", "--limit", "1"))["jobs"]
    assert [task["totalwork"] for task in whole["tasks"]] == [1]
    assert "tasks" not in listed["jobs"][0]

    lines = said(site.awe("jobs", "--limit", "2")).splitlines()
    assert lines[0].split("\t") == ["JID", "STATE", "DONE", "NAME", "USER", "SUBMITTED", "ID"]
    assert [line.split("\t")[0] for line in lines[1:]] == [mine[2]["jid"], mine[1]["jid"]]
    assert lines[1].split("\t")[1:4] == ["completed", "1/1", "list 2"]
    assert "see more with --offset 2" in site.awe("jobs", "--limit", "2").stderr
    assert said(site.awe("jobs", "--limit", "1", "--offset", "1")).splitlines()[1].startswith(mine[1]["jid"])
    named = answered(site.awe("jobs", "--name", "list 1", "--state", "completed,suspend", "--json"))
    assert [job["id"] for job in named["jobs"]] == [mine[1]["id"]]
    assert said(site.awe("jobs", "--state", "sleeping"), 2) == ""


def test_show_by_id_and_by_jid(site: AweEnv) -> None:
    job = run(site, "--name", "shown", *sh("echo x"))
    by_id, by_jid = (said(site.awe("show", name)) for name in (job["id"], job["jid"]))
    assert by_id == by_jid
    rows = dict(line.split("\t", 1) for line in by_id.splitlines() if "\t" in line)
    assert (rows["id"], rows["name"], rows["state"]) == (job["id"], "shown", "completed")
    assert job["tasks"][0]["outputs"][0]["node"] in by_id
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", rows["submitted"])
    assert rows["submitted"] in said(site.awe("jobs"))
    assert re.search(r"\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\tnever\n", said(site.awe("node", "ls")))
    assert answered(site.awe("show", job["jid"], "--json")) == answered(site.awe("show", job["id"], "--json"))


def test_show_names_no_node_for_an_output_that_has_no_file_yet(site: AweEnv) -> None:
    waiting = held(site, "--output", "made.txt", "--", "true")
    shown = said(site.awe("show", waiting["id"]))
    assert "run\tmade.txt\t-\t-\t-\n" in shown
    assert "run\tstdout.txt\t-\t-\t-\n" in shown
    said(site.awe("rm", waiting["id"]))


def test_show_tells_an_output_that_was_not_made_from_an_empty_file(site: AweEnv, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    outputs = [{"filename": "empty.txt"}, {"filename": "maybe.txt", "optional": True}]
    task = {"taskid": "t", "cmd": {"name": "touch", "args": "empty.txt"}, "outputs": outputs}
    path.write_text(json.dumps({"tasks": [task]}))
    job = answered(site.awe("submit", str(path), "--watch", "--json"))
    shown = said(site.awe("show", job["id"]))
    assert "t\tmaybe.txt\tnot made\t-\t-\n" in shown
    assert f"t\tempty.txt\t0\t{job['tasks'][0]['outputs'][0]['node']}\t" in shown


def test_submit_says_which_file_is_missing_and_how_to_give_it(site: AweEnv, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    inputs = [{"filename": "reads.fa"}, {"filename": "ref.fa", "node": "-"}]
    path.write_text(json.dumps({"tasks": [{"taskid": "0", "cmd": {"name": "wc"}, "inputs": inputs}]}))
    ran = site.awe("submit", str(path))
    assert said(ran, 2) == ""
    assert ran.stderr.splitlines() == [
        "awe: no file is given for input reads.fa: add --upload reads.fa=PATH",
        "awe: no file is given for input ref.fa: add --upload ref.fa=PATH",
    ]


def test_why_says_what_is_waited_for(site: AweEnv) -> None:
    waiting = held(site, "--", "true")
    for name in (waiting["id"], waiting["jid"], f"{waiting['jid']}_run_0", f"{waiting['id']}_run_0"):
        assert "no live client in group `nobody`" in said(site.awe("why", name))
        assert "`nobody`" in answered(site.awe("why", name, "--json"))[-1]["reason"]
    said(site.awe("rm", waiting["id"]))
    done = run(site, "--", "true")
    assert said(site.awe("why", done["jid"])) == f"job {done['jid']} is completed: it waits for nothing\n"
    assert "is completed: it waits for nothing" in said(site.awe("why", f"{done['jid']}_run_0"))
    assert answered(site.awe("why", done["id"], "--json")) == []


def test_logs_of_a_job_and_of_a_workunit(site: AweEnv) -> None:
    script = "echo out $AWE_RANK; echo err $AWE_RANK >&2"
    job = run(site, "--array", "1-2", *sh(script))
    jid, id = job["jid"], job["id"]
    ran = site.awe("logs", jid)
    assert said(ran) == "out 1\nerr 1\nout 2\nerr 2\n"
    assert f"--- {id}_run_2 stderr" in ran.stderr
    assert said(site.awe("logs", id, "--stderr", "--task", "run")) == "err 1\nerr 2\n"
    report = answered(site.awe("logs", jid, "--json"))
    assert [unit["logs"]["stdout"] for unit in report["tasks"][0]["workunits"]] == ["out 1\n", "out 2\n"]

    both = site.awe("logs", f"{jid}_run_1")
    assert (said(both), both.stderr) == ("out 1\n", "err 1\n")
    assert said(site.awe("logs", f"{id}_run_2", "--stderr")) == "err 2\n"
    unit = answered(site.awe("logs", f"{jid}_run_2", "--json"))
    assert unit == {"wuid": f"{id}_run_2", "logs": {"stdout": "out 2\n", "stderr": "err 2\n"}}
    assert "it has: run" in site.awe("logs", jid, "--task", "7").stderr
    several = site.awe("logs", "-f", jid)
    assert said(several, 2) == ""
    assert f"such as {id}_run_1" in several.stderr


def test_logs_name_a_result_instead_of_printing_it(site: AweEnv) -> None:
    job = run(site, *sh("yes | head -c 5000; echo trouble >&2"))
    unit = f"{job['id']}_run_0"
    went = "stdout went to output stdout.txt (5000 bytes); --stdout prints it"
    ran = site.awe("logs", job["id"])
    assert said(ran) == "trouble\n"
    assert ran.stderr.splitlines()[0] == f"--- {job['id']}_run {went}"
    ran = site.awe("logs", unit)
    assert (said(ran), ran.stderr) == ("", f"--- {unit} {went}\ntrouble\n")
    for name in (job["id"], unit):
        assert said(site.awe("logs", "--stdout", name)) == "y\n" * 2500


def test_logs_follow_a_command_to_its_last_line(site: AweEnv, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo last; echo trouble >&2"
    id = said(site.awe("run", *sh(script))).strip()
    follower = subprocess.Popen(
        [str(BIN / "awe"), "logs", "-f", id], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "AWE_SERVER": site.server.url},
    )  # fmt: skip
    assert follower.stdout is not None
    try:
        assert follower.stdout.readline() == b"first\n"
        gate.touch()
        out, err = follower.communicate(timeout=60)
    finally:
        follower.kill()
        follower.wait()
    assert (out, err, follower.returncode) == (b"last\n", b"", 0)
    assert said(site.awe("logs", id, "--stdout")) == "first\nlast\n"
    lines = [json.loads(line) for line in said(site.awe("logs", "-f", f"{id}_run_0", "--json")).splitlines()]
    assert {line["stream"] for line in lines} == {"stdout"}
    assert "".join(line["text"] for line in lines) == "first\nlast\n"
    assert said(site.awe("logs", "-f", "--stderr", id)) == "trouble\n"


# --- steer jobs -------------------------------------------------------------------------------------


def test_suspend_and_resume(site: AweEnv) -> None:
    job = held(site, "--", "true")
    assert said(site.awe("suspend", job["jid"])) == f"job suspended: {job['id']}\n"
    assert "manually suspended" in said(site.awe("show", job["id"]))
    assert answered(site.awe("resume", job["id"], "--json")) == {"message": f"job resumed: {job['id']}"}
    assert answered(site.awe("suspend", job["id"], "--json"))["message"].startswith("job suspended")
    assert said(site.awe("resume", job["jid"])) == f"job resumed: {job['id']}\n"
    refused = site.awe("resume", job["jid"])
    assert said(refused, 1) == ""
    assert "is not in 'suspend' status" in refused.stderr
    said(site.awe("rm", job["jid"]))


def test_recompute_and_resubmit(site: AweEnv) -> None:
    job = run(site, "--name", "again", *sh("echo x"))
    id, jid = job["id"], job["jid"]
    assert said(site.awe("recompute", jid, "run")) == f"job recompute started at task run: {id}\n"
    assert answered(site.awe("watch", jid, "--json"))["resumed"] == 1
    assert answered(site.awe("resubmit", jid, "--json")) == {"message": f"job resubmitted: {id}"}
    assert answered(site.awe("watch", id, "--json"))["resumed"] == 2
    assert answered(site.awe("recompute", id, "run", "--json"))["message"].endswith(id)
    said(site.awe("watch", id))
    assert said(site.awe("resubmit", id)) == f"job resubmitted: {id}\n"
    said(site.awe("watch", id))
    assert "task not found" in site.awe("recompute", id, "7").stderr


def test_rm_keeps_the_document_unless_everything_is_to_go(site: AweEnv) -> None:
    job, other = run(site, *sh("echo x")), run(site, *sh("echo y"))
    node = other["tasks"][0]["outputs"][0]["node"]
    assert said(site.awe("rm", job["jid"])) == f"job deleted: {job['id']}\n"
    assert answered(site.awe("show", job["id"], "--json"))["state"] == "deleted"
    assert answered(site.awe("rm", other["jid"], "--full", "--json")) == {
        "message": f"job deleted: {other['id']}"
    }
    assert said(site.awe("show", other["id"]), 2) == ""
    assert answered(site.awe("show", other["id"], "--json"), 2)["code"] == "job_not_found"
    eventually_sync(lambda: site.awe("node", "get", node, "-o", "-").returncode == 2)


# --- exit codes of watching ------------------------------------------------------------------------


def test_watch_ends_with_0_1_2_or_3(site: AweEnv) -> None:
    good = said(site.awe("run", "--", "true")).strip()
    bad = said(site.awe("run", "--retries", "0", *sh("echo no luck >&2; exit 3"))).strip()
    final = said(site.awe("run", *sh("exit 42"))).strip()
    assert said(site.awe("watch", good)) == ""
    assert answered(site.awe("watch", good, "--json"))["state"] == "completed"
    ran = site.awe("watch", bad)
    assert said(ran, 1) == ""
    assert "no luck" in ran.stderr
    assert f"({bad}) is suspended: " in ran.stderr
    assert f"awe resume {bad}" in ran.stderr
    assert f"awe rm {bad}" in ran.stderr
    assert "submit it anew" in site.awe("watch", final).stderr
    assert answered(site.awe("watch", bad, "--json"), 1)["state"] == "suspend"
    assert answered(site.awe("watch", final, "--json"), 1)["state"] == "failed-permanent"
    said(site.awe("rm", final))
    assert answered(site.awe("watch", final, "--json"), 1)["state"] == "deleted"
    assert said(site.awe("watch"), 2) == ""
    assert "job not found:no-such-job" in site.awe("watch", "no-such-job").stderr
    assert said(site.awe("watch", "99999999"), 2) == ""
    assert said(site.awe("watch", good, "--server", NOWHERE), 3) == ""


def test_run_and_submit_with_watch_end_with_the_same_codes(site: AweEnv, tmp_path: Path) -> None:
    assert said(site.awe("run", "--watch", "--", "true")) == ""
    assert said(site.awe("run", "--watch", "--retries", "0", "--", "false"), 1) == ""
    assert (
        answered(site.awe("run", "--watch", "--retries", "0", "--json", "--", "false"), 1)["state"]
        == "suspend"
    )
    assert said(site.awe("run", "--watch", "--no-such-option", "--", "true"), 2) == ""
    assert said(site.awe("run", "--watch", "--server", NOWHERE, "--", "true"), 3) == ""
    path = tmp_path / "job.json"
    for command, code in (("true", 0), ("false", 1)):
        task = {"taskid": "0", "cmd": {"name": command}, "max_failures": 1}
        path.write_text(json.dumps({"tasks": [task]}))
        said(site.awe("submit", str(path), "--watch"), code)
    assert said(site.awe("submit", str(path), "--watch", "--server", NOWHERE), 3) == ""


def test_watch_waits_for_a_server_that_restarts(site: AweEnv, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    id = said(site.awe("run", *sh(f"while [ ! -e {gate} ]; do sleep 0.05; done"))).strip()
    watcher = subprocess.Popen(
        [str(BIN / "awe"), "watch", id], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "AWE_SERVER": site.server.url},
    )  # fmt: skip
    assert watcher.stderr is not None
    try:
        assert "0 of 1 workunits done" in watcher.stderr.readline()
        site.server.restart()
        gate.touch()
        _, err = watcher.communicate(timeout=60)
    finally:
        watcher.kill()
        watcher.wait()
    assert watcher.returncode == 0
    assert "1 of 1 workunits done" in err


def test_logs_are_followed_from_attempt_to_attempt_and_over_a_restart(site: AweEnv, tmp_path: Path) -> None:
    gate, again = tmp_path / "gate", tmp_path / "again"
    script = (
        f"echo attempt $AWE_ATTEMPT begins; while [ ! -e {gate} ]; do sleep 0.05; done; "
        f"[ -e {again} ] || {{ touch {again}; exit 3; }}; echo done"
    )
    id = said(site.awe("run", *sh(script))).strip()
    follower = subprocess.Popen(
        [str(BIN / "awe"), "logs", "-f", id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "AWE_SERVER": site.server.url},
    )  # fmt: skip
    assert follower.stdout is not None
    try:
        assert follower.stdout.readline() == "attempt 1 begins\n"
        site.server.restart()
        gate.touch()
        out, err = follower.communicate(timeout=60)
    finally:
        follower.kill()
        follower.wait()
    assert (out, follower.returncode) == ("attempt 2 begins\ndone\n", 0)
    assert err == f"--- {id}_run_0 attempt 2\n"


# --- the site -----------------------------------------------------------------------------------------


def test_clients_are_listed_suspended_and_resumed(site: AweEnv) -> None:
    [client] = answered(site.awe("clients", "--json"))
    assert (client["name"], client["group"]) == ("node one", "default")
    assert said(site.awe("clients", "--group", "none")).count("\n") == 1
    id = client["id"]
    assert said(site.awe("clients", "--suspend", id)) == "client suspended\n"
    ran = site.awe("clients", "--status", "suspend")
    [row] = said(ran).splitlines()[1:]
    assert f"awe clients --resume {id}" in ran.stderr
    assert row.split("\t")[:3] == ["node one", "default", "suspend"]
    assert answered(site.awe("clients", "--resume", id, "--json")) == {"message": "client resumed"}
    assert said(site.awe("clients", "--resume", id), 1) == ""
    assert "Client not found" in site.awe("clients", "--suspend", "nobody").stderr
    assert said(site.awe("clients", "--suspend", "node one")) == "client suspended\n"
    assert said(site.awe("clients", "--resume", "node one")) == "client resumed\n"


def test_clients_say_how_much_runs(site: AweEnv, tmp_path: Path) -> None:
    def runs() -> str:
        header, row = said(site.awe("clients")).splitlines()
        return dict(zip(header.split("\t"), row.split("\t"), strict=True))["RUNS"]

    eventually_sync(lambda: runs() == "0", show=runs)
    gate = tmp_path / "gate"
    id = said(site.awe("run", "--array", "1-2", *sh(f"while [ ! -e {gate} ]; do sleep 0.05; done"))).strip()
    eventually_sync(lambda: runs() == "2", show=runs)
    gate.touch()
    said(site.awe("watch", id))


def test_queue_counts_stops_and_goes_on(site: AweEnv) -> None:
    counts = answered(site.awe("queue", "--json"))
    assert counts["clients"]["total"] == 1
    lines = said(site.awe("queue")).splitlines()
    assert lines[0] == "WHAT\tSTATE\tCOUNT"
    assert "clients\ttotal\t1" in lines
    assert [line.split("\t")[:2] for line in lines if "unfinished" in line] == [
        ["jobs", "unfinished"],
        ["tasks", "of unfinished jobs"],
        ["workunits", "unfinished"],
    ]
    assert said(site.awe("queue", "--suspend")) == "work queue suspended\n"
    id = said(site.awe("run", "--", "true")).strip()
    assert "suspended" in said(site.awe("why", id))
    assert answered(site.awe("queue", "--resume", "--json")) == {"message": "work queue resumed"}
    said(site.awe("watch", id))


# --- nodes ----------------------------------------------------------------------------------------


def test_nodes_are_put_listed_got_and_removed(site: AweEnv, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a b.txt", "δεδομένα.txt", ODD)]
    for path in paths:
        path.write_bytes(path.name.encode() * 3)
    [first] = [said(site.awe("node", "put", str(paths[0]))).strip()]
    assert UUID.fullmatch(first)
    rest = [line.split("\t") for line in said(site.awe("node", "put", *map(str, paths[1:]))).splitlines()]
    assert [path for _, path in rest] == [str(path) for path in paths[1:]]
    ids = [first, *(id for id, _ in rest)]

    listed = answered(site.awe("node", "ls", "--json", "--limit", "3"))
    assert [node["id"] for node in listed["nodes"]] == ids[::-1]
    assert [node["file"]["name"] for node in listed["nodes"]] == [path.name for path in paths[::-1]]
    times = [
        node["created_on"] for node in answered(site.awe("node", "ls", "--json", "--limit", "999"))["nodes"]
    ]
    assert times == sorted(times, reverse=True)
    rows = [line.split("\t") for line in said(site.awe("node", "ls", "--limit", "3")).splitlines()]
    assert rows[0] == ["ID", "SIZE", "NAME", "CREATED", "EXPIRES"]
    assert [row[0] for row in rows[1:]] == ids[::-1]

    folder = tmp_path / "down"
    folder.mkdir()
    ran = subprocess.run(
        [str(BIN / "awe"), "node", "get", ids[2]], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "AWE_SERVER": site.server.url}, timeout=60,
    )  # fmt: skip
    assert said(ran) == ""
    assert (folder / ODD).read_bytes() == paths[2].read_bytes()
    target = folder / "another name"
    document = answered(site.awe("node", "get", ids[1], "--output", str(target), "--json"))
    assert document["file"]["size"] == target.stat().st_size
    assert target.read_bytes() == paths[1].read_bytes()

    put = answered(site.awe("node", "put", str(paths[0]), "--json"))
    assert [node["file"]["name"] for node in put] == ["a b.txt"]
    assert said(site.awe("node", "rm", ids[0], ids[1])) == ""
    assert answered(site.awe("node", "rm", ids[2], put[0]["id"], "--json")) == {
        "deleted": [ids[2], put[0]["id"]]
    }
    for id in ids:
        assert answered(site.awe("node", "get", id, "--json"), 2)["code"] == "node_not_found"
    assert said(site.awe("node", "put", str(tmp_path / "none")), 2) == ""
    assert "not a file" in site.awe("node", "put", str(tmp_path)).stderr


def test_a_node_that_a_job_needs_is_not_removed_and_the_job_is_named(site: AweEnv) -> None:
    waiting = held(site, "--output", "made.txt", "--", "true")
    path = f"/job/{waiting['id']}"
    eventually_sync(lambda: site.data("GET", path)["state"] == "queued")
    outputs = site.data("GET", path)["tasks"][0]["outputs"]
    [node] = [io["node"] for io in outputs if io["filename"] == "made.txt"]
    ran = site.awe("node", "rm", node)
    assert said(ran, 1) == ""
    assert f"of job {waiting['id']}, which is queued: it can be deleted when the job has ended" in ran.stderr
    said(site.awe("rm", waiting["id"]))
    eventually_sync(lambda: site.awe("node", "get", node).returncode == 2)


def test_a_file_is_not_overwritten_by_a_name_that_somebody_else_chose(site: AweEnv, tmp_path: Path) -> None:
    node = site.data("POST", "/node", files={"upload": ("../../precious", b"evil")})["id"]
    (tmp_path / "precious").write_text("mine")
    ran = subprocess.run(
        [str(BIN / "awe"), "node", "get", node], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "AWE_SERVER": site.server.url}, timeout=60,
    )  # fmt: skip
    assert said(ran, 2) == ""
    assert (tmp_path / "precious").read_text() == "mine"


#: Names that have broken downloads elsewhere, and what an old reader of the header takes each for.
NAMES = {
    "résumé.txt": "r_sum_.txt",
    "报告.fa": "__.fa",
    "plan-🚀.txt": "plan-_.txt",
    "em—dash": "em_dash",
    'a"b.txt': "a_b.txt",
    "n" * 255: "n" * 255,
    "é" * 127 + "x": "_" * 127 + "x",
}


@pytest.fixture
def odd(site: AweEnv, tmp_path: Path) -> dict[str, Any]:
    """A job that has made a file of each of these names, and joined them in a second task."""
    make = 'import sys\nfor name in sys.argv[1:]: open(name, "w").write(f"made {name}\\n")'
    tasks = [
        {
            "taskid": "make",
            "cmd": {"name": "python3", "args_array": ["-c", make, *NAMES]},
            "outputs": [{"filename": name} for name in NAMES],
        },
        {
            "taskid": "join",
            "cmd": {"name": "cat", "args_array": [f"@{name}" for name in NAMES], "stdout": "joined"},
            "inputs": [{"filename": name, "origin": "make"} for name in NAMES],
            "outputs": [{"filename": "joined"}],
        },
    ]
    document = tmp_path / "job.json"
    document.write_text(json.dumps({"tasks": tasks}))
    job: dict[str, Any] = answered(site.awe("submit", str(document), "--watch", "--json"))
    return job


def test_F_07_outputs_with_any_name_are_downloaded(site: AweEnv, odd: dict[str, Any], tmp_path: Path) -> None:
    """By the API and by `awe`; there is no dashboard yet that could be asked, too."""
    texts = {name: f"made {name}\n".encode() for name in NAMES}
    made, joined = odd["tasks"]
    node = joined["outputs"][0]["node"]
    assert site.http.get(f"/node/{node}?download").content == b"".join(texts.values())
    folder = tmp_path / "down"
    folder.mkdir()
    for output in made["outputs"]:
        name, path = output["filename"], f"/node/{output['node']}?download"
        escaped = f"; filename*=UTF-8''{quote(name, safe='')}" if NAMES[name] != name else ""
        for window, status, content in (
            ({}, 200, texts[name]),
            ({"Range": "bytes=5-"}, 206, texts[name][5:]),
            ({"Range": "bytes=-3"}, 206, texts[name][-3:]),
        ):
            reply = site.http.get(path, headers=window)
            assert (reply.status_code, reply.content) == (status, content)
            assert reply.headers["content-disposition"] == f'attachment; filename="{NAMES[name]}"{escaped}'
        said(site.awe("node", "get", output["node"], "--output", f"{folder}/"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == texts


@pytest.mark.parametrize("name", ["x\r\ny", "x\ny", "n" * 256, "é" * 128])
def test_F_07_an_output_with_a_bad_name_is_refused_at_submit(site: AweEnv, tmp_path: Path, name: str) -> None:
    document = tmp_path / "job.json"
    task = {"taskid": "0", "cmd": {"name": "true"}, "outputs": [{"filename": name}]}
    document.write_text(json.dumps({"tasks": [task]}))
    ran = site.awe("submit", str(document))
    assert said(ran, 2) == ""
    assert "tasks[0].outputs[0].filename: " in ran.stderr


# --- json -----------------------------------------------------------------------------------------


def test_json_is_what_the_server_sent_whole_and_in_order(site: AweEnv, reads: Path) -> None:
    job = held(site, "--input", str(reads), "--parts", "2", "--", "wc", "reads.fa")
    node = site.data("GET", f"/job/{job['id']}")["tasks"][0]["inputs"][0]["node"]
    target = reads.with_name("again.fa")
    for command, path in (
        (("show", job["jid"]), f"/job/{job['id']}"),
        (("why", job["id"]), f"/job/{job['id']}?why"),
        (("logs", job["id"]), f"/job/{job['id']}?report"),
        (("node", "get", node, "-o", str(target)), f"/node/{node}"),
        (("queue",), "/queue?json"),
    ):
        printed = said(site.awe(*command, "--json"))
        assert printed == json.dumps(site.data("GET", path), indent=2, ensure_ascii=False) + "\n"
    clients, sent = answered(site.awe("clients", "--json")), site.data("GET", "/client")
    assert [list(client) for client in clients] == [list(client) for client in sent]
    assert site.awe("rm", job["id"]).returncode == 0


# --- everywhere -------------------------------------------------------------------------------------

EVERY_COMMAND = [
    ("jobs",), ("show", "x"), ("watch", "x"), ("why", "x"), ("logs", "x"), ("logs", "-f", "x_0_0"),
    ("suspend", "x"), ("resume", "x"), ("recompute", "x", "0"), ("resubmit", "x"), ("rm", "x"),
    ("clients",), ("queue",), ("node", "ls"), ("node", "get", "x"), ("node", "rm", "x"), ("run", "true"),
]  # fmt: skip


def test_no_server_is_3_and_says_which_and_what_to_look_at(site: AweEnv) -> None:
    started = [
        subprocess.Popen(
            [str(BIN / "awe"), *command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "AWE_SERVER": NOWHERE},
        )
        for command, flags in zip(EVERY_COMMAND, cycle([(), ("--json",)]), strict=False)
    ]  # fmt: skip
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 3, process.args
        if "--json" in process.args:  # type: ignore[operator]
            assert json.loads(out)["code"] == "server_unreachable"
        else:
            assert out == ""
            assert f"cannot reach {NOWHERE}: Connection refused" in err
            assert "AWE_SERVER" in err


def test_an_address_without_http_is_wrong_usage(site: AweEnv) -> None:
    ran = site.awe("jobs", "--server", "127.0.0.1:8001")
    assert said(ran, 2) == ""
    assert "http://" in ran.stderr


def test_a_job_that_wrote_nothing_says_so(site: AweEnv) -> None:
    ran = site.awe("logs", run(site, "--", "true")["id"])
    assert said(ran) == ""
    assert "nothing was written" in ran.stderr


def test_the_server_may_be_named_before_or_behind_the_command(site: AweEnv) -> None:
    url = site.server.url
    wrong = {**os.environ, "AWE_SERVER": NOWHERE}
    for words in (
        ("--server", url, "queue", "--json"),
        ("queue", "-s", url, "--json"),
        ("-s", url, "--json", "queue"),
    ):
        ran = subprocess.run(
            [str(BIN / "awe"), *words], env=wrong, capture_output=True, text=True, timeout=60, check=False
        )
        assert "jobs" in answered(ran)


def test_what_is_piped_has_no_escape_codes(site: AweEnv) -> None:
    job = run(site, "--", "true")
    bad = answered(site.awe("run", "--watch", "--retries", "0", "--json", "--", "false"), 1)
    for command in (
        ("jobs",), ("show", bad["id"]), ("watch", bad["id"]), ("why", bad["id"]), ("logs", job["id"]),
        ("clients",), ("node", "ls"), ("run", "--watch", "--", "true"), ("show", "nothing"), ("watch",),
    ):  # fmt: skip
        ran = site.awe(*command)
        assert "\x1b" not in ran.stdout + ran.stderr, command


def test_it_says_its_version_and_helps(site: AweEnv) -> None:
    assert re.fullmatch(r"awe \d+\.\d+.*\n", said(site.awe("--version")))
    server = [str(BIN / "awe-server"), "--version"]
    ran = subprocess.run(server, capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"awe-server \d+\.\d+.*\n", said(ran))
    helped = said(site.awe("--help"))
    for command in (
        "submit", "run", "jobs", "show", "watch", "why", "logs", "suspend", "resume", "recompute", "resubmit",
        "rm", "clients", "queue", "node", "demo",
    ):  # fmt: skip
        assert re.search(rf"\b{command}\b", helped)
    assert "\x1b" not in helped
    assert "--upload" in said(site.awe("submit", "--help"))


def test_a_full_disk_a_missing_folder_and_an_empty_id_are_told_in_one_line(
    site: AweEnv, reads: Path, tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [str(BIN / "awe"), "jobs", "--server", site.server.url],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == "awe: No space left on device\n"
    node = said(site.awe("node", "put", str(reads))).strip()
    for target in (f"{tmp_path}/missing/", tmp_path / "missing" / "x"):
        refused = site.awe("node", "get", node, "-o", str(target))
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
    assert "is not an id" in site.awe("show", "").stderr


def test_a_job_that_is_taken_for_a_node_is_told_as_one(site: AweEnv) -> None:
    job = run(site, "--", "true")
    for name in (job["jid"], job["id"]):
        ran = site.awe("node", "get", name, "-o", "-")
        assert (said(ran, 2), ran.stderr) == (
            "",
            f"awe: {name} is a job: awe show {name} lists its outputs\n",
        )
    assert "is a job" not in site.awe("node", "get", "999999999").stderr


def test_watch_ends_with_how_to_get_what_was_made(site: AweEnv, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    elsewhere = {"filename": "a", "optional": True, "url": "http://127.0.0.1:9/a"}
    for outputs, says in (
        ([{"filename": "a"}], "lists its outputs, awe node get NODE fetches one"),
        ([elsewhere], "lists its outputs and where they are"),
        ([], ""),
    ):
        command = "touch" if outputs and "url" not in outputs[0] else "true"
        task = {"taskid": "t", "cmd": {"name": command, "args_array": ["a"]}, "outputs": outputs}
        path.write_text(json.dumps({"tasks": [task]}))
        ran = site.awe("submit", str(path), "--watch")
        assert said(ran) == ""
        assert ran.stderr.splitlines()[-1].endswith(says or "1 of 1 workunits done")
