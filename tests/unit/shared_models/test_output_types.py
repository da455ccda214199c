"""Outputs that copy, cut or update nodes say all that is needed, and nothing that nobody would follow."""

from typing import Any

import pytest

from shared_models.errors import InvalidDocument
from tests.unit.shared_models.samples import NODE, OTHER_NODE, OWN, parse, parse_task

IN = {"filename": "reads.fna", "node": NODE}
AWAY = {"filename": "away.fna", "url": "http://h/away.fna"}


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        (
            {"type": "copy", "formoptions": {"parent_node": NODE.upper()}},
            {"type": "copy", "formoptions": {"parent_node": NODE}},
        ),
        (
            {"type": "copy", "node": OTHER_NODE,
             "formoptions": {"parent_name": "./reads.fna", "copy_indexes": "true"}},
            {"type": "copy", "formoptions": {"parent_name": "reads.fna", "copy_indexes": "1"}},
        ),
        (
            {"type": "copy", "formoptions": {"parent_name": "reads.fna", "copy_indexes": "0"}},
            {"type": "copy", "formoptions": {"parent_name": "reads.fna"}},
        ),
        (
            {"type": "copy", "host": OWN, "shockfilename": "b", "shockindex": "record", "delete": True,
             "nodeattr": {"k": 1}, "attrfile": "a.json", "formoptions": {"parent_node": NODE}},
            {"type": "copy", "shockfilename": "b", "shockindex": "record", "delete": True,
             "nodeattr": {"k": 1}, "attrfile": "a.json", "formoptions": {"parent_node": NODE}},
        ),
        (
            {"type": "subset", "formoptions": {"parent_name": "reads.fna", "parent_index": "record"}},
            {"type": "subset", "formoptions": {"parent_name": "reads.fna", "parent_index": "record"}},
        ),
        (
            {"type": "subset", "directory": "out", "nonzero": True,
             "formoptions": {"parent_node": NODE, "parent_index": "line"}},
            {"type": "subset", "directory": "out", "nonzero": True,
             "formoptions": {"parent_node": NODE, "parent_index": "line"}},
        ),
        (
            {"type": "update", "host": OWN, "node": NODE, "nodeattr": {"k": 1}},
            {"type": "update", "node": NODE, "nodeattr": {"k": 1}},
        ),
        ({"type": "basic", "host": OWN, "node": NODE}, {"type": "basic"}),
    ],
)  # fmt: skip
def test_an_output_type_in_its_form(given: dict[str, Any], settled: dict[str, Any]) -> None:
    (output,) = parse_task(inputs=[IN], outputs=[{"filename": "f", **given}]).outputs
    assert output.model_dump(exclude_defaults=True) == {"filename": "f", **settled}
    again = parse_task(inputs=[IN], outputs=[output.model_dump(exclude_defaults=True)]).outputs
    assert again == [output]


def test_an_update_of_what_another_task_made() -> None:
    output = {"filename": "x", "type": "update", "origin": "0", "attrfile": "x.json"}
    (settled,) = parse_task(outputs=[output]).outputs
    assert settled.model_dump(exclude_defaults=True) == output


OF_COPIES = "apply to outputs of type 'copy' and 'subset' only"
PARENT = "must have either parent_node (a node id) or parent_name (an input of this task)"
BASE = {"parent_node": NODE}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"formoptions": BASE}, f"formoptions: {OF_COPIES}"),
        ({"type": "basic", "formoptions": BASE}, f"formoptions: {OF_COPIES}"),
        ({"type": "copy"}, f"formoptions: {PARENT}"),
        ({"type": "copy", "formoptions": {**BASE, "parent_name": "reads.fna"}}, f"formoptions: {PARENT}"),
        (
            {"type": "copy", "formoptions": {"parent_node": "../x"}},
            "formoptions.parent_node: '../x' is not a node id (a uuid)",
        ),
        (
            {"type": "copy", "formoptions": {"parent_name": "read.fna"}},
            "formoptions.parent_name: 'read.fna' is not an input of this task; did you mean 'reads.fna'?",
        ),
        (
            {"type": "copy", "formoptions": {"parent_name": "away.fna"}},
            "formoptions.parent_name: 'away.fna' is not a node of this server, and only those can be parents",
        ),
        (
            {"type": "copy", "formoptions": {**BASE, "copy_indexes": "maybe"}},
            "formoptions.copy_indexes: 'maybe' must be 1 or 0",
        ),
        (
            {"type": "copy", "formoptions": {**BASE, "copy_index": "1"}},
            "formoptions.copy_index: does not apply to outputs of type 'copy'; did you mean 'copy_indexes'?",
        ),
        (
            {"type": "copy", "formoptions": {**BASE, "compression": "gzip"}},
            "formoptions.compression: does not apply to outputs of type 'copy'; there are parent_node, "
            "parent_name, copy_indexes",
        ),
        (
            {"type": "copy", "nonzero": True, "formoptions": BASE},
            "nonzero: does not apply to outputs of type 'copy'; leave it out",
        ),
        (
            {"type": "copy", "origin": "0", "formoptions": BASE},
            "origin: applies to inputs only; an output is made by its own task",
        ),
        (
            {"type": "copy", "url": "http://h/x", "formoptions": BASE},
            "url: outputs of type 'copy' are nodes of this server; leave url out",
        ),
        (
            {"type": "subset", "formoptions": BASE},
            "formoptions.parent_index: is missing; it must be one of size, line, record, chunkrecord",
        ),
        (
            {"type": "subset", "formoptions": {**BASE, "parent_index": "bai"}},
            "formoptions.parent_index: 'bai' is no index; it must be one of size, line, record, chunkrecord",
        ),
        (
            {"type": "subset", "header_lines": 1, "formoptions": {**BASE, "parent_index": "line"}},
            "header_lines: does not apply to outputs of type 'subset'; leave it out",
        ),
        (
            {"type": "update", "nodeattr": {"k": 1}},
            "node: is missing, and so is origin; an update is of a node here, or of an origin task's output",
        ),
        (
            {"type": "update", "node": NODE},
            "nodeattr: is missing, and so is attrfile; an update changes attributes only",
        ),
        (
            {"type": "update", "node": NODE, "nodeattr": {"k": 1}, "formoptions": BASE},
            "formoptions: does not apply to outputs of type 'update'; leave it out",
        ),
        (
            {"type": "update", "node": NODE, "nodeattr": {"k": 1}, "delete": True},
            "delete: does not apply to outputs of type 'update'; leave it out",
        ),
        (
            {"url": "http://h/x", "delete": True},
            "delete: does not apply to http(s) addresses: nothing can be removed there",
        ),
        (
            {"url": "s3://bucket/x", "nodeattr": {"k": 1}},
            "nodeattr: applies to nodes only, and the output goes to a URL; leave it out",
        ),
        (
            {"url": "s3://bucket/x", "attrfile": "a.json"},
            "attrfile: applies to nodes only, and the output goes to a URL; leave it out",
        ),
        (
            {"url": "s3://bucket/x", "shockindex": "line"},
            "shockindex: applies to nodes only, and the output goes to a URL; leave it out",
        ),
        ({"url": "http://h/away.fna"}, "url: 'http://h/away.fna' is an input of the same task"),
    ],
)  # fmt: skip
def test_refused_output_type(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        parse_task(inputs=[IN, AWAY], outputs=[{"filename": "f", **given}])
    assert refusal.value.problems == [f"tasks[0].outputs[0].{problem}"]


def test_no_two_outputs_of_a_job_go_to_one_place() -> None:
    def task(id: str, outputs: Any) -> dict[str, Any]:
        return {"taskid": id, "cmd": {"name": "true"}, "outputs": outputs}

    first = task("a", [{"filename": "x", "url": "s3://bucket/folder/"}])
    second = task("b", {"y": {"url": "s3://bucket/folder/x"}, "x": {"url": "S3://bucket/folder/"}})
    with pytest.raises(InvalidDocument) as refusal:
        parse({"tasks": [first, second]})
    taken = "url: 's3://bucket/folder/x' is where tasks[0].outputs[0] goes already"
    assert refusal.value.problems == [f"tasks[1].outputs.y.{taken}", f"tasks[1].outputs.x.{taken}"]
