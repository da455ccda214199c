"""The many legal spellings of a document come out as one form."""

import pytest

from shared_models.documents import IO_DEFAULTS, JobDocument
from shared_models.times import ZERO_TIME
from tests.unit.shared_models.samples import FULL, NODE, OTHER_NODE, full, parse, parse_task

OLD_JOB = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10"


def test_everything_a_document_may_say_is_kept() -> None:
    document = parse(FULL)
    assert document.info.model_dump() == FULL["info"]
    prep, search = document.tasks
    assert prep.cmd.model_dump(exclude_defaults=True) == {
        key: value for key, value in FULL["tasks"][0]["cmd"].items() if value
    }
    assert prep.inputs[0].model_dump(exclude_defaults=True) == {
        "filename": "reads.fna",
        "node": NODE,
        "attrfile": "reads.json",
    }
    assert prep.outputs[0].model_dump(exclude_defaults=True) == {
        "filename": "prep.fna",
        "attrfile": "prep.attr",
        "nonzero": True,
    }
    assert prep.predata[0].host == "http://shock:7445"
    assert prep.userattr == {"k": "v"}
    assert search.model_dump(exclude_defaults=True) == {
        **{k: v for k, v in FULL["tasks"][1].items() if k != "skip"},
        "partinfo": {"input": "prep.fna", "index": "record"},
    }


def test_what_is_left_out_has_awes_defaults() -> None:
    document = parse({"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]})
    assert document.info.model_dump() == {
        **dict.fromkeys(["name", "xref", "service", "project", "user", "pipeline", "clientgroups"], ""),
        "priority": 1,
        "noretry": False,
        "userattr": {},
        "description": "",
        "tracking": False,
        "start_at": ZERO_TIME,
    }
    task = document.tasks[0]
    assert (task.totalwork, task.maxworksize, task.dependsOn, task.partinfo) == (1, 0, [], None)
    assert (task.inputs, task.outputs, task.predata) == ([], [], [])
    assert task.resources.model_dump() == {"cores": 1, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0}
    assert (task.time_limit_s, task.max_failures, task.retry_delay_s, task.skip) == (0.0, None, None, False)


def test_io_defaults_are_awes_keys_in_awes_order() -> None:
    assert " ".join(IO_DEFAULTS) == (
        "filename name directory host node url size cache origin nonzero temporary shockfilename shockindex "
        "attrfile nofile delete type nodeattr formoptions uncompress optional header_lines md5"
    )


def test_map_form_and_list_form_may_be_mixed_and_give_the_same() -> None:
    mixed = full()
    task = mixed["tasks"][1]
    task["inputs"] = {io.pop("filename"): io for io in task["inputs"]}
    assert parse(mixed) == parse(FULL)


def test_keys_in_any_case_are_understood_and_names_are_not_touched() -> None:
    command = {"Name": "x", "dockerimage": "d", "Environ": {"Public": {"Level": "1"}}}
    inputs = {"Reads.fna": {"NODE": NODE}}
    task = parse({"Tasks": [{"TaskID": "0", "CMD": command, "Inputs": inputs, "TotalWork": 3}]}).tasks[0]
    assert (task.cmd.name, task.cmd.Dockerimage, task.totalwork) == ("x", "d", 3)
    assert task.cmd.environ.public == {"Level": "1"}
    assert (task.inputs[0].filename, task.inputs[0].node) == ("Reads.fna", NODE)


def test_what_a_server_sets_is_dropped() -> None:
    document = parse(
        {
            "id": OLD_JOB,
            "jid": "10077",
            "state": "completed",
            "registered": True,
            "remaintasks": 0,
            "updatetime": "2016-03-01T10:00:01Z",
            "error": None,
            "info": {"submittime": "2016-03-01T10:00:00Z", "auth": True},
            "tasks": [
                {
                    "taskid": f"{OLD_JOB}_a_b",
                    "task_name": "a_b",
                    "jobid": OLD_JOB,
                    "index": 0,
                    "state": "completed",
                    "computetime": 3,
                    "createddate": "2016-03-01T10:00:01Z",
                    "workflowStep": None,
                    "scatter_task": False,
                    "children": [],
                    "app": None,
                    "cmd": {"name": "x", "has_private_env": False, "Local": False},
                    "partinfo": {"input": "a", "totalindex": 4, "maxpartsize_mb": 1, "output": "b"},
                    "inputs": [{"filename": "a", "size": 5, "node": "-", "origin": f"{OLD_JOB}_z"}],
                    "dependsOn": [f"{OLD_JOB}_z"],
                }
            ],
        }
    )  # fmt: skip
    task = document.tasks[0]
    assert (task.taskid, task.dependsOn, task.inputs[0].origin, task.inputs[0].size) == ("a_b", ["z"], "z", 0)
    assert isinstance(document, JobDocument)


def test_paired_inputs_are_a_list_and_are_read_again_as_they_are_shown() -> None:
    files = {name: {"node": NODE} for name in ("r1.fq", "r2.fq", "ref")}
    for part in (
        {"input": ["./r1.fq", "r2.fq"], "options": "records=3"},
        {"Input": "r1.fq", "inputs": ["r1.fq", "r2.fq"], "options": "records=3", "totalindex": 4},
    ):
        parsed = parse_task(inputs=files, totalwork=2, partinfo=part).partinfo
        assert parsed is not None
        assert (parsed.input, parsed.inputs, parsed.options) == ("r1.fq", ["r1.fq", "r2.fq"], "records=3")
    for one in ({"input": ["ref"]}, {"input": "ref", "inputs": None}, {"input": "ref", "inputs": []}):
        parsed = parse_task(inputs=files, totalwork=2, partinfo=one).partinfo
        assert parsed is not None
        assert (parsed.input, parsed.inputs) == ("ref", [])


def test_names_with_another_jobs_prefix_stay_as_given() -> None:
    task = parse_task(taskid="a_b", dependsOn=[f"{OLD_JOB}_z", "x", "x"])
    assert (task.taskid, task.dependsOn) == ("a_b", [f"{OLD_JOB}_z", "x"])


def test_null_lists_and_maps_are_empty_as_go_writes_them() -> None:
    task = parse_task(
        inputs=None,
        outputs=None,
        predata=None,
        dependsOn=None,
        userattr=None,
        partinfo=None,
        resources=None,
        time_limit_s=None,
        max_failures=None,
        retry_delay_s=None,
        cmd={"name": "x", "args_array": None, "cmd_script": None, "environ": {"public": None}},
    )
    assert task == parse_task(cmd={"name": "x"})


@pytest.mark.parametrize(("given", "kept"), [(0, 1), (-1, 1), (1, 1), (7, 7)])
def test_less_than_one_workunit_means_one(given: int, kept: int) -> None:
    assert parse_task(totalwork=given).totalwork == kept


@pytest.mark.parametrize(("given", "kept"), [(-5, 1), (0, 1), (1, 1), (9, 9)])
def test_priority_is_at_least_one(given: int, kept: int) -> None:
    document = full()
    document["info"]["priority"] = given
    assert parse(document).info.priority == kept


@pytest.mark.parametrize(("given", "kept"), [(0, False), (1, True), (True, True)])
def test_skip_may_be_a_number(given: int, kept: bool) -> None:
    assert parse_task(skip=given).skip is kept


def test_blanks_around_client_groups_are_dropped() -> None:
    assert parse_task(clientgroups=" a, b.c ,,d-1 ").clientgroups == "a,b.c,d-1"


def test_a_script_needs_no_command_name() -> None:
    assert parse_task(cmd={"cmd_script": ["echo a", "echo b"]}).cmd.cmd_script == ["echo a", "echo b"]


@pytest.mark.parametrize(
    "args",
    [
        "mail me@host.org",
        "@out.txt @ref.db",
        "a @ b @",
        "--set x=@other",
        "@reads.fna,@reads.fna",
        '"it\'s" \'a "b"\' a\\ b',
    ],
)
def test_an_at_word_that_is_no_slip_is_kept(args: str) -> None:
    task = parse_task(
        cmd={"name": "x", "args": args},
        inputs={"reads.fna": {"node": NODE}, "out.tx": {"node": NODE}, "rf.db": {"node": NODE}},
        outputs=[{"filename": "out.txt"}],
        predata=[{"filename": "ref.db", "node": OTHER_NODE}],
    )
    assert task.cmd.args == args


def test_a_name_with_a_number_sign_is_no_placeholder() -> None:
    assert parse_task(outputs={"sample#1.fq": {}, "a#b": {}}).outputs[0].filename == "sample#1.fq"
