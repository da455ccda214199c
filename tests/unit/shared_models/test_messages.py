"""An exchange is checked field by field: long texts are cut, counts and nonsense refused with the path."""

import copy
from typing import Any

import pytest

from shared_models.errors import InvalidDocument
from shared_models.ids import WorkunitId
from shared_models.limits import (
    MAX_HOLDS,
    MAX_IO,
    MAX_NOTES_CHARS,
    MAX_PERF_KEYS,
    MAX_REPORTS,
    MAX_TAIL_BYTES,
    MAX_WAIT_S,
    MAX_WANT,
)
from shared_models.messages import ExchangeRequest, Free, Report, check_exchange, check_report, tail
from shared_models.states import FailureKind

WORK = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_my_task_3"
MD5 = "d41d8cd98f00b204e9800998ecf8427e"
REPORT: dict[str, Any] = {
    "work": WORK,
    "attempt": 2,
    "token": "t0k3n",
    "outcome": "failed",
    "kind": "signal",
    "exit_code": None,
    "signal": 9,
    "message": "killed",
    "computetime_s": 1.5,
    "stdout_tail": "out",
    "stderr_tail": "err",
    "perf": {"max_rss_bytes": 5, "host": "n1", "nothing": None},
    "outputs": [{"filename": "sub/hits.txt", "size": 3, "md5": MD5}],
}
EXCHANGE: dict[str, Any] = {
    "incarnation": "i1",
    "request_id": 7,
    "holds": [[WORK, 2]],
    "reports": [REPORT],
    "want": 4,
    "wait_s": 30,
    "free": {"cores": 4, "memory_bytes": 5, "disk_bytes": 6, "gpus": 1},
    "draining": True,
}


def exchange(**changes: Any) -> ExchangeRequest:
    return check_exchange({**copy.deepcopy(EXCHANGE), **changes})


def report(**changes: Any) -> Report:
    return exchange(reports=[{**REPORT, **changes}]).reports[0]


def test_everything_said_is_kept() -> None:
    assert exchange() == ExchangeRequest(
        incarnation="i1",
        request_id=7,
        holds=[(WorkunitId(WORK), 2)],
        reports=[
            Report(
                work=WorkunitId(WORK),
                attempt=2,
                token="t0k3n",
                outcome="failed",
                kind=FailureKind.SIGNAL,
                exit_code=None,
                signal=9,
                message="killed",
                computetime_s=1.5,
                stdout_tail="out",
                stderr_tail="err",
                perf={"max_rss_bytes": 5, "host": "n1", "nothing": None},
                outputs=[{"filename": "sub/hits.txt", "size": 3, "md5": MD5}],
            )
        ],
        want=4,
        wait_s=30.0,
        free=Free(4, 5, 6, 1),
        draining=True,
    )


def test_any_task_name_and_any_job_id_may_be_held() -> None:
    work = "job_näme with blank_7"
    assert exchange(holds=[[work, 1]]).holds == [(work, 1)]


@pytest.mark.parametrize("rank", ["", "x", "-1", "1.5", "٣", "²", "12345678901", " 1"])
def test_an_id_like_one_before_is_checked_as_well(rank: str) -> None:
    """Of ids of one task only the ranks are looked at."""
    good = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_only"
    data = {"incarnation": "i", "request_id": 1, "holds": [[f"{good}_1", 1], [f"{good}_{rank}", 1]]}
    with pytest.raises(InvalidDocument, match=r"holds\[1\]\[0\]"):
        check_exchange(data)
    with pytest.raises(InvalidDocument, match="work: "):
        check_report({"work": f"{good}_{rank}", "outcome": "done", "attempt": 1, "token": "t"}, {good})


def test_the_least_that_can_be_said() -> None:
    least = ExchangeRequest("i", 1, [], [], 0, 0.0, None, False)
    assert check_exchange({"incarnation": "i", "request_id": 1}) == least
    nulls = {"holds": None, "reports": None, "free": None, "something_newer": 1}
    assert check_exchange({"incarnation": "i", "request_id": 1, **nulls}) == least
    done = check_report({"work": WORK, "attempt": 1, "token": "t", "outcome": "done"})
    assert (done.kind, done.exit_code, done.perf, done.outputs, done.computetime_s) == (
        None,
        None,
        {},
        [],
        0.0,
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"incarnation": ""}, "incarnation: is missing; must be text"),
        ({"incarnation": 5}, "incarnation: is missing; must be text"),
        ({"incarnation": "x" * 256}, "incarnation: is longer than 255 characters"),
        ({"request_id": 0}, "request_id: must be a whole number, 1 or more"),
        ({"request_id": True}, "request_id: must be a whole number, 1 or more"),
        ({"request_id": 2**63}, "request_id: must be a whole number, 1 or more"),
        ({"holds": {}}, "holds: must be a list"),
        ({"holds": [WORK]}, "holds[0]: must be [workunit id, attempt]"),
        ({"holds": [[WORK, 1], [WORK, -1]]}, "holds[1][1]: must be a whole number, 0 or more"),
        ({"holds": [["x", 1]]}, "holds[0][0]: 'x' is not a workunit id: expected <job>_<task>_<rank>"),
        ({"holds": [[5, 1]]}, "holds[0][0]: must be a workunit id <job>_<task>_<rank>"),
        ({"holds": [[WORK, 1]] * (MAX_HOLDS + 1)}, f"holds: has more than {MAX_HOLDS} entries"),
        ({"reports": [REPORT] * (MAX_REPORTS + 1)}, f"reports: has more than {MAX_REPORTS} entries"),
        ({"reports": [5]}, "reports[0].must be an object"),
        ({"want": -1}, f"want: must be a whole number, between 0 and {MAX_WANT}"),
        ({"want": MAX_WANT + 1}, f"want: must be a whole number, between 0 and {MAX_WANT}"),
        ({"wait_s": -1}, "wait_s: must be a number of seconds, 0 or more"),
        ({"wait_s": "1"}, "wait_s: must be a number of seconds, 0 or more"),
        ({"wait_s": float("nan")}, "wait_s: must be a number of seconds, 0 or more"),
        ({"wait_s": float("inf")}, "wait_s: must be a number of seconds, 0 or more"),
        ({"free": 3}, "free: must be an object {cores, memory_bytes, disk_bytes, gpus}"),
        ({"free": {"cores": -1}}, "free.cores: must be a whole number, 0 or more"),
        ({"draining": 1}, "draining: must be true or false"),
    ],
)
def test_refused_exchange(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        exchange(**changes)
    assert refusal.value.problems == [problem]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"work": None}, "work: must be a workunit id <job>_<task>_<rank>"),
        ({"work": "a_b"}, "work: 'a_b' is not a workunit id: expected <job>_<task>_<rank>"),
        ({"attempt": None}, "attempt: must be a whole number, 0 or more"),
        ({"token": None}, "token: is missing; must be text"),
        ({"outcome": "ok"}, "outcome: must be 'done', 'failed' or 'released'"),
        ({"outcome": ["done"]}, "outcome: must be 'done', 'failed' or 'released'"),
        (
            {"kind": "lost"},
            "kind: a failed report needs one of command, signal, timeout, oom, input, output, node",
        ),
        (
            {"kind": None},
            "kind: a failed report needs one of command, signal, timeout, oom, input, output, node",
        ),
        (
            {"kind": {}},
            "kind: a failed report needs one of command, signal, timeout, oom, input, output, node",
        ),
        ({"exit_code": "1"}, "exit_code: must be a whole number, between -2147483648 and 4294967295"),
        ({"message": 5}, "message: must be text"),
        ({"computetime_s": -0.1}, "computetime_s: must be a number of seconds, 0 or more"),
        ({"perf": []}, "perf: must be an object"),
        ({"perf": {"a": {}}}, "perf.a: must be a number, text, true, false or null"),
        (
            {"perf": {f"k{i}": 1 for i in range(MAX_PERF_KEYS + 1)}},
            f"perf: has more than {MAX_PERF_KEYS} entries",
        ),
        ({"out_of_reach": "yes"}, "out_of_reach: must be true or false"),
        ({"outputs": {}}, "outputs: must be a list"),
        ({"outputs": [{}] * (MAX_IO + 1)}, f"outputs: has more than {MAX_IO} entries"),
        ({"outputs": ["a"]}, "outputs[0]: must be an object {filename, size, md5}"),
        ({"outputs": [{"size": 1}]}, "outputs[0].filename: is missing; must be text"),
        (
            {"outputs": [{"filename": "../x", "size": 1}]},
            "outputs[0].filename: '../x' has a '..' part, which would leave the work directory",
        ),
        ({"outputs": [{"filename": "x", "size": -1}]}, "outputs[0].size: must be a whole number, 0 or more"),
        (
            {"outputs": [{"filename": "x", "size": 1, "md5": "zz"}]},
            "outputs[0].md5: must be 32 hexadecimal digits in lower case",
        ),
    ],
)
def test_refused_report(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        report(**changes)
    assert refusal.value.problems == [f"reports[0].{problem}"]


@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_an_exchange_is_an_object(data: object) -> None:
    with pytest.raises(InvalidDocument, match="the exchange must be a JSON object"):
        check_exchange(data)


def test_a_wish_to_wait_is_cut_to_the_longest_wait() -> None:
    assert exchange(wait_s=MAX_WAIT_S * 10).wait_s == MAX_WAIT_S


def test_only_a_failure_has_a_kind() -> None:
    assert report(outcome="done", kind="signal").kind is None
    assert report(outcome="released", kind="lost").kind is None


def test_an_input_may_be_out_of_reach() -> None:
    assert report(kind="node", out_of_reach=True).out_of_reach
    assert not report(kind="node").out_of_reach


def test_long_texts_are_cut() -> None:
    cut = report(message="m" * 10_000, stderr_tail="a" + "ä" * MAX_TAIL_BYTES, perf={"k" * 300: "v" * 300})
    assert cut.message == "m" * MAX_NOTES_CHARS
    assert cut.stderr_tail == "ä" * (MAX_TAIL_BYTES // 2)
    assert cut.perf == {"k" * 255: "v" * 255}


def test_a_tail_keeps_the_end_and_whole_characters() -> None:
    assert tail("abc", 3) == "abc"
    assert tail("abcd", 3) == "bcd"
    assert tail("aä€", 4) == "€"
