"""From the bytes a user submits to a checked JobDocument: read, even out, build models, check the meaning.

Everything that can be judged from one task alone is judged here. What needs the whole graph (unknown or
repeated task ids, cycles, origins) is the scheduler's."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from shared_models.documents import Info, JobDocument, TaskDocument
from shared_models.errors import InvalidDocument, TooLarge
from shared_models.limits import MAX_INFO_BYTES, MAX_TASK_DOCUMENT_BYTES, MAX_TASK_NAMES_BYTES, MAX_TASKS
from shared_models.locations import Closed, LeadsTo, OwnHosts, Reach, as_written, no_roots
from shared_models.meaning import check_info
from shared_models.model_errors import explain
from shared_models.problems import Problems, shown
from shared_models.spelling import even_job, even_task, map_form, old_job_id
from shared_models.strict_json import read_json
from shared_models.task_meaning import TaskCheck

M = TypeVar("M", bound=BaseModel)


def parse_job_document(
    raw: bytes,
    *,
    own_hosts: Collection[str] = (),
    closed: Closed = no_roots,
    leads_to: LeadsTo = as_written,
) -> JobDocument:
    """Read a submitted job document.

    `own_hosts` are the addresses (`http://host:port`) of this server itself: files there are its own.
    `closed` says why jobs may not use the file of a path; as it is, they may use none. `leads_to` says where
    a path that is not closed leads: two paths to one place name one file.
    Raises InvalidDocument with up to 20 problems, each `<field path>: <what is wrong>`; TooLarge.
    """
    data = read_json(raw)
    if not isinstance(data, dict):
        raise InvalidDocument(f"the document must be an object with 'info' and 'tasks', not {shown(data)}")
    problems = Problems()
    job = even_job(data, problems)
    raw_tasks = _task_list(job)
    old_job = old_job_id(data)
    job["info"] = _info(job, problems)
    job["tasks"] = [_task(task, f"tasks[{i}]", old_job, problems) for i, task in enumerate(raw_tasks)]
    problems.raise_if_any()
    document = _build(JobDocument, job, "", {}, problems)
    if document is None:
        problems.refuse()
    _check_meaning(document, raw_tasks, Reach(OwnHosts(own_hosts), closed, leads_to), problems)
    problems.raise_if_any()
    return document


def _task_list(job: dict[str, Any]) -> list[Any]:
    tasks = job.get("tasks")
    if tasks is None or tasks == []:
        raise InvalidDocument("tasks: is missing; a job has at least one task")
    if not isinstance(tasks, list):
        raise InvalidDocument(f"tasks: must be a list, not {shown(tasks)}")
    if len(tasks) > MAX_TASKS:
        raise TooLarge(f"tasks: has {len(tasks)} entries, the limit is {MAX_TASKS}")
    return tasks


def _info(job: dict[str, Any], problems: Problems) -> Info | None:
    info = job.get("info", {})
    _check_size(info, "info", MAX_INFO_BYTES)
    return _build(Info, info, "info", {}, problems)


def _task(raw: object, path: str, old_job: str, problems: Problems) -> TaskDocument | None:
    if not isinstance(raw, dict):
        problems.add(path, f"must be an object, not {shown(raw)}")
        return None
    _check_size(raw, path, MAX_TASK_DOCUMENT_BYTES)
    return _build(TaskDocument, even_task(raw, path, old_job, problems), path, map_form(raw), problems)


def _build(
    model: type[M], data: object, path: str, names: Mapping[str, Sequence[str]], problems: Problems
) -> M | None:
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        explain(exc, path, names, problems)
        return None


def _check_size(part: object, path: str, limit: int) -> None:
    """Refuse early what nobody could store or show; the scheduler measures what is really stored."""
    size = len(orjson.dumps(part))
    if size > limit:
        raise TooLarge(f"{path}: has {size} bytes, the limit is {limit}")


def _check_meaning(document: JobDocument, raw_tasks: list[Any], reach: Reach, problems: Problems) -> None:
    check_info(document.info, problems)
    check = TaskCheck(reach, problems)
    for i, (task, raw) in enumerate(zip(document.tasks, raw_tasks, strict=True)):
        check(task, f"tasks[{i}]", map_form(raw))
    names = sum(len(task.taskid.encode()) for task in document.tasks)
    if names > MAX_TASK_NAMES_BYTES:
        raise TooLarge(
            f"tasks: the task ids have {names} bytes together, the limit is {MAX_TASK_NAMES_BYTES}"
        )
