"""What the original AWE was seen to accept and to send is understood."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_models.errors import InvalidDocument
from shared_models.parse import parse_job_document
from shared_models.profile import parse_profile
from shared_models.views import ClientView, JobView

RECORDED = json.loads(Path(__file__).with_name("awe_documents.json").read_text())
SUBMITTED: dict[str, Any] = RECORDED["submitted"]
REPLIES: dict[str, Any] = RECORDED["replies"]
NAMELESS = [name for name in SUBMITTED if "emptytaskid" in name]


def parse(document: Any) -> Any:
    return parse_job_document(json.dumps(document).encode(), own_hosts=[RECORDED["own_host"]])


@pytest.mark.parametrize("name", [name for name in SUBMITTED if name not in NAMELESS])
def test_documents_that_awe_took_are_taken(name: str) -> None:
    document = parse(SUBMITTED[name])
    assert [task.cmd.name for task in document.tasks] == [t["cmd"]["name"] for t in SUBMITTED[name]["tasks"]]


@pytest.mark.parametrize("name", NAMELESS)
def test_a_task_without_a_name_is_refused_not_suspended(name: str) -> None:
    with pytest.raises(InvalidDocument, match=r"tasks\[0\].taskid: is empty"):
        parse(SUBMITTED[name])


@pytest.mark.parametrize("name", REPLIES)
def test_a_job_read_from_awe_can_be_submitted_again(name: str) -> None:
    shown = REPLIES[name]
    document = parse(shown)
    assert [task.taskid for task in document.tasks] == [t["task_name"] for t in shown["tasks"]]
    assert [d for task in document.tasks for d in task.dependsOn] == [
        d.removeprefix(shown["id"] + "_") for task in shown["tasks"] for d in task["dependsOn"] or ()
    ]


@pytest.mark.parametrize("name", REPLIES)
def test_a_job_shown_by_awe_fits_the_view(name: str) -> None:
    view = JobView.model_validate(REPLIES[name])
    assert view.id == REPLIES[name]["id"]
    assert [task.remainwork for task in view.tasks] == [t["remainwork"] for t in REPLIES[name]["tasks"]]


@pytest.mark.parametrize("name", RECORDED["profiles"])
def test_profiles_of_awe_workers_are_understood(name: str) -> None:
    raw = RECORDED["profiles"][name]
    profile = parse_profile(json.dumps(raw).encode())
    assert (profile.name, profile.group, profile.cores) == (raw["name"], raw["group"], raw["cores"])
    assert profile.host == raw.get("host_ip", raw.get("host"))
    assert not profile.native
    assert ClientView.model_validate(raw).Status == raw.get("Status", "")


def test_keys_that_say_nothing_new_are_let_through() -> None:
    quiet = {"nonzero": False, "directory": "", "shockfilename": "", "nodeattr": None, "formoptions": {},
             "optional": False, "header_lines": 0}  # fmt: skip
    entry = {"filename": "a", "node": "1f0e8f5e-0c5b-4a51-9a1c-1f3a2f3e9b11", "type": "basic", **quiet}
    output = {"filename": "b", "origin": "", "type": "", **quiet}
    task = {"taskid": "0", "cmd": {"name": "x"}, "inputs": [entry], "outputs": [output]}
    [parsed] = parse({"tasks": [{**task, "partinfo": {"input": "a", "options": ""}}]}).tasks
    assert [io.filename for io in (*parsed.inputs, *parsed.outputs)] == ["a", "b"]
