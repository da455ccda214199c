"""Every mistake is refused with its field path, the reason, and where possible what would be right."""

from collections.abc import Callable
from typing import Any

import pytest

from shared_models.errors import InvalidDocument, TooLarge
from shared_models.limits import (
    MAX_ARGS_CHARS,
    MAX_ATTRIBUTES_BYTES,
    MAX_DURATION_S,
    MAX_ENVIRON_CHARS,
    MAX_IO,
    MAX_NAME_CHARS,
    MAX_PRIORITY,
    MAX_TASKS,
    MAX_TEXT_CHARS,
    MAX_TOTALWORK,
    MAX_WORD_BYTES,
)
from shared_models.problems import MAX_PROBLEMS
from shared_models.records_option import OPTIONS_PROBLEM
from tests.unit.shared_models.samples import NODE, OTHER_NODE, full, parse, parse_task

Document = dict[str, Any]


def problems(document: Any) -> list[str]:
    with pytest.raises(InvalidDocument) as refusal:
        parse(document)
    return refusal.value.problems


def changed(change: Callable[[Document, Document], object]) -> Document:
    """Apply a change to (document, its second task)."""
    document = full()
    change(document, document["tasks"][1])
    return document


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "the document must be an object with 'info' and 'tasks', not a list"),
        (None, "the document must be an object with 'info' and 'tasks', not null"),
        ("job", "the document must be an object with 'info' and 'tasks', not the text 'job'"),
        ({}, "tasks: is missing; a job has at least one task"),
        ({"tasks": []}, "tasks: is missing; a job has at least one task"),
        ({"tasks": None}, "tasks: is missing; a job has at least one task"),
        ({"tasks": {}}, "tasks: must be a list, not an object"),
        ({"tasks": 3}, "tasks: must be a list, not the number 3"),
        ({"tasks": [None]}, "tasks[0]: must be an object, not null"),
        ({"tasks": [[]]}, "tasks[0]: must be an object, not a list"),
        (
            {"info": None, "tasks": [{"taskid": "0", "cmd": {"name": "x"}}]},
            "info: must be an object, not null",
        ),
        (
            {"info": [], "tasks": [{"taskid": "0", "cmd": {"name": "x"}}]},
            "info: must be an object, not a list",
        ),
        (
            {"cwlVersion": "v1.0", "class": "Workflow"},
            "CWL documents are not supported; write a job document with 'info' and 'tasks'",
        ),
        (
            {"workflow_info": {"name": "wf"}, "tasks": [{"taskid": 1}]},
            "AWF documents are not supported; write a job document with 'info' and 'tasks'",
        ),
    ],
)
def test_wrong_shape(document: Any, problem: str) -> None:
    assert problems(document) == [problem]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("taskid", None, "taskid: must be text, not null"),
        ("taskid", 1, "taskid: must be text, not the number 1"),
        ("taskid", "", "taskid: is empty; a task needs a name of its own, such as '0'"),
        ("taskid", "a/b", "taskid: 'a/b' has a '/', which would break its address"),
        ("taskid", "a\nb", "taskid: 'a\\nb' has a control character"),
        ("taskid", "x" * 256, "taskid: is longer than 255 characters"),
        ("cmd", None, "cmd: must be an object, not null"),
        ("cmd", "ls -l", "cmd: must be an object, not the text 'ls -l'"),
        ("cmd", {}, "cmd.name: is missing; a task needs cmd.name or cmd.cmd_script"),
        ("cmd", {"name": " "}, "cmd.name: is missing; a task needs cmd.name or cmd.cmd_script"),
        ("cmd", {"cmd_script": [" "]}, "cmd.name: is missing; a task needs cmd.name or cmd.cmd_script"),
        ("cmd", {"name": None}, "cmd.name: must be text, not null"),
        ("cmd", {"name": "a\0b"}, "cmd.name: 'a\\x00b' has a control character"),
        ("cmd", {"name": "x", "args": ["-l"]}, "cmd.args: must be text, not a list"),
        ("cmd", {"name": "x", "args": "'a b"}, "cmd.args: the quote ' is not closed at position 0"),
        ("cmd", {"name": "x", "args": "a\0b"}, "cmd.args: has a NUL character"),
        ("cmd", {"name": "x", "args_array": ["a\0b"]}, "cmd.args_array: has a NUL character"),
        ("cmd", {"name": "x", "args_array": [1]}, "cmd.args_array[0]: must be text, not the number 1"),
        (
            "cmd",
            {"name": "x", "args": "a", "args_array": ["b"]},
            "cmd.args_array: is given beside args; give one of them",
        ),
        ("cmd", {"cmd_script": "ls"}, "cmd.cmd_script: must be a list, not the text 'ls'"),
        ("cmd", {"cmd_script": ["a\0b"]}, "cmd.cmd_script[0]: has a NUL character"),
        ("cmd", {"name": "x", "stdin": "a"}, "cmd.stdin: 'a' is not an input of this task"),
        (
            "cmd",
            {"name": "x", "environ": {"public": {"A-B": "1"}}},
            "cmd.environ.public: 'A-B' is not a variable name ([A-Za-z_][A-Za-z0-9_]*)",
        ),
        (
            "cmd",
            {"name": "x", "environ": {"private": {"A": 1}}},
            "cmd.environ.private.A: must be text",
        ),
        ("cmd", {"name": "x", "environ": {"private": "secret"}}, "cmd.environ.private: must be an object"),
        (
            "cmd",
            {"name": "x", "environ": {"private": {"A": "secret\0"}}},
            "cmd.environ.private.A: has a NUL character",
        ),
        ("dependsOn", "0", "dependsOn: must be a list, not the text '0'"),
        ("dependsOn", [0], "dependsOn[0]: must be text, not the number 0"),
        ("dependsOn", ["a", ""], "dependsOn[1]: is empty; it must be a task id"),
        ("totalwork", None, "totalwork: must be a whole number, not null"),
        ("totalwork", 1.5, "totalwork: must be a whole number, not the number 1.5"),
        ("totalwork", 2.0, "totalwork: must be a whole number, not the number 2.0"),
        ("totalwork", "4", "totalwork: must be a whole number, not the text '4'"),
        ("totalwork", True, "totalwork: must be a whole number, not true"),
        ("totalwork", 10**9, f"totalwork: must be at most {MAX_TOTALWORK}, not {10**9}"),
        ("maxworksize", -1, "maxworksize: must be 0 or more, not -1"),
        ("maxworksize", 0.5, "maxworksize: must be a whole number, not the number 0.5"),
        ("userattr", [], "userattr: must be an object, not a list"),
        ("clientgroups", "a b", "clientgroups: 'a b' is not a group name; letters, digits, '_', '-' and '.' "
         "are allowed"),
        ("partinfo", [], "partinfo: must be an object, not a list"),
        ("partinfo", {"index": "records"}, "partinfo.index: must be one of size, line, record, chunkrecord, "
         "none, not the text 'records'; did you mean 'record'?"),
        ("partinfo", {"index": None}, "partinfo.index: must be one of size, line, record, chunkrecord, "
         "none, not null"),
        ("partinfo", {"input": "a"}, "partinfo.input: 'a' is not an input of this task"),
        ("resources", {"cores": 0}, "resources.cores: must be 1 or more, not 0"),
        ("resources", {"memory_bytes": -1}, "resources.memory_bytes: must be 0 or more, not -1"),
        ("resources", {"cores": 65_537}, "resources.cores: must be at most 65536, not 65537"),
        ("resources", {"gpus": 1_025}, "resources.gpus: must be at most 1024, not 1025"),
        ("resources", {"memory_bytes": 1 << 51},
         "resources.memory_bytes: must be at most 1125899906842624, not 2251799813685248"),
        ("resources", {"disk_bytes": 1 << 61},
         "resources.disk_bytes: must be at most 1152921504606846976, not 2305843009213693952"),
        ("resources", {"memory": 1}, "resources.memory: unknown key; did you mean 'memory_bytes'?"),
        ("time_limit_s", -1, "time_limit_s: must be 0 or more, not -1"),
        ("time_limit_s", "1h", "time_limit_s: must be a number, not the text '1h'"),
        ("time_limit_s", True, "time_limit_s: must be a number, not true"),
        ("time_limit_s", MAX_DURATION_S + 1, f"time_limit_s: must be at most {MAX_DURATION_S}, "
         f"not {MAX_DURATION_S + 1}"),
        ("max_failures", 0, "max_failures: must be 1 or more, not 0"),
        ("retry_delay_s", -0.5, "retry_delay_s: must be 0 or more, not -0.5"),
        ("skip", "no", "skip: must be true or false, not the text 'no'"),
        ("skip", 2, "skip: must be true or false, not the number 2"),
        ("inputs", "a", "inputs: must be a list, not the text 'a'"),
        ("inputs", ["a"], "inputs[0]: must be an object, not the text 'a'"),
        ("inputs", {"a": "0"}, "inputs.a: must be an object, not the text '0'"),
        ("inputs", [{}], "inputs[0].filename: is missing"),
        ("inputs", [{"filename": None}], "inputs[0].filename: must be text, not null"),
        ("outputs", [{"filename": "a", "nonzero": 1}], "outputs[0].nonzero: must be true or false, "
         "not the number 1"),
        ("outputs", [{"filename": "a", "header_lines": -1}], "outputs[0].header_lines: must be 0 or more, "
         "not -1"),
        ("outputs", [{"filename": "a", "shockindex": "bai"}], "outputs[0].shockindex: must be one of size, "
         "line, record, chunkrecord, not the text 'bai'"),
        ("outputs", [{"filename": "a", "shockindex": "none"}], "outputs[0].shockindex: must be one of size, "
         "line, record, chunkrecord, not the text 'none'"),
        ("outputs", [{"filename": "a", "formoptions": {"x": 1}}], "outputs[0].formoptions.x: must be text, "
         "not the number 1"),
        ("outputs", [{"filename": "a", "formoptions": {"x": "1"}}], "outputs[0].formoptions: apply "
         "to outputs of type 'copy' and 'subset' only"),
        ("outputs", [{"filename": "a", "uncompress": "gzip"}], "outputs[0].uncompress: applies to inputs and "
         "predata only"),
        ("outputs", [{"filename": "a", "md5": "0" * 32}], "outputs[0].md5: applies to inputs and "
         "predata only"),
        ("inputs", [{"filename": "a", "node": NODE, "md5": "0" * 31}], f"inputs[0].md5: '{'0' * 31}' is not "
         "an md5: 32 hex digits"),
        ("predata", [{"filename": "a", "node": NODE, "md5": "0" * 31 + "x"}], "predata[0].md5: "
         f"'{'0' * 31}x' is not an md5: 32 hex digits"),
        ("inputs", [{"filename": "a", "node": NODE, "md5": 5}], "inputs[0].md5: must be text, "
         "not the number 5"),
        ("outputs", [{"filename": "a", "nodeattr": {"x": "y" * MAX_ATTRIBUTES_BYTES}}], "outputs[0].nodeattr"
         f": has more than {MAX_ATTRIBUTES_BYTES} bytes"),
        ("inputs", [{"filename": "a", "url": "http://x/a", "delete": True}], "inputs[0].delete: applies to "
         "files of this server only"),
        ("inputs", [{"filename": "a", "host": "http://x", "node": NODE, "delete": True}], "inputs[0].delete: "
         "applies to files of this server only"),
        ("inputs", [{"filename": "a", "url": "http://x/a", "attrfile": "b"}], "inputs[0].attrfile: a URL has "
         "no attributes; only nodes have"),
        ("inputs", [{"filename": "a", "node": NODE, "nonzero": True}], "inputs[0].nonzero: applies to "
         "outputs only"),
        ("inputs", [{"filename": "a", "node": NODE, "shockfilename": "b"}], "inputs[0].shockfilename: "
         "applies to outputs only"),
        ("inputs", [{"filename": "a", "node": NODE, "nodeattr": {"k": 1}}], "inputs[0].nodeattr: applies to "
         "outputs only"),
        ("inputs", [{"filename": "a", "node": NODE, "formoptions": {"k": "1"}}], "inputs[0].formoptions: "
         "applies to outputs only"),
        ("inputs", [{"filename": "a", "node": NODE, "directory": "b"}], "inputs[0].directory: applies to "
         "outputs only; write filename 'folder/name' instead"),
        ("inputs", [{"filename": "a", "node": NODE, "type": "subset"}], "inputs[0].type: 'subset' applies to "
         "outputs only"),
        ("predata", [{"filename": "a", "node": NODE, "nonzero": True}], "predata[0].nonzero: applies to "
         "outputs only"),
        ("outputs", [{"filename": "a", "origin": "0"}], "outputs[0].origin: applies to inputs only; an "
         "output is made by its own task"),
        ("partinfo", {"options": "x=1"}, f"partinfo.options: {OPTIONS_PROBLEM}"),
        ("predata", [{"filename": "a", "node": NODE, "delete": True}], "predata[0].delete: does not apply to "
         "predata; make the file an input"),
        ("predata", [{"filename": "a", "node": NODE, "attrfile": "b"}], "predata[0].attrfile: does not apply "
         "to predata; make the file an input"),
        ("predata", [{"filename": "a", "node": NODE, "nofile": True}], "predata[0].nofile: does not apply to "
         "predata; make the file an input"),
        ("outputs", [{"filename": "a"}, {"filename": "./a"}], "outputs[1].filename: 'a' is given twice in "
         "outputs"),
        ("outputs", {"a": {"filename": "b"}}, "outputs.a.filename: differs from its key; "
         "the key 'a' is the filename"),
        ("app", {"name": "P.c.m"}, "app: app definitions are not supported; write cmd, inputs and outputs"),
        ("index", "record", "index: unknown key; did you mean 'partinfo.index'?"),
        ("cores", 4, "cores: unknown key; did you mean 'resources.cores'?"),
        ("depends_on", [], "depends_on: unknown key; did you mean 'dependsOn'?"),
        ("zzz", 1, "zzz: unknown key; known are taskid, cmd, dependsOn, inputs, outputs, predata, partinfo, "
         "maxworksize, totalwork, userattr, clientgroups, resources, time_limit_s, max_failures, "
         "retry_delay_s, skip, keep_failed"),
        ("totalwork", "#totalwork", "totalwork: still has the template placeholder '#totalwork'; "
         "fill it in before submitting (awe submit --set totalwork=VALUE)"),
    ],
)  # fmt: skip
def test_wrong_value_of_a_task(key: str, value: Any, problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        parse_task(**{key: value})
    assert refusal.value.problems == [f"tasks[0].{problem}"]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("priority", 1.0, "must be a whole number, not the number 1.0"),
        ("priority", "5", "must be a whole number, not the text '5'"),
        ("priority", True, "must be a whole number, not true"),
        ("priority", None, "must be a whole number, not null"),
        ("priority", MAX_PRIORITY + 1, f"must be at most {MAX_PRIORITY}, not {MAX_PRIORITY + 1}"),
        ("priority", -MAX_PRIORITY - 1, f"must be {-MAX_PRIORITY} or more, not {-MAX_PRIORITY - 1}"),
        ("name", 5, "must be text, not the number 5"),
        ("name", "x" * (MAX_TEXT_CHARS + 1), f"is longer than {MAX_TEXT_CHARS} characters"),
        ("name", "#jobname", "still has the template placeholder '#jobname'; "
         "fill it in before submitting (awe submit --set jobname=VALUE)"),
        ("clientgroups", "#clientgroups", "still has the template placeholder '#clientgroups'; "
         "fill it in before submitting (awe submit --set clientgroups=VALUE)"),
        ("clientgroups", "a/b", "'a/b' is not a group name; letters, digits, '_', '-' and '.' are allowed"),
        ("noretry", "false", "must be true or false, not the text 'false'"),
        ("userattr", 1, "must be an object, not the number 1"),
        ("start_at", "tomorrow", "'tomorrow' is no time such as 2026-01-31T12:00:00Z"),
        ("start_at", "2026-01-31T12:00:00", "'2026-01-31T12:00:00' is no time such as 2026-01-31T12:00:00Z"),
        ("proirity", 1, "unknown key; did you mean 'priority'?"),
    ],
)  # fmt: skip
def test_wrong_value_of_the_info(key: str, value: Any, problem: str) -> None:
    document = full()
    document["info"][key] = value
    assert problems(document) == [f"info.{key}: {problem}"]


def test_unknown_key_is_named_with_its_full_path_and_the_nearest_known_one() -> None:
    document = changed(lambda job, task: task["inputs"][0].update(filname=task["inputs"][0].pop("filename")))
    assert problems(document) == [
        "tasks[1].inputs[0].filname: unknown key; did you mean 'filename'?",
        "tasks[1].inputs[0].filename: is missing",
    ]


def test_map_form_is_named_by_its_keys() -> None:
    document = changed(lambda job, task: task.update(inputs={"prep.fna": {"orign": "prep", "size": 0}}))
    assert problems(document) == ["tasks[1].inputs.prep.fna.orign: unknown key; did you mean 'origin'?"]
    document = changed(lambda job, task: task.update(inputs={"ok": {"origin": "prep"}, "prep.fna": {}}))
    assert problems(document) == [
        "tasks[1].inputs.prep.fna.node: is missing; a file comes from a node, a url, or an origin task"
    ]


def test_a_key_in_two_spellings_is_given_twice() -> None:
    document = changed(lambda job, task: task["cmd"].update(Name="other"))
    assert problems(document) == [
        "tasks[1].cmd.Name: is given more than once, in different spellings of 'name'"
    ]


def test_several_problems_are_reported_at_once_up_to_twenty() -> None:
    document = changed(
        lambda job, task: (task.update(totalwork="x", foo=1), job["info"].update(priority=0.5))
    )
    assert problems(document) == [
        "info.priority: must be a whole number, not the number 0.5",
        f"tasks[1].foo: unknown key; known are {', '.join(type(parse(full()).tasks[0]).model_fields)}",
        "tasks[1].totalwork: must be a whole number, not the text 'x'",
    ]
    many = problems({"tasks": [{"taskid": 1, "cmd": {"name": "x"}}] * 100})
    assert len(many) == MAX_PROBLEMS
    assert many[-1] == f"tasks[{MAX_PROBLEMS - 1}].taskid: must be text, not the number 1"


@pytest.mark.parametrize("name", ["#inputfile", "#jobname.prep.fna", "x.#sample.txt", "a#jobname"])
def test_a_placeholder_left_in_a_file_name_is_pointed_out(name: str) -> None:
    with pytest.raises(
        InvalidDocument, match=r"outputs\.#?.*filename: .* template placeholder '#\w+'; fill it in"
    ):
        parse_task(outputs={name: {}})


def test_an_origin_with_a_file_in_its_place_is_fine_but_predata_has_none() -> None:
    assert parse_task(inputs=[{"filename": "a", "origin": "0", "node": NODE}]).inputs[0].node == ""
    with pytest.raises(InvalidDocument, match=r"predata\[0\]\.origin: predata has no origin"):
        parse_task(predata=[{"filename": "a", "origin": "0"}])


def test_predata_may_not_hide_an_input() -> None:
    with pytest.raises(InvalidDocument, match=r"predata\[0\]\.filename: 'a' is an input already"):
        parse_task(inputs={"a": {"node": NODE}}, predata=[{"filename": "a", "node": OTHER_NODE}])


@pytest.mark.parametrize("key", ["optional", "header_lines"])
@pytest.mark.parametrize("files", ["inputs", "predata"])
def test_what_only_outputs_have_is_refused_elsewhere(key: str, files: str) -> None:
    with pytest.raises(InvalidDocument, match=rf"{files}\[0\]\.{key}: applies to outputs only"):
        parse_task(**{files: [{"filename": "a", "node": NODE, key: {"optional": True}.get(key, 1)}]})


@pytest.mark.parametrize(
    "words", ["-in=@reads.fn", "@Reads.fna", "@./reads.fna", "x @reads.fna.", "'@reads.fna-x'"]
)
def test_an_at_word_that_nearly_names_an_input_is_refused(words: str) -> None:
    with pytest.raises(InvalidDocument, match=r"^tasks\[0\]\.cmd\.args: '@.*did you mean '@reads.fna'\?$"):
        parse_task(cmd={"name": "x", "args": words}, inputs={"reads.fna": {"node": NODE}})


def test_partinfo_and_stdin_suggest_the_nearest_input() -> None:
    inputs = {"reads.fna": {"node": NODE}}
    with pytest.raises(InvalidDocument, match=r"partinfo\.input: 'read.fna' .* did you mean 'reads.fna'\?"):
        parse_task(inputs=inputs, partinfo={"input": "read.fna"})
    with pytest.raises(InvalidDocument, match=r"cmd\.stdin: 'read.fna' .* did you mean 'reads.fna'\?"):
        parse_task(inputs=inputs, cmd={"name": "x", "stdin": "read.fna"})


PAIR = {"r1": {"node": NODE}, "r2": {"node": NODE}, "ref/": {"node": NODE}}


@pytest.mark.parametrize(
    ("partinfo", "problem"),
    [
        ({"input": []}, "input: must be the name of an input, or a list of such names"),
        ({"input": ["r1", 2]}, "input: must be the name of an input, or a list of such names"),
        ({"input": ["r1", "r1"]}, "input: 'r1' is named more than once"),
        ({"input": ["r1", "./r1"]}, "input: 'r1' is named more than once"),
        ({"input": ["r1", "r3"]}, "input: 'r3' is not an input of this task"),
        ({"input": ["r1", "ref/"]}, "input: 'ref/' is a folder or a pattern; name a single file"),
        ({"input": "r2", "inputs": ["r1", "r2"]}, "input: must be the first of tasks[0].partinfo.inputs"),
        ({"input": ["r1"], "inputs": ["r1"]}, "inputs: is given beside a list of inputs in 'input'"),
        ({"inputs": "r1"}, "inputs: must be a list"),
        (
            {"input": ["r1", "r2"], "index": "size"},
            "index: 'size' cuts through records; paired inputs are cut by",
        ),
        ({"input": ["r1", "r2"], "index": "none"}, "index: 'none' cuts through records"),
        (
            {"input": "r1", "index": "size", "options": "records=2"},
            "index: 'size' cuts through records; 'records=2'",
        ),
        *(
            ({"input": "r1", "options": options}, f"options: {OPTIONS_PROBLEM}")
            for options in (
                "records=0",
                "records=-2",
                "records=2x",
                "2",
                "records=1000000",
                "records= 2",
                "records=٢",
            )
        ),
    ],
)
def test_inputs_that_cannot_be_cut_together(partinfo: Document, problem: str) -> None:
    (first, *_) = problems(task(inputs=PAIR, totalwork=2, partinfo=partinfo))
    assert first.startswith(f"tasks[0].partinfo.{problem}")


def test_records_of_no_input_do_not_belong_together() -> None:
    (problem,) = problems(task(totalwork=2, partinfo={"options": "records=2"}))
    assert problem.startswith(
        "tasks[0].partinfo.options: 'records=2' is where an input is cut, and this task"
    )


class TestLimits:
    def test_args(self) -> None:
        parse_task(cmd={"name": "x", "args": "a " * (MAX_ARGS_CHARS // 2)})
        with pytest.raises(InvalidDocument, match=f"cmd.args: is longer than {MAX_ARGS_CHARS} characters"):
            parse_task(cmd={"name": "x", "args": "a " * (MAX_ARGS_CHARS // 2) + "a"})
        with pytest.raises(
            InvalidDocument, match=f"cmd.args_array: is longer than {MAX_ARGS_CHARS} characters"
        ):
            parse_task(cmd={"name": "x", "args_array": ["a" * 1024] * 1025})

    def test_one_word(self) -> None:
        parse_task(cmd={"name": "x", "args": "a" * MAX_WORD_BYTES})
        with pytest.raises(InvalidDocument, match=f"cmd.args: has a word longer than {MAX_WORD_BYTES} bytes"):
            parse_task(cmd={"name": "x", "args": "ä" * (MAX_WORD_BYTES // 2 + 1)})

    def test_an_argument_of_20_megabytes_is_too_large(self) -> None:
        with pytest.raises(TooLarge, match=r"^tasks\[0\]: has \d+ bytes, the limit is 4194304$"):
            parse_task(cmd={"name": "x", "args": "a" * 20_000_000})

    def test_info_is_bounded_too(self) -> None:
        document = full()
        document["info"]["userattr"] = {"a": "x" * 5_000_000}
        with pytest.raises(TooLarge, match=r"^info: has \d+ bytes, the limit is 262144$"):
            parse(document)

    def test_work_spent_on_references(self) -> None:
        names = {"a" * i + "+": {"node": NODE} for i in range(1, 100)}
        with pytest.raises(TooLarge, match="too many '@' in its arguments"):
            parse_task(cmd={"name": "x", "args": "@x " * 60_000}, inputs=names)

    def test_files_of_a_task(self) -> None:
        parse_task(outputs={f"f{i}": {} for i in range(MAX_IO)})
        with pytest.raises(InvalidDocument, match=rf"tasks\[0\]\.outputs: has more than {MAX_IO} entries"):
            parse_task(outputs={f"f{i}": {} for i in range(MAX_IO + 1)})

    def test_tasks_of_a_job(self) -> None:
        with pytest.raises(TooLarge, match=f"tasks: has {MAX_TASKS + 1} entries, the limit is {MAX_TASKS}"):
            parse({"tasks": [0] * (MAX_TASKS + 1)})

    def test_names_of_all_tasks_together(self) -> None:
        task = {"cmd": {"name": "x"}}
        with pytest.raises(TooLarge, match="the task ids have 4590000 bytes together, the limit is 4194304"):
            parse({"tasks": [{**task, "taskid": f"{i:0255}"} for i in range(18_000)]})

    def test_task_name_and_totalwork_and_priority_at_their_edge(self) -> None:
        task = parse_task(taskid="x" * MAX_NAME_CHARS, totalwork=MAX_TOTALWORK, time_limit_s=MAX_DURATION_S)
        assert (len(task.taskid), task.totalwork) == (MAX_NAME_CHARS, MAX_TOTALWORK)
        document = full()
        document["info"]["priority"] = MAX_PRIORITY
        assert parse(document).info.priority == MAX_PRIORITY

    def test_environment(self) -> None:
        half = MAX_ENVIRON_CHARS // 8
        with pytest.raises(InvalidDocument, match=f"public: has more than {MAX_ENVIRON_CHARS} characters"):
            parse_task(cmd={"name": "x", "environ": {"public": {f"V{i}": "x" * half for i in range(8)}}})
        with pytest.raises(InvalidDocument, match=r"environ\.public: has more than 1000 entries"):
            parse_task(cmd={"name": "x", "environ": {"public": {f"V{i}": "" for i in range(1001)}}})


def task(**keys: Any) -> Document:
    return {"tasks": [{"taskid": "0", "cmd": {"name": "x"}, **keys}]}


@pytest.mark.parametrize(
    ("cmd", "path", "name", "hint"),
    [
        ({"args": "-d ${NOPE}"}, "args", "NOPE", ""),
        ({"args_array": ["a", "${NOPE}"]}, "args_array", "NOPE", ""),
        ({"args": "${AWE_RNAK}"}, "args", "AWE_RNAK", "; did you mean 'AWE_RANK'?"),
        (
            {"args": "${AWE_ARRAY_INDEX}"},
            "args",
            "AWE_ARRAY_INDEX",
            "; it comes with AWE_ARRAY_FIRST in cmd.environ.public",
        ),
        ({"args": "${USER}", "Dockerimage": "i"}, "args", "USER", ""),
    ],
)
def test_a_variable_that_nobody_sets_is_refused_before_it_fails_on_every_client(
    cmd: Document, path: str, name: str, hint: str
) -> None:
    (problem,) = problems(task(cmd={"name": "x", **cmd}))
    place = f"give it in cmd.environ.public, or write $${{{name}}} for the text itself"
    assert problem == f"tasks[0].cmd.{path}: '${{{name}}}' is not set; {place}{hint}"


@pytest.mark.parametrize(
    "cmd",
    [
        {"args": "${A} ${B}", "environ": {"public": {"A": "1"}, "private": {"B": "2"}}},
        {"args": "${AWE_RANK} ${AWE_CORES} ${TMPDIR} ${HOME} ${PATH} ${LC_ALL}"},
        {"args": "${AWE_ARRAY_INDEX}", "environ": {"public": {"AWE_ARRAY_FIRST": "1"}}},
        {"args": "${HOME} ${TMPDIR}", "dockerPull": "i"},
        {"args": "$${NOPE} $NOPE ${NOPE:-x}"},
        {"args": "", "cmd_script": ["echo ${NOPE}"]},
    ],
)
def test_variables_that_are_set_or_only_look_like_some_are_fine(cmd: Document) -> None:
    parse(task(cmd={"name": "x", **cmd}))


@pytest.mark.parametrize("key", ["public", "private"])
@pytest.mark.parametrize("name", ["AWE_RANK", "AWE_SERVER", "AWE_ARRAY_INDEX"])
def test_what_the_client_says_of_an_attempt_no_job_may_say(key: str, name: str) -> None:
    (problem,) = problems(task(cmd={"name": "x", "environ": {key: {name: "7", "AWE_MINE": "fine"}}}))
    assert (
        problem == f"tasks[0].cmd.environ.{key}.{name}: is set by the client for each attempt; leave it out"
    )


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"inputs": [{"filename": n, "node": NODE} for n in ("d", "d/x")]}, "inputs[1]"),
        ({"inputs": [{"filename": n, "node": NODE} for n in ("d/e/x", "d")]}, "inputs[0]"),
        (
            {"inputs": [{"filename": "d", "node": NODE}], "predata": [{"filename": "d/x", "node": NODE}]},
            "predata[0]",
        ),
        ({"outputs": [{"filename": "a"}, {"filename": "a/b"}]}, "outputs[1]"),
        ({"outputs": [{"filename": "a"}, {"filename": "b", "directory": "a"}]}, "outputs[1]"),
    ],
)
def test_a_file_and_a_folder_cannot_have_one_name(files: Document, path: str) -> None:
    (problem,) = problems(task(**files))
    assert problem.startswith(f"tasks[0].{path}.filename: '")
    assert problem.endswith("which is a file of this task")


@pytest.mark.parametrize(
    "files",
    [
        {"inputs": [{"filename": n, "node": NODE} for n in ("d", "dx/d", "e/d")]},
        {"inputs": [{"filename": "d", "node": NODE, "nofile": True}, {"filename": "d/x", "node": NODE}]},
        {"outputs": [{"filename": "a", "optional": True}, {"filename": "a/b", "optional": True}]},
        {"inputs": [{"filename": "a", "node": NODE}], "outputs": [{"filename": "a/b"}]},
    ],
)
def test_names_that_only_begin_alike_are_fine(files: Document) -> None:
    parse(task(**files))


@pytest.mark.parametrize("index", ["size", "line", "record", "chunkrecord"])
def test_a_task_without_inputs_cannot_be_cut(index: str) -> None:
    (problem,) = problems(task(totalwork=4, partinfo={"index": index}))
    assert problem == (
        f"tasks[0].partinfo.index: '{index}' is where an input is cut, and this task has none; leave it out"
    )
    parse(task(totalwork=4, partinfo={"index": "none"}))
    parse(task(totalwork=4, partinfo={}))
