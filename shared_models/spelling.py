"""Evens out the many legal spellings of a job document before it becomes a model.

Keys in any case (Go did not mind), list and map form of IO, ids that an earlier server prefixed, and what
AWE's own replies carry beyond what a user can say: all of it is accepted, so that a document that was
read from a server can be submitted again. What is not known at all is refused with the nearest known
name."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from shared_models.documents import (
    IO,
    Command,
    Environ,
    Info,
    JobDocument,
    PartInfo,
    Resources,
    TaskDocument,
)
from shared_models.nearest import nearest
from shared_models.placeholders import left_over, placeholder_in
from shared_models.problems import Problems

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
IO_KEYS = ("inputs", "outputs", "predata")


class Keys:
    """The keys of one kind of object."""

    def __init__(
        self,
        model: type[BaseModel],
        *,
        dropped: str = "",
        nullable: str = "",
        hints: dict[str, str] | None = None,
    ) -> None:
        #: AWE's documents carry these; they mean nothing here
        self.dropped = frozenset(dropped.lower().split())
        self.known = {key.lower(): key for key in model.model_fields if key not in self.dropped}
        self.nullable = frozenset(nullable.split())  #: null is the same as absent
        self.hints = hints or {}  #: what somebody meant who wrote this key

    def even(self, raw: dict[str, Any], path: str, problems: Problems) -> dict[str, Any]:
        """Give the object with canonical keys; what is not known is a problem."""
        evened: dict[str, Any] = {}
        for key, value in raw.items():
            name = self.known.get(key.lower())
            if name is None:
                if key.lower() not in self.dropped:
                    problems.add(below(path, key), f"unknown key{self._hint(key)}")
            elif name in evened:
                problems.add(below(path, key), f"is given more than once, in different spellings of '{name}'")
            elif value is not None or name not in self.nullable:
                evened[name] = value
        return evened

    def _hint(self, key: str) -> str:
        meant = self.hints.get(key.lower()) or nearest(key, self.known.values())
        return f"; did you mean '{meant}'?" if meant else f"; known are {', '.join(self.known.values())}"


JOB = Keys(
    JobDocument,
    dropped="""
        id jid state registered remaintasks expiration updatetime notes lastfailed error resumed acl script
        revision task_names owner iscwl is_cwl cwl_version cwl_objects cwl_job_input cwl_shock_requirement
        entrypoint root workflow_instances workflow_instances_remain context remainteps remainsteps""",
    hints={
        "name": "info.name",
        "priority": "info.priority",
        "clientgroups": "info.clientgroups",
        "task": "tasks",
    },
)
INFO = Keys(Info, dropped="submittime startedtime completedtime auth", nullable="userattr")
TASK = Keys(
    TaskDocument,
    dropped="""
        id jobid task_name parent task_type state remainwork computetime createddate createdate
        starteddate completeddate notes info generation fresh_rank first_attempt max_attempt workunits
        workstatus resettask notreadyreason comment workflowstep workflowstepid stepinput stepoutput
        processoutput processtype scatter_task scatter_parent scatterchildren children cwlversion
        workflow_instance_id workflow_instance_uuid app""",
    nullable="""
        dependsOn inputs outputs predata userattr partinfo resources time_limit_s max_failures
        retry_delay_s""",
    hints={
        "index": "partinfo.index",
        "name": "taskid",
        "args": "cmd.args",
        "command": "cmd",
        "environ": "cmd.environ",
        "splits": "totalwork",
        "priority": "info.priority",
        **{key: f"resources.{key}" for key in Resources.model_fields},
    },
)
IO_ = Keys(IO, dropped="size path datatoken intermediate appposition", nullable="nodeattr formoptions md5")
CMD = Keys(
    Command,
    dropped="has_private_env local parsedargs",
    nullable="args_array cmd_script environ",
    hints={"env": "environ", "arguments": "args", "script": "cmd_script", "image": "Dockerimage"},
)
ENVIRON = Keys(Environ, nullable="public private")
PARTINFO = Keys(
    PartInfo,
    dropped="totalindex totalrecords doneindex donerecords maxpartsize_mb output",
    nullable="inputs",
)
RESOURCES = Keys(
    Resources, hints={"memory": "memory_bytes", "disk": "disk_bytes", "cpus": "cores", "ram": "memory_bytes"}
)


def below(path: str, key: str) -> str:
    """Give the path of a key inside the object at `path`."""
    return f"{path}.{key[:100]}" if path else key[:100]


def even_job(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Give the document with canonical keys, its tasks untouched."""
    foreign = _foreign_language(raw)
    if foreign:
        problems.add("", foreign)
        problems.raise_if_any()
    job = JOB.even(raw, "", problems)
    if isinstance(job.get("info"), dict):
        job["info"] = INFO.even(job["info"], "info", problems)
    return job


def even_task(raw: dict[str, Any], path: str, old_job_id: str, problems: Problems) -> dict[str, Any]:
    """Give one task with canonical keys and list-form IO.

    Values of a wrong type are left where they are: the model refuses them.
    """
    if any(key.lower() == "app" and value for key, value in raw.items()):
        problems.add(f"{path}.app", "app definitions are not supported; write cmd, inputs and outputs")
    task = TASK.even({k: v for k, v in raw.items() if not _is_position(k, v)}, path, problems)
    for key, keys in (("cmd", CMD), ("partinfo", PARTINFO), ("resources", RESOURCES)):
        if isinstance(task.get(key), dict):
            task[key] = keys.even(task[key], f"{path}.{key}", problems)
    if isinstance(task.get("partinfo"), dict):
        _even_paired(task["partinfo"], f"{path}.partinfo", problems)
    command = task.get("cmd")
    if isinstance(command, dict) and isinstance(command.get("environ"), dict):
        command["environ"] = ENVIRON.even(command["environ"], f"{path}.cmd.environ", problems)
    for key in IO_KEYS:
        if key in task:
            task[key] = _even_io(task[key], f"{path}.{key}", problems)
    _even_numbers(task, path, problems)
    _drop_old_job(task, old_job_id)
    return task


def map_form(raw: dict[str, Any]) -> dict[str, list[str]]:
    """Give the filenames of those IO keys of a task that are in map form, to name them in messages."""
    names: dict[str, list[str]] = {}
    for key, value in raw.items():
        if isinstance(value, dict) and (name := TASK.known.get(key.lower())) in IO_KEYS:
            names[name] = list(value)
    return names


def old_job_id(raw: dict[str, Any]) -> str:
    """Give the id that an earlier server gave the document, or ""."""
    old = raw.get("id")
    return old if isinstance(old, str) and _UUID.fullmatch(old) else ""


def _foreign_language(raw: dict[str, Any]) -> str | None:
    keys = {key.lower() for key, value in raw.items() if value}
    if keys & {"cwlversion", "$graph"} or keys & {"iscwl", "is_cwl"}:
        return "CWL documents are not supported; write a job document with 'info' and 'tasks'"
    if keys & {"workflow_info", "job_info", "raw_inputs", "data_server"}:
        return "AWF documents are not supported; write a job document with 'info' and 'tasks'"
    return None


def _is_position(key: str, value: object) -> bool:
    """Whether this is the `index` that the server shows with a task, not a misplaced index kind."""
    return key == "index" and isinstance(value, int)


def _even_io(files: object, path: str, problems: Problems) -> object:
    """Turn map form into list form: the key is the filename."""
    if isinstance(files, dict):
        return [_even_file(file, f"{path}.{name[:100]}", problems, name) for name, file in files.items()]
    if isinstance(files, list):
        return [_even_file(file, f"{path}[{i}]", problems) for i, file in enumerate(files)]
    return files


def _even_file(file: object, path: str, problems: Problems, name: str | None = None) -> object:
    if not isinstance(file, dict):
        return file
    evened = IO_.even(file, path, problems)
    if name is not None and evened.setdefault("filename", name) != name:
        problems.add(f"{path}.filename", f"differs from its key; the key '{name[:100]}' is the filename")
    return evened


def _even_paired(part: dict[str, Any], path: str, problems: Problems) -> None:
    """A list of paired inputs: the first, and all of them."""
    names = part.get("input")
    if not isinstance(names, list):
        return
    part["input"] = ""
    if not names or not all(isinstance(name, str) for name in names):
        problems.add(f"{path}.input", "must be the name of an input, or a list of such names")
    elif part.get("inputs"):
        problems.add(f"{path}.inputs", "is given beside a list of inputs in 'input'; give one of them")
    else:
        part["input"], part["inputs"] = names[0], names


def _even_numbers(task: dict[str, Any], path: str, problems: Problems) -> None:
    """AWE's own leniencies: no workunits means one, `skip` may be 0 or 1."""
    wanted = task.get("totalwork")
    if isinstance(wanted, str) and (placeholder := placeholder_in(wanted)):
        problems.add(f"{path}.totalwork", left_over(placeholder))
        task["totalwork"] = 1
    elif type(wanted) is int and wanted <= 0:
        task["totalwork"] = 1
    if type(task.get("skip")) is int and task["skip"] in (0, 1):
        task["skip"] = bool(task["skip"])


def _drop_old_job(task: dict[str, Any], job_id: str) -> None:
    """Reduce `<job>_<name>` to the name, where the job is the one the document came from."""
    if not job_id:
        return
    depends = task.get("dependsOn")
    if isinstance(depends, list):
        task["dependsOn"] = [_short(name, job_id) for name in depends]
    if "taskid" in task:
        task["taskid"] = _short(task["taskid"], job_id)
    for file in _files(task):
        if "origin" in file:
            file["origin"] = _short(file["origin"], job_id)


def _short(name: object, job_id: str) -> object:
    return name.removeprefix(f"{job_id}_") if isinstance(name, str) else name


def _files(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in IO_KEYS:
        files = task.get(key)
        if isinstance(files, list):
            yield from (file for file in files if isinstance(file, dict))
