"""One field of a used store at a time is broken: what the check of its documents has to say of each."""

from dataclasses import dataclass
from typing import Any

from awe_server.runtime.survey_documents import survey_documents
from awe_server.store.base import Collection, Delete, Document, Put, Store


@dataclass(frozen=True)
class Damage:
    """A field of a document, another value, and what is said of it."""

    collection: Collection
    job: str  #: the name of its job; "" = there is only one such document
    ending: str  #: of its id
    change: dict[str, Any] | None  #: None = the document is gone
    said: str  #: a pattern of what is said
    lines: int = 1  #: what hangs on it is told as well

    def __str__(self) -> str:
        what = "gone" if self.change is None else "-".join(f"{k}={v}" for k, v in self.change.items())
        return f"{self.collection}-{self.job}{self.ending}-{what}"


NOBODY = "00000000-0000-4000-8000-00000000dead"

DAMAGES = (
    Damage(
        "jobs", "done", "", {"remaintasks": 1}, r"job .* \(completed\): remaintasks is 1, 0 .* -> only what"
    ),
    Damage("jobs", "runs", "", {"remaintasks": 7}, r"remaintasks is 7, 1 are not done -> only what is shown"),
    Damage("jobs", "done", "", {"task_names": ["cut"]}, r"not those that it names \(sum\) -> awe rm --full"),
    Damage("jobs", "paused", "", {"notes": ""}, r"does not say why -> awe resume"),
    Damage("jobs", "done", "", {"state": "dancing"}, r"makes no sense \(ValueError: 'dancing'"),
    Damage("jobs", "runs", "", {"state": None}, r"makes no sense \(ValueError: None"),
    Damage("jobs", "done", "", {"_jid": None}, r"job .*: makes no sense \(_jid\) -> restore a backup of it"),
    Damage("jobs", "done", "", {"jid": "10002", "_jid": 10_002}, r"job number 10002 was given 2 times"),
    Damage(
        "jobs", "done", "", {"_jid": 10_002}, r"job .*: makes no sense \(_jid\) -> restore a backup of it"
    ),
    Damage(
        "jobs",
        "done",
        "",
        {"jid": "99999", "_jid": 99_999},
        r"number is 10005, 99999 was given -> the server",
    ),
    Damage(
        "jobs", "gone", "", None, r"task .* its job .* is not stored -> left of what was removed", lines=3
    ),
    Damage(
        "tasks", "done", "_sum", {"dependsOn": ["x"]}, r"depends on task x, which is not stored -> awe rm"
    ),
    Damage("tasks", "done", "_cut", {"state": "suspend"}, r"before its parent .* -> awe recompute", lines=2),
    Damage("tasks", "done", "_sum", {"state": "queued"}, r"its job is completed -> awe recompute", lines=2),
    Damage(
        "tasks", "paused", "_only", {"state": "queued"}, r"its job is suspend -> the server puts it right"
    ),
    Damage("tasks", "gone", "_only", {"state": "queued"}, r"its job is deleted -> awe rm --full"),
    Damage("tasks", "done", "_cut", {"remainwork": 2}, r"remainwork is 2, 0 are not completed -> only what"),
    Damage(
        "tasks", "runs", "_made", {"remainwork": 2}, r"remainwork is 2, 3 are not .* -> only what is shown"
    ),
    Damage("tasks", "runs", "_made", {"task_name": "cut"}, r"says that it is task cut of job", lines=2),
    Damage("tasks", "runs", "_made", {"task_name": None}, r"makes no sense \(task_name\) -> restore a"),
    Damage("tasks", "done", "_cut", {"_is_cut": None}, r"makes no sense \(_is_cut\) -> restore a backup"),
    Damage("tasks", "done", "_cut", {"state": "dancing"}, r"makes no sense \(state\) -> restore a backup"),
    Damage(
        "tasks", "done", "_sum", {"dependsOn": "cut"}, r"makes no sense \(dependsOn\) -> restore a backup"
    ),
    Damage(
        "tasks", "runs", "_made", {"index": None, "task_name": 7}, r"no sense \(index, task_name\) -> rest"
    ),
    Damage("tasks", "runs", "_made", {"fresh_rank": 2}, r"rank 2 of its task was never .* -> awe s", lines=2),
    Damage("tasks", "runs", "_made", {"fresh_rank": 4}, r"3 workunits were handed out, 2 are stored -> the"),
    Damage(
        "tasks", "done", "_cut", {"totalwork": "many"}, r"makes no sense \(totalwork\) -> restore a backup"
    ),
    Damage(
        "tasks", "done", "_sum", None, r"its tasks are not those that it names \(sum\) -> awe rm", lines=2
    ),
    Damage(
        "tasks", "hopeless", "_only", {"_is_cut": False}, r"was not cut, and 1 workunits of it are stored"
    ),
    Damage("workunits", "done", "_cut_2", None, r"results of 1 of its 3 .* -> awe recompute \S+ cut makes"),
    Damage("workunits", "runs", "_made_1", None, r"2 workunits were handed out, 1 are stored -> the server"),
    Damage("workunits", "runs", "_made_1", {"rank": 2}, r"says that it is rank 2 of task .* -> restore"),
    Damage("workunits", "runs", "_made_1", {"rank": 3}, r"says that it is rank 3 of task .* -> restore"),
    Damage("workunits", "runs", "_made_1", {"attempt": 9}, r"is attempt 9, its task had 1 to 1 -> only what"),
    Damage("workunits", "runs", "_made_1", {"_token": ""}, r"is leased without a token"),
    Damage(
        "workunits", "runs", "_made_1", {"client": NOBODY}, rf"leased to client {NOBODY}, which is not known"
    ),
    Damage(
        "workunits", "runs", "_made_1", {"generation": 3}, r"generation 3, its task of 1 -> only", lines=2
    ),
    Damage("workunits", "runs", "_made_1", {"state": "odd"}, r"nobody knows the state 'odd' -> the", lines=2),
    Damage(
        "workunits", "gone", "_only_1", {"state": "checkout"}, r"\(checkout\): its job is deleted -> awe rm"
    ),
    Damage(
        "workunits", "paused", "_only_2", {"state": "queued"}, r"its job is suspend -> the server puts it"
    ),
    Damage(
        "clients", "", "", {"Status": "active-idle"}, r"is active-idle and holds 2 workunits -> only what"
    ),
    Damage(
        "clients", "", "", {"Status": "offline"}, r"leased to client \S+, which is offline -> the", lines=2
    ),
    Damage(
        "clients", "", "", {"suspended": True, "Status": "suspend"}, r"is suspended and does not", lines=3
    ),
    Damage("clients", "", "", {"Status": "asleep"}, r"makes no sense \(ValueError: 'asleep'"),
    Damage("nodes", "runs", "", {"job": NOBODY}, rf"made for job {NOBODY}, which is not stored -> left of"),
    Damage(
        "meta", "", "counters", {"jid": 10_001}, r"last job number is 10001, 10005 was given -> the server"
    ),
)


async def said_of(store: Store, damage: Damage) -> list[str]:
    """What the check says with this damage; afterwards the store is as it was."""
    document = await inflict(store, damage)
    try:
        return await survey_documents(store)
    finally:
        await store.commit([Put(damage.collection, document)])


async def inflict(store: Store, damage: Damage) -> Document:
    """Do the damage, as no server would; the document as it was."""
    document = await _find(store, damage)
    gone = Delete(damage.collection, document["id"])
    await store.commit([gone if damage.change is None else Put(damage.collection, document | damage.change)])
    return document


async def _find(store: Store, damage: Damage) -> Document:
    jobs = {d["info"]["name"]: d["id"] async for d in store.scan("jobs")}
    job_id = jobs.get(damage.job, "")
    if damage.collection == "nodes":
        found = [d async for d in store.scan("nodes") if d["job"] == job_id]
    else:
        wanted = job_id + damage.ending
        found = [d async for d in store.scan(damage.collection) if wanted in ("", d["id"])]
    (document,) = found
    return document
