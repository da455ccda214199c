"""What was uploaded for a job stays only if there is a job."""

import gzip
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.env import BIN
from tests.support.eventually import eventually_sync
from tests.unit.cli.conftest import Awe, Desk, Ran


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Two files."""
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    for path in paths:
        path.write_text(path.name)
    return str(paths[0]), str(paths[1])


def run_words(desk: Desk, *inputs: str) -> list[str]:
    return ["run", "--server", desk.url, *[w for i in inputs for w in ("--input", i)], "--", "cat", "a.txt"]


@pytest.fixture
def submit_words(tmp_path: Path, desk: Desk, two: tuple[str, str]) -> list[str]:
    """A job document with two inputs, and their files."""
    document = tmp_path / "job.json"
    document.write_text('{"tasks": [{"inputs": [{"filename": "a"}, {"filename": "b"}]}]}')
    return [
        "submit",
        str(document),
        "--server",
        desk.url,
        "--upload",
        f"a={two[0]}",
        "--upload",
        f"b={two[1]}",
    ]


def test_a_job_that_is_accepted_has_its_files(
    awe: Awe, desk: Desk, two: tuple[str, str], submit_words: list[str]
) -> None:
    assert awe(*run_words(desk, *two)) == (0, "j\n", "")
    assert awe(*submit_words) == (0, "j\n", "")
    assert desk.nodes == ["node-1", "node-2", "node-3", "node-4"]
    bound = [[file["node"] for file in job["tasks"][0]["inputs"]] for job in desk.jobs]
    assert bound == [["node-1", "node-2"], ["node-3", "node-4"]]


@pytest.mark.parametrize("scheme", ["http", "https", "file", "s3", "gs", "az"])
def test_what_lies_elsewhere_is_named_and_not_uploaded(
    awe: Awe, desk: Desk, two: tuple[str, str], submit_words: list[str], scheme: str
) -> None:
    url, node = f"{scheme}://place/run%207/reads.fastq", "11111111-2222-4333-8444-555555555555"
    words = run_words(desk, url, two[0], node)
    assert awe("run", "--parts", "2", *words[1:]) == (0, "j\n", "")
    assert awe(*submit_words[:-1], f"b={url}") == (0, "j\n", "")
    assert awe(*submit_words[:-3], f"a={node}", "--upload", f"b={two[1]}") == (0, "j\n", "")
    assert [job["tasks"][0]["inputs"] for job in desk.jobs] == [
        [
            {"filename": "reads.fastq", "url": url},
            {"filename": "a.txt", "node": "node-1"},
            {"filename": "x.txt", "node": node},
        ],
        [{"filename": "a", "node": "node-2"}, {"filename": "b", "url": url}],
        [{"filename": "a", "node": node}, {"filename": "b", "node": "node-3"}],
    ]
    assert desk.jobs[0]["tasks"][0]["partinfo"] == {"input": "reads.fastq"}


def test_nothing_is_sent_before_all_files_and_names_were_looked_at(
    awe: Awe, desk: Desk, two: tuple[str, str], submit_words: list[str], tmp_path: Path
) -> None:
    twin = tmp_path / "elsewhere" / "a.txt"
    twin.parent.mkdir()
    twin.touch()
    for words, says in (
        (run_words(desk, two[0], "/no/such/file"), "there is no such file"),
        (run_words(desk, two[0], str(tmp_path)), "not a file"),
        (run_words(desk, two[0], str(twin)), "another input is named a.txt"),
        (run_words(desk, two[0], "http://x/a.txt?v=1"), "another input is named a.txt"),
        (run_words(desk, two[0], "http://x/"), "names no file"),
        ([*submit_words[:-1], "b=/no/such/file"], "there is no such file"),
        (["node", "put", two[0], "/no/such/file", "--server", desk.url], "there is no such file"),
    ):
        code, out, err = awe(*words)
        assert (code, out) == (2, "")
        assert says in err
    assert desk.uploads == 0


def test_packed_files_are_not_uploaded_to_be_cut(awe: Awe, desk: Desk, two: tuple[str, str]) -> None:
    packed = Path(two[1])
    packed.write_bytes(gzip.compress(b"x"))
    words = run_words(desk, str(packed))[1:]
    for more in (("--parts", "4"), ("--split", "1MB"), ("--input", two[0], "--parts", "2", "--paired")):
        code, out, err = awe("run", *more, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"--input {packed}: a gzip file cannot be cut: unpack it" in err
    assert desk.uploads == 0
    assert awe(*run_words(desk, two[0])[:-3], "--parts", "2", "-i", str(packed), "--", "true")[0] == 0
    assert awe("run", *words)[0] == 0


@pytest.mark.parametrize(
    ("status", "code", "ends_with"),
    [(400, "invalid_document", 2), (413, "too_large", 1), (409, "conflict", 1), (403, "forbidden", 1)],
)
def test_files_go_again_when_the_job_is_refused(
    awe: Awe,
    desk: Desk,
    two: tuple[str, str],
    submit_words: list[str],
    status: int,
    code: str,
    ends_with: int,
) -> None:
    desk.job_refusal = (status, code)
    for words in (run_words(desk, *two), submit_words):
        ended, _, err = awe(*words)
        assert (ended, err.count("\n")) == (ends_with, 1)
    assert (desk.uploads, desk.nodes) == (4, [])


def test_files_go_again_when_one_of_them_cannot_be_uploaded(
    awe: Awe, desk: Desk, two: tuple[str, str]
) -> None:
    desk.refused_after = 1
    assert awe(*run_words(desk, *two))[0] == 1
    assert (desk.uploads, desk.nodes) == (1, [])


#: How to look for the job, and what to do then.
MAY_BE_THERE = (
    "awe: the job may have been accepted and need what was uploaded; if `awe jobs` does not show it, "
    "remove that: awe node rm node-1 node-2\n"
)


@pytest.mark.parametrize(("status", "code"), [(503, "not_confirmed"), (500, "internal")])
def test_files_stay_when_nobody_knows_whether_the_job_was_accepted(
    awe: Awe, desk: Desk, two: tuple[str, str], status: int, code: str
) -> None:
    desk.job_refusal = (status, code)
    ended, _, err = awe(*run_words(desk, *two))
    assert (ended, err) == (1, f"{MAY_BE_THERE}awe: {code}\n")
    assert desk.nodes == ["node-1", "node-2"]


@pytest.mark.parametrize("later", [(503, "shutting_down"), (500, "internal")])
def test_X_05_files_stay_when_an_earlier_try_was_accepted_whatever_later_ones_say(
    awe: Awe, desk: Desk, submit_words: list[str], later: tuple[int, str]
) -> None:
    desk.unconfirmed = 1
    desk.job_refusal = later
    ended, _, err = awe(*submit_words)
    assert (ended, err) == (1, f"{MAY_BE_THERE}awe: {later[1]}\n")
    assert [file["node"] for file in desk.jobs[0]["tasks"][0]["inputs"]] == desk.nodes == ["node-1", "node-2"]


def interrupted(desk: Desk, words: list[str]) -> Ran:
    """Start `awe`, and press Ctrl-C when the server keeps it waiting."""
    desk.gate = threading.Event()
    child = subprocess.Popen(
        [str(BIN / "awe"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert desk.asked.wait(60)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_files_go_again_after_ctrl_c_before_the_job_was_sent(desk: Desk, two: tuple[str, str]) -> None:
    desk.waiting_after = 1
    assert interrupted(desk, run_words(desk, *two)) == (130, "", "")
    assert (desk.uploads, desk.nodes, desk.jobs) == (1, [], [])


def test_files_of_a_job_that_was_accepted_stay_after_ctrl_c_before_its_reply(
    desk: Desk, two: tuple[str, str], submit_words: list[str]
) -> None:
    assert interrupted(desk, submit_words) == (130, "", MAY_BE_THERE)
    assert [file["node"] for file in desk.jobs[0]["tasks"][0]["inputs"]] == desk.nodes == ["node-1", "node-2"]


def test_put_tells_each_node_as_it_is_made(awe: Awe, desk: Desk, two: tuple[str, str]) -> None:
    desk.refused_after = 1
    code, out, err = awe("node", "put", *two, "--server", desk.url)
    assert (code, out, err) == (1, f"node-1\t{two[0]}\n", "awe: no_space\n")
    desk.refused_after = 2
    code, out, err = awe("node", "put", *two, "--server", desk.url, "--json")
    assert (code, err) == (1, f"{two[0]}: node-2\n")
    assert '"no_space"' in out


def test_get_writes_into_a_folder_and_to_what_is_no_file(awe: Awe, desk: Desk, tmp_path: Path) -> None:
    def get(target: str, *more: str) -> tuple[int, str, str]:
        return awe("node", "get", "n", "-o", target, "--server", desk.url, *more)

    assert get(f"{tmp_path}/")[0] == 0
    assert (tmp_path / "x.txt").read_bytes() == desk.bytes
    for target, says in (
        (str(tmp_path), "exists already"),
        (f"{tmp_path}/none/", "there is no such folder"),
        (f"{tmp_path}/none/x", "there is no such folder"),
    ):
        code, _, err = get(target)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
    assert get("/dev/null")[0] == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert get(str(pipe))[0] == 0
    assert os.read(reader, 100) == desk.bytes
    os.close(reader)
    code, out, _ = get("/dev/full", "--json")
    assert code == 1
    assert '"file_trouble"' in out
    assert pipe.is_fifo()


def test_a_job_that_is_removed_while_it_is_watched_did_not_complete(awe: Awe, desk: Desk) -> None:
    code, out, err = awe("watch", "j", "--server", desk.url)
    assert (code, out, err) == (1, "", "awe: job j was removed while it was watched\n")
    code, out, _ = awe("watch", "j", "--server", desk.url, "--json")
    assert code == 1
    assert '"job_not_found"' in out


def test_a_job_outlives_its_watcher_who_says_so(desk: Desk) -> None:
    desk.gate = threading.Event()
    child = subprocess.Popen(
        [str(BIN / "awe"), "watch", "slow", "--server", desk.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    eventually_sync(desk.asked.is_set)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert err == "job slow goes on: awe watch slow, awe rm slow\n"


def test_what_run_hands_in_is_of_whoever_is_logged_in(
    awe: Awe, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "anna")
    awe("run", "--server", desk.url, "--", "true")
    awe("run", "--server", desk.url, "--user", "ben", "--", "true")
    assert [job["info"]["user"] for job in desk.jobs] == ["anna", "ben"]
