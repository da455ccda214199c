"""Documents as people and stock workers see them.

Stored documents keep each fact once; here a task's workunits get what they inherit, own nodes get their full
address, and every key that AWE shows is there, with its zero value if need be. Keys that start with `_` stay
inside. Pure functions.

Left out of AWE's key lists: what only its CWL mode fills (`IsCWL`, `CWL_objects`, `scatter_task`, ...).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from awe_server.data.documents import problem_of
from awe_server.scheduler.places import was_not_made
from awe_server.store.base import Document
from shared_models.documents import IO_DEFAULTS, Info
from shared_models.times import ZERO_TIME, parse_rfc3339

_INFO_DEFAULTS: Document = {
    **Info().model_dump(),
    "submittime": ZERO_TIME,
    "startedtime": ZERO_TIME,
    "completedtime": ZERO_TIME,
    "auth": False,
}
_CMD_DEFAULTS: Document = {
    "name": "",
    "args": "",
    "args_array": [],
    "Dockerimage": "",
    "dockerPull": "",
    "cmd_script": [],
    "environ": {"public": {}},
    "has_private_env": False,
    "description": "",
}
_CLIENT_DEFAULTS: Document = {
    "user": "",
    "domain": "",
    "instance_id": "",
    "instance_type": "",
    "host": "",
    "hostname": "",
    "host_ip": "",
    "git_commit_hash": "",
    "version": "",
    "proxy": False,
    "subclients": 0,
}


def public(document: Mapping[str, Any]) -> Document:
    """The document without its internal keys."""
    return {key: value for key, value in document.items() if not key.startswith("_")}


def seconds(value: float | None) -> int:
    """AWE's times of computing are whole seconds; a Go worker cannot read others."""
    return round(value or 0)


def io_view(io: Document, base_url: str) -> Document:
    """One input, output or predata file with the address from which it can be fetched."""
    shown = {**IO_DEFAULTS, **public(io)}
    node = shown["node"] if shown["node"] != "-" else ""
    host = shown["host"] or (base_url if node else "")
    url = shown["url"]
    if url.startswith("/"):
        url = base_url + url
    elif not url and node:
        url = f"{host.rstrip('/')}/node/{node}?download"
    if was_not_made(io):
        shown["not_made"] = True
    return {**shown, "host": host, "node": node or "-", "url": url}


def io_views(rows: Iterable[Document], base_url: str) -> list[Document]:
    """Several of them."""
    return [io_view(io, base_url) for io in rows]


def info_view(info: Document) -> Document:
    """What a job says about itself, all keys there."""
    return {**_INFO_DEFAULTS, **public(info)}


def task_view(task: Document, base_url: str) -> Document:
    """A task as part of its job."""
    return {
        **public(task),
        "parent": "",
        "task_type": "",
        "cmd": {**_CMD_DEFAULTS, **public(task["cmd"])},
        "inputs": io_views(task["inputs"], base_url),
        "outputs": io_views(task["outputs"], base_url),
        "predata": io_views(task["predata"], base_url),
        "createdate": task["createddate"],
        "computetime": seconds(task["computetime"]),
    }


def weight(tasks: Iterable[Document]) -> int:
    """How much there is to show of tasks: they and their files."""
    return sum(1 + len(task["inputs"]) + len(task["outputs"]) + len(task["predata"]) for task in tasks)


def job_head(job: Document, *, live: bool) -> Document:
    """A job without its tasks; `registered` says whether the scheduler has it in memory."""
    shown = public(job)
    del shown["acl"]
    return {**shown, "info": info_view(job["info"]), "registered": live}


def job_view(job: Document, tasks: Iterable[Document], base_url: str, *, live: bool) -> Document:
    """A job with its tasks, each carrying the job's info as the data model has it."""
    head = job_head(job, live=live)
    info = head["info"]
    return {**head, "tasks": [{**task_view(task, base_url), "info": info} for task in tasks]}


def job_row(job: Document, tasks: Iterable[Document], base_url: str, *, live: bool) -> Document:
    """A job of a list: as `job_view`, its info given once."""
    return {**job_head(job, live=live), "tasks": [task_view(task, base_url) for task in tasks]}


def part_view(task: Document, rank: int) -> Document | None:
    """Which input a workunit gets a part of; None if it gets all of everything."""
    part = task["partinfo"]
    if rank == 0 or not part or not part.get("totalindex"):
        return None
    shown = {
        "input": part.get("input", ""),
        "index": part["index"],
        "totalindex": part.get("totalindex", 0),
        "maxpartsize_mb": part.get("maxpartsize_mb", 0),
    }
    return shown | {key: part[key] for key in ("inputs", "options") if part.get(key)}


def work_view(unit: Document, task: Document, job: Document, base_url: str) -> Document:
    """A workunit with all that it inherits from its task and job."""
    exited = unit["exit"] or {}
    exit_code = exited.get("exit_code")
    return {
        **public(unit),
        "wuid": unit["id"],
        "task_name": task["task_name"],
        "parent": "",
        "info": info_view(job["info"]),
        "cmd": {**_CMD_DEFAULTS, **public(task["cmd"])},
        "inputs": io_views(task["inputs"], base_url),
        "outputs": io_views(_with_facts(task["outputs"], unit["outputs"] or ()), base_url),
        "predata": io_views(task["predata"], base_url),
        "totalwork": task["totalwork"],
        "maxworksize": task["maxworksize"],
        "partinfo": task["partinfo"],
        "part": part_view(task, unit["rank"]),
        "userattr": {**(job["info"].get("userattr") or {}), **(task["userattr"] or {})},
        "resources": task["resources"],
        "time_limit_s": task["time_limit_s"],
        "computetime": seconds(unit["computetime"]),
        "exitstatus": -1 if exit_code is None else exit_code,
        "WorkPath": "",
        "WorkPerf": unit["perf"],
    }


def _with_facts(outputs: Iterable[Document], facts: Iterable[Document]) -> list[Document]:
    found = {fact["filename"]: fact for fact in facts}
    return [{**io, "size": found.get(io["filename"], io).get("size", 0)} for io in outputs]


#: What AWE 0.9.68 hands out. A Go worker fails on a key that it knows with a value of another type
#: (`notes` is a list there), so nothing else may be added lightly.
_CHECKOUT_KEYS = (
    "task_name", "parent", "jobid", "rank", "id", "wuid", "info", "inputs", "outputs", "predata", "cmd",
    "totalwork", "part", "state", "failed", "checkout_time", "client", "exitstatus", "WorkPath", "attempt",
)  # fmt: skip


def checkout_view(unit: Document, task: Document, job: Document, base_url: str) -> Document:
    """A workunit as a stock worker gets it."""
    shown = work_view(unit, task, job, base_url)
    return {key: shown[key] for key in _CHECKOUT_KEYS} | {"exitstatus": -1, "WorkPerf": None}


def client_view(client: Document, holds: Iterable[str], wall_s: float) -> Document:
    """A client with what it works on now, without its incarnation: who knows that can exchange as it."""
    work = list(holds)
    status = str(client["Status"])
    shown = public(client)
    shown.pop("incarnation", None)
    return {
        **_CLIENT_DEFAULTS,
        **shown,
        "host": client.get("host") or client.get("host_ip") or client.get("hostname") or "",
        "current_work": {"data": work},
        "assigned_work": {"data": work},
        "busy": bool(work),
        "online": status != "offline",
        "remaintasks": len(work),
        "serve_time": _hours(wall_s - parse_rfc3339(client["regtime"])),
        "idle_time": 0 if work else max(0, int(wall_s - parse_rfc3339(client["idle_since"]))),
    }


def _hours(span_s: float) -> str:
    minutes = max(0, int(span_s)) // 60
    return f"{minutes // 60}h{minutes % 60}m"


def perf_view(job: Document, tasks: Iterable[Document], units: Iterable[Document]) -> Document:
    """When a job, its tasks and its workunits were queued, started and done, in seconds since the epoch."""
    info = job["info"]
    return {
        "id": job["id"],
        **_span(info.get("submittime"), info.get("startedtime"), info.get("completedtime")),
        "task_stats": {task["id"]: _task_perf(task) for task in tasks},
        "work_stats": {unit["id"]: _work_perf(unit) for unit in units},
    }


def _task_perf(task: Document) -> Document:
    return {
        **_span(task["createddate"], task["starteddate"], task["completeddate"]),
        "size_infile": [int(io.get("size") or 0) for io in task["inputs"]],
        "size_outfile": [int(io.get("size") or 0) for io in task["outputs"]],
    }


def _work_perf(unit: Document) -> Document:
    checkout, done = _epoch(unit["checkout_time"]), _epoch(unit["done_time"])
    return {
        "checkout": checkout,
        "client_id": unit["client"],
        "runtime": seconds(unit["computetime"]),
        **(unit["perf"] or {}),
        "done": done,
        "resp": max(0, done - checkout),
    }


def _span(queued: str | None, start: str | None, end: str | None) -> Document:
    times = [_epoch(time) for time in (queued, start, end)]
    return {
        "queued": times[0],
        "start": times[1],
        "end": times[2],
        "resp": max(0, times[2] - times[0]) if times[2] else 0,
    }


def _epoch(time: str | None) -> int:
    return int(parse_rfc3339(time or ZERO_TIME))


def node_view(node: Document) -> Document:
    """A node as Shock shows it; `file` is there even while it is empty. One whose stored document makes
    no sense has its id and `trouble`.
    """
    if problem := problem_of(node):  # its file is there still
        shown = {key: node[key] for key in ("id", "created_on", "owner") if isinstance(node.get(key), str)}
        return {**shown, "file": None, "trouble": f"its document makes no sense: {problem}"}
    file = node["file"] or {"name": "", "size": 0, "checksum": {}}
    return {
        "version": "",
        "priority": 0,
        "expiration": ZERO_TIME,
        "linkage": [],
        "locations": [],
        **public(node),
        "file": {"format": "", "virtual": False, **public(file)},
        "type": "parts" if node["parts"] else "basic",
    }
