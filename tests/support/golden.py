"""Exchanges recorded between AWE's own server, worker and data store (0.9.68), and how to compare with them.

tests/wire/recorded.json: by name, the request (forms as `{"_multipart": [...]}`) and the reply. Ids and hosts
are evened out; `/work/base64:<id>` stands for the base64 text of the id.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

_FILE = Path(__file__).resolve().parents[1] / "wire" / "recorded.json"

#: Keys that only AWE's CWL mode fills; not shown here.
NOT_SHOWN = frozenset(
    {
        "IsCWL", "cwl_version", "CWL_objects", "CWL_job_input", "workflow_instances", "entrypoint",
        "workflowStep", "stepOutput", "scatter_task", "children", "Local",
    }
)  # fmt: skip

#: Maps whose keys are the user's.
FREE_FORM = (".userattr", ".nodeattr", ".formoptions", ".attributes", ".public")


def recorded(name: str) -> Any:
    """One exchange: {request: {method, path, query, body}, reply: {status, headers, body}}."""
    return json.loads(_FILE.read_text())[name]


def encoded(work_id: str) -> str:
    """A workunit's id as AWE's worker puts it into a path."""
    return "base64:" + base64.b64encode(work_id.encode()).decode()


def form_of(body: Any) -> list[tuple[str, tuple[str | None, bytes]]]:
    """A recorded form as httpx's `files`."""
    found = []
    for part in body["_multipart"]:
        content = part["content"]
        text = content if isinstance(content, str) else json.dumps(content)
        found.append((part["name"], (part["filename"], text.encode())))
    return found


def shape_problems(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Where our reply lacks a key of theirs, or has a value of another type that a Go program could not read.

    null and an empty list or map say nothing about their type.
    """
    if theirs in (None, [], {}) or path.endswith(FREE_FORM):
        return []
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {type(ours).__name__} instead of an object"]
        if _keyed_by_id(theirs):
            return [] if not ours else shape_problems(_any(theirs), _any(ours), f"{path}.*")
        missing = [f"{path}.{key}: missing" for key in theirs if key not in ours and key not in NOT_SHOWN]
        shared = [key for key in theirs if key in ours]
        return missing + [p for k in shared for p in shape_problems(theirs[k], ours[k], f"{path}.{k}")]
    if isinstance(theirs, list):
        if not isinstance(ours, list):
            return [f"{path}: {type(ours).__name__} instead of a list"]
        return shape_problems(theirs[0], ours[0], f"{path}[0]") if theirs and ours else []
    if ours is not None and type(theirs) is not type(ours):
        return [f"{path}: {ours!r} instead of {theirs!r}"]
    return []


def _keyed_by_id(value: dict[str, Any]) -> bool:
    return bool(value) and all(re.match(r"[0-9a-f]{8}-", key) for key in value)


def _any(value: dict[str, Any]) -> Any:
    return next(iter(value.values()))
