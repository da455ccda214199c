"""Documents to change in tests."""

import copy
import json
from typing import Any

from shared_models.documents import JobDocument, TaskDocument
from shared_models.parse import parse_job_document

OWN = "http://127.0.0.1:8001"
NODE = "1f0e8f5e-0c5b-4a51-9a1c-1f3a2f3e9b11"
OTHER_NODE = "deadbeef-0000-0000-0000-000000000000"

#: Two tasks with everything that a document may have.
FULL: dict[str, Any] = {
    "info": {
        "name": "demo",
        "xref": "x",
        "service": "s",
        "project": "p1",
        "user": "anna",
        "pipeline": "two-step",
        "clientgroups": "default,big",
        "priority": 7,
        "noretry": True,
        "userattr": {"sample": "s7", "n": 3},
        "description": "d",
        "tracking": True,
        "start_at": "2026-01-31T12:00:00Z",
    },
    "shockhost": OWN,
    "tasks": [
        {
            "taskid": "prep",
            "cmd": {
                "name": "prep.pl",
                "args": "-input=@reads.fna -output=prep.fna",
                "description": "preprocess",
                "environ": {"public": {"LEVEL": "2"}, "private": {"KB_AUTH_TOKEN": "secret"}},
                "Dockerimage": "",
                "dockerPull": "",
                "stdin": "reads.fna",
                "stdout": "out.txt",
                "stderr": "logs/err.txt",
            },
            "inputs": [{"filename": "reads.fna", "host": OWN, "node": NODE, "attrfile": "reads.json"}],
            "outputs": [{"filename": "prep.fna", "host": OWN, "attrfile": "prep.attr", "nonzero": True}],
            "predata": [{"filename": "ref.db", "url": f"http://shock:7445/node/{OTHER_NODE}?download"}],
            "userattr": {"k": "v"},
        },
        {
            "taskid": "search",
            "dependsOn": ["prep"],
            "totalwork": 4,
            "maxworksize": 50,
            "partinfo": {"input": "prep.fna", "index": "record", "options": ""},
            "cmd": {"name": "search.pl", "args_array": ["-in=@prep.fna", "a word"]},
            "inputs": [{"filename": "prep.fna", "origin": "prep"}],
            "outputs": [{"filename": "hits.txt", "shockindex": "line", "optional": True, "header_lines": 2}],
            "clientgroups": "big",
            "resources": {"cores": 4, "memory_bytes": 1024, "disk_bytes": 2048, "gpus": 1},
            "time_limit_s": 3600,
            "max_failures": 5,
            "retry_delay_s": 0.5,
            "skip": False,
        },
    ],
}


def full() -> dict[str, Any]:
    """Give a copy of FULL to change."""
    return copy.deepcopy(FULL)


def parse(document: Any) -> JobDocument:
    """Parse a document given as Python values."""
    return parse_job_document(json.dumps(document).encode(), own_hosts=[OWN])


def parse_task(**changes: Any) -> TaskDocument:
    """Parse a job of one small task with these attributes."""
    return parse({"tasks": [{"taskid": "0", "cmd": {"name": "true"}, **changes}]}).tasks[0]
