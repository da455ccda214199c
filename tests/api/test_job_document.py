"""docs/job.md: every example can be submitted as it stands, and every key has its row."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shared_models.documents import IO, Command, Info, JobDocument, Model, PartInfo, Resources, TaskDocument
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "job.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
READS = b"@r\nACGT\n+\nIIII\n" * 8


@pytest.mark.parametrize("text", EXAMPLES)
async def test_an_example_is_accepted(api: Api, text: str) -> None:
    node = await api.ok("POST", "/node", content=READS)
    document: dict[str, Any] = json.loads(text.replace("THE-NODE-ID", node["id"]))
    job = await api.ok("POST", "/job", json=document)
    names = [task["taskid"] for task in document["tasks"]]
    assert [task["taskid"] for task in job["tasks"]] == [f"{job['id']}_{name}" for name in names]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7
    assert TEXT.count("```json") == len(EXAMPLES)


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("Job", JobDocument),
        ("Info", Info),
        ("Task", TaskDocument),
        ("Cmd", Command),
        ("Files", IO),
        ("Partinfo", PartInfo),
    ],
)
def test_a_table_has_the_keys_that_there_are(section: str, model: type[Model]) -> None:
    body = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == set(model.model_fields)


def test_the_row_of_resources_names_all() -> None:
    [row] = [line for line in TEXT.splitlines() if line.startswith("| `resources` |")]
    assert all(f"`{key}`" in row for key in Resources.model_fields)
