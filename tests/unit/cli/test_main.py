"""What `awe` says, and how it ends, when it cannot do what was asked; no server is needed for that."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import BIN

NOWHERE = ("--server", "http://127.0.0.1:9")


def refused(ran: tuple[int, str, str]) -> str:
    """The one line of a refusal."""
    code, out, err = ran
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert line.startswith("awe: ")
    return line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("watch",), "Missing argument 'JOB' (see awe watch --help)"),
        (("jobs", "--nope"), "No such option: --nope"),
        (("jobs", "--limit", "0"), "--limit"),
        (("nope",), "No such command 'nope'"),
        (("jobs", "--server", "127.0.0.1:8001"), "has to begin with http://"),
        (("jobs", "--server", "http://127.0.0.1:99999"), "a port lies between 1 and 65535"),
        (("jobs", "--server", "http://[::1"), "cannot be read"),
        (("--server", "http://", "jobs"), "has to name a host"),
    ],
)
def test_wrong_usage_is_told_in_one_line_or_as_json(
    awe: Callable[..., Any], words: tuple[str, ...], says: str
) -> None:
    assert says in refused(awe(*words))
    for place in ((*words, "--json"), ("--json", *words)):
        code, out, err = awe(*place)
        assert (code, err) == (2, "")
        reply = json.loads(out)
        assert (reply["status"], reply["code"]) == (400, "invalid_request")
        assert says.partition(" (see")[0] in reply["error"][0]


def test_the_json_of_the_command_that_is_to_be_run_is_not_ours(awe: Callable[..., Any]) -> None:
    assert "KEY=VALUE" in refused(awe("run", "--env", "A", *NOWHERE, "--", "tool", "--json"))
    assert "No such option" in refused(awe("run", "--nope", *NOWHERE, "--", "tool", "--json"))
    assert json.loads(awe("run", "--env", "A", "--json", *NOWHERE, "--", "tool")[1])["status"] == 400


def test_a_file_that_cannot_be_written_is_told_as_json_too(awe: Callable[..., Any]) -> None:
    words = [str(BIN / "awe"), "jobs", *NOWHERE, "--json"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, "awe: No space left on device\n")


def test_a_closed_stream_is_an_empty_one() -> None:
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        script = f'"$0" jobs --server http://127.0.0.1:9 {closed}'
        ran = subprocess.run(
            ["sh", "-c", script, str(BIN / "awe")], capture_output=True, text=True, check=False, timeout=60
        )
        assert (ran.returncode, ran.stdout) == (3, ""), closed
        assert "Traceback" not in ran.stderr


def test_a_node_on_stdout_leaves_no_place_for_json(awe: Callable[..., Any]) -> None:
    code, out, _ = awe("node", "get", "n", "-o", "-", "--json", *NOWHERE)
    assert code == 2
    assert "both print to standard output" in json.loads(out)["error"][0]


def test_nothing_asked_is_answered_with_help(awe: Callable[..., Any]) -> None:
    for words in ((), ("node",)):
        code, out, _ = awe(*words)
        assert code == 2
        assert "Usage: awe" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("run", "--index", "line", "--", "x"),
            "--index says where an input is cut: give --split or --parts",
        ),
        (
            ("run", "--index", "bogus", "--parts", "2", "--", "x"),
            "not one of record, line, size, chunkrecord",
        ),
        (("run", "--array", "1-3", "--index", "line", "--", "x"), "--array runs whole inputs"),
        (("run", "--array", "1-3", "--parts", "2", "--", "x"), "--array runs whole inputs"),
        (("run", "--parts", "3", "--split", "1MB", "--", "x"), "give one of them"),
        (("run", "--parts", "3", "--", "x"), "--input"),
        (("run", "--env", "AWE_RANK=9", "--", "x"), "--env AWE_RANK: names that begin with AWE_"),
        (("run", "--env", "A=1", "--env", "A=2", "--", "x"), "--env A: is given twice"),
        (("submit", "/dev/null", "--set", "K=1", "--set", "K=2"), "--set K: is given twice"),
        (("submit", "/dev/null", "--upload", "X=a", "--upload", "X=b"), "--upload X: is given twice"),
        (("clients", "--suspend", "a", "--resume", "b"), "give one of them"),
        (("clients", "--suspend", "a", "--group", "b"), "--group and --status choose"),
        (
            ("clients", "--status", "bogus"),
            "is not one of idle, busy, active-idle, active-busy, suspend, offline",
        ),
        (("jobs", "--full"), "--full is for --json"),
        (("queue", "--suspend", "--resume"), "give one of them"),
        (("logs", "-f", "--stdout", "--stderr", "j"), "--follow follows one stream"),
        (("logs", "--task", "t", "j_t_0"), "--task chooses from a job"),
    ],
)
def test_no_option_is_dropped_in_silence(awe: Callable[..., Any], words: tuple[str, ...], says: str) -> None:
    command, *others = words
    assert says in refused(awe(command, *NOWHERE, *others))


def test_help_and_version_end_well(awe: Callable[..., Any]) -> None:
    assert awe("jobs", "--help")[0] == 0
    assert awe("--version")[0] == 0
