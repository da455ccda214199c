"""The document of `awe run`, and binding uploads to inputs."""

import json
from typing import Any

import pytest

from awe_client.cli.one_task import OneTask, check_splitting
from awe_client.cli.submit import bind_inputs, check_sources, pairs
from shared_models.errors import BadRequest, InvalidDocument
from shared_models.parse import parse_job_document

NODE = "11111111-2222-4333-8444-555555555555"


def parsed(task: OneTask) -> dict[str, object]:
    """The one task, after the server's own validation."""
    document = task.document()
    parse_job_document(json.dumps(document).encode())
    (only,) = document["tasks"]
    return dict(only)


def test_the_words_of_the_command_arrive_one_by_one() -> None:
    task = parsed(OneTask(["grep", "-c", "two words", "it's"]))
    assert task["cmd"]["name"] == "grep"  # type: ignore[index]
    assert task["cmd"]["args_array"] == ["-c", "two words", "it's"]  # type: ignore[index]


def test_what_the_commands_own_shell_is_to_expand_is_kept_from_us() -> None:
    task = parsed(OneTask(["sh", "-c", "for i in 1 2; do echo ${i} $HOME; done"]))
    assert task["cmd"]["args_array"] == ["-c", "for i in 1 2; do echo $${i} $HOME; done"]  # type: ignore[index]


def test_a_split_names_the_first_input() -> None:
    task = parsed(OneTask(["wc"], inputs={"a.fq": NODE, "b.fq": NODE}, split_mb=50, index="record"))
    assert task["maxworksize"] == 50
    assert task["partinfo"] == {"input": "a.fq", "index": "record"}


def test_paired_inputs_are_the_first_two_and_records_stay_together() -> None:
    inputs = {"r1.fq": NODE, "r2.fq": NODE, "ref.fa": NODE}
    task = parsed(OneTask(["map"], inputs=inputs, parts=4, paired=True))
    assert task["partinfo"] == {"input": ["r1.fq", "r2.fq"]}
    task = parsed(OneTask(["map"], inputs=inputs, parts=4, records=2))
    assert task["partinfo"] == {"input": "r1.fq", "options": "records=2"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"inputs": 1, "parts": 2, "paired": True}, "name both with --input"),
        ({"inputs": 2, "paired": True}, "give --split or --parts with them"),
        ({"inputs": 1, "records": 2}, "give --split or --parts with them"),
        ({"inputs": 2, "parts": 2, "paired": True, "index": "size"}, "--index size cuts through records"),
    ],
)
def test_pairs_that_cannot_be_cut_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        check_splitting(**{"split": "", "parts": None, "index": "", "array": "", **options})


def test_an_array_cuts_nothing_and_says_where_it_begins() -> None:
    task = parsed(OneTask(["echo"], array=(5, 9)))
    assert task["totalwork"] == 5
    assert task["partinfo"] == {"index": "none"}
    assert task["cmd"]["environ"]["public"] == {"AWE_ARRAY_FIRST": "5"}  # type: ignore[index]


def test_retries_are_failures_less_one() -> None:
    assert parsed(OneTask(["x"], retries=0))["max_failures"] == 1
    assert "max_failures" not in parsed(OneTask(["x"]))


def test_an_upload_binds_inputs_without_an_origin_in_both_forms() -> None:
    document = {
        "tasks": [
            {"inputs": {"a": {"url": "http://x/a"}, "b": {"origin": "0"}}},
            {"inputs": [{"filename": "a"}], "predata": [{"filename": "b"}]},
        ]
    }
    bound = json.loads(bind_inputs(json.dumps(document).encode(), {"a": "n1", "b": "n2"}))
    assert bound["tasks"][0]["inputs"] == {"a": {"node": "n1"}, "b": {"origin": "0"}}
    assert bound["tasks"][1]["inputs"] == [{"filename": "a", "node": "n1"}]
    assert bound["tasks"][1]["predata"] == [{"filename": "b", "node": "n2"}]


def test_an_upload_that_no_task_wants_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="--upload c"):
        bind_inputs(b'{"tasks": [{"inputs": [{"filename": "a"}]}]}', {"c": "n"})


def test_an_upload_of_a_wrong_name_is_told_the_right_ones() -> None:
    inputs = {
        "reads.fastq.gz": {},
        "genome.fna": {"node": "-"},
        "made": {"origin": "0"},
        "old": {"node": "n"},
    }
    document = json.dumps({"tasks": [{"inputs": inputs}]}).encode()
    with pytest.raises(InvalidDocument) as refused:
        bind_inputs(document, {"read.fastq": "n", "made": "n", "genome.fna": "n"})
    first, second = refused.value.problems
    assert first.endswith("origin; a file is wanted for: reads.fastq.gz; did you mean 'reads.fastq.gz'?")
    assert second.startswith("--upload made: no task has an input of this name without an origin; a file")
    with pytest.raises(InvalidDocument, match="without an origin; did you mean 'old'"):
        bind_inputs(b'{"tasks": [{"inputs": {"old": {"node": "n"}}}]}', {"odl": "n"})


def test_a_document_that_cannot_be_read_is_left_to_the_server() -> None:
    assert bind_inputs(b"{nonsense", {"c": "n"}) == b"{nonsense"


def test_pairs_need_a_name_and_a_value() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(BadRequest, match="--set a: write --set KEY=VALUE"):
        pairs(["a"], "--set")


@pytest.mark.parametrize(
    "file", [{"node": NODE}, {"url": "http://x/a"}, {"origin": "0"}, {"node": "-", "url": "u"}]
)
def test_a_file_that_comes_from_somewhere_needs_no_upload(file: dict[str, str]) -> None:
    check_sources(
        json.dumps({"tasks": [{"inputs": {"a": file}, "predata": [{"filename": "b", **file}]}]}).encode()
    )


def test_each_file_that_comes_from_nowhere_is_named_once() -> None:
    tasks = [
        {"inputs": {"a": {}}},
        {"inputs": [{"filename": "a"}], "predata": [{"filename": "b", "node": ""}]},
    ]
    with pytest.raises(InvalidDocument) as refused:
        check_sources(json.dumps({"tasks": tasks}).encode())
    assert refused.value.fields["problems"] == [
        "no file is given for input a: add --upload a=PATH",
        "no file is given for input b: add --upload b=PATH",
    ]


@pytest.mark.parametrize("raw", [b"no JSON", b"[]", b'{"tasks": 3}', b'{"tasks": [{"inputs": [1]}]}'])
def test_what_makes_no_sense_is_left_to_the_server(raw: bytes) -> None:
    check_sources(raw)


def test_the_task_is_called_run() -> None:
    assert parsed(OneTask(["true"]))["taskid"] == "run"
