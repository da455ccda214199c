"""A second scheduler, as plain as it can be, that test_machine.py runs beside the real one with the same
commands: every answer of the two is compared, and after each step what people would be shown.

It is written from DESIGN section 5, docs/wire.md sections 6 and 8, docs/states.md and decisions 4 and 7, and
shares no code with `awe_server`. Everything is a dict; every rank of a task is held, every question is
answered by looking at all there is, and nothing is remembered that can be worked out. Where a document leaves
something open (which of several leases is looked at first), `same_order` takes it over from the real one.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

Thing = dict[str, Any]

ACTIVE = ("init", "queued", "in-progress")
ENDED = ("completed", "failed-permanent", "deleted")
RUNNING = ("queued", "in-progress")
DONE = ("completed", "skipped")
OWN = ("command", "signal", "timeout", "oom", "output")  #: failures of the command itself
#: Why a client is suspended, in the words that people are shown.
BY_HAND, FAILURES = "manually suspended", "MAX_CLIENT_FAILURE on client reached"
MAX_NODE_FAILURES, MAX_GIVEN_BACK, LONGEST_PAUSE_S = 10, 100, 300.0


class Refused(Exception):
    """The code of an error; nothing was changed."""


class Reference:
    """The state, and one method for each command."""

    def __init__(
        self,
        *,
        lease_s: float,
        max_work_failure: int,
        max_client_failure: int,
        max_lost: int,
        retry_base_s: float,
        retry_cap_s: float,
        fair: bool,
    ) -> None:
        self.now = 0.0
        self.lease_s, self.fair = lease_s, fair
        self.max_failed, self.max_blamed, self.max_lost = max_work_failure, max_client_failure, max_lost
        self.retry_base_s, self.retry_cap_s = retry_base_s, retry_cap_s
        self.jobs: dict[str, Thing] = {}
        self.clients: dict[str, Thing] = {}
        self.words: dict[str, Thing] = {}  #: every workunit that was handed out, by id, until it is set back
        self.stored: dict[str, Thing] = {}  #: as of the last batch: what a report is compared with once it is
        self.stopped: set[str] = set()
        self.suspended = False  #: the queue
        self.jid = 10_000

    # -- people: jobs ----------------------------------------------------------------------------------------

    def submit(
        self, id: str, tasks: list[Thing], *, owner: str, key: str, later_s: float, **info: Any
    ) -> tuple[str, int]:
        """Take a job in. A task is what a document says of it: see `_task`."""
        if any(task["skip"] and not (task["reads"] and task["writes"]) for task in tasks):
            raise Refused("invalid_document")
        for job in self.jobs.values():
            if key and (job["owner"], job["key"]) == (owner, key):
                return job["id"], job["jid"]
        self.jid += 1
        job = {
            "id": id, "jid": self.jid, "state": "init", "owner": owner, "key": key, "lastfailed": "",
            "resumed": 0,
            "user": owner or info["user"], "groups": info["clientgroups"], "noretry": info["noretry"],
            "priority": info["priority"], "start": self.now + later_s if later_s else 0.0,
        }  # fmt: skip
        job["tasks"] = [self._task(job, index, task) for index, task in enumerate(tasks)]
        self.jobs[id] = job
        self._advance(job)
        return id, self.jid

    def _task(self, job: Thing, index: int, given: Thing) -> Thing:
        """`given`: name, wanted, parents (positions), reads, writes, uncut, cmd, group, cores, skip,
        max_failures, retry_delay_s."""
        blank = {"preparing": False, "finishing": False, "ranks": None, "bytes": 0, "units": 0}
        state = {"state": "pending", "generation": 1, "first": 1, "highest": 0, "blamed": None}
        return {**given, **blank, **state, "id": f"{job['id']}_{given['name']}", "index": index, "job": job}

    def suspend_job(self, id: str) -> None:
        job = self.jobs[id]
        if job["state"] != "suspend":
            self._halt(job)

    def resume_job(self, id: str) -> None:
        """Finished ranks count; inputs that no client could use are looked at again if nothing is done."""
        job = self.jobs[id]
        if job["state"] != "suspend":
            raise Refused("conflict")
        self._set_back(
            task
            for task in job["tasks"]
            if task["state"] == "suspend" and not done(task) and any(u["input"] for u in live(task))
        )
        self._go_on(job)

    def recompute_job(self, id: str, index: int) -> None:
        """That task and all its descendants."""
        job = self._restartable(id)
        again = {index}
        for task in job["tasks"]:  # documents of the machine list parents first
            if again & set(task["parents"]):
                again.add(task["index"])
        self._set_back(job["tasks"][i] for i in sorted(again))
        self._go_on(job)

    def resubmit_job(self, id: str) -> None:
        job = self._restartable(id)
        self._set_back(job["tasks"])
        self._go_on(job)

    def delete_job(self, id: str, full: bool) -> None:
        job = self.jobs[id]
        if job["state"] not in ENDED:
            self._stop(job, "suspend", "suspend")
        job["state"] = "deleted"
        if full:
            self._drop_words(job["tasks"])
            del self.jobs[id]

    def set_priority(self, id: str, priority: int) -> None:
        self.jobs[id]["priority"] = max(1, priority)

    def set_clientgroups(self, id: str, groups: str) -> None:
        self.jobs[id]["groups"] = groups

    def forget(self, id: str) -> bool:
        """A job that has ended leaves memory."""
        if id not in self.jobs or self.jobs[id]["state"] not in ENDED:
            return False
        del self.jobs[id]
        return True

    def _restartable(self, id: str) -> Thing:
        if self.jobs[id]["state"] not in ("completed", "suspend"):
            raise Refused("conflict")
        return self.jobs[id]

    # -- people: clients and queue ---------------------------------------------------------------------------

    def suspend_client(self, id: str) -> None:
        if self._client(id)["suspended"]:
            raise Refused("conflict")
        self._put_aside(self.clients[id], BY_HAND)

    def resume_client(self, id: str) -> None:
        if not self._client(id)["suspended"]:
            raise Refused("conflict")
        self.clients[id].update(suspended="", blamed=set())

    def suspend_all(self) -> int:
        awake = [client for client in self.clients.values() if not client["suspended"]]
        for client in awake:
            self._put_aside(client, BY_HAND)
        return len(awake)

    def resume_all(self) -> int:
        asleep = [id for id, client in self.clients.items() if client["suspended"]]
        for id in asleep:
            self.resume_client(id)
        return len(asleep)

    def remove_client(self, id: str) -> None:
        client = self._client(id)
        self._withdraw_all(client)
        del self.clients[id]
        self.stopped.add(id)

    # -- clients ---------------------------------------------------------------------------------------------

    def register(self, id: str, profile: Thing) -> list[str]:
        """A restart ends the leases of before, but for what was finished (`spooled`) or runs on (stock)."""
        client = self.clients.setdefault(
            id,
            {
                "id": id, "incarnation": "", "suspended": "", "offline": False, "holds": {},
                "withdrawn": set(), "skip": set(), "blamed": set(), "request": 0, "granted": [],
                "checkouts": 0, "completed": 0, "failed": 0,
            },
        )  # fmt: skip
        restarted = not profile["incarnation"] or profile["incarnation"] != client["incarnation"]
        client.update({key: profile[key] for key in ("group", "apps", "cores", "native", "incarnation")})
        client["draining"] = False
        self.stopped.discard(id)
        if restarted:
            client.update(request=0, granted=[], skip=set(), blamed=set())
            spooled = {tuple(key) for key in profile.get("spooled", ())}
            for unit in list(client["holds"].values()):
                has = (unit["id"], unit["attempt"]) in spooled if client["native"] else (
                    unit["id"] in profile["current_work"]
                )  # fmt: skip
                if not has and unit["id"] in client["holds"]:
                    self._end(unit, "lost", missed=True)
            client["withdrawn"] = set()
        self._seen(client)
        return sorted(client["holds"])

    def heartbeat(self, id: str, holds: Collection[str] | None) -> tuple[list[str], bool]:
        """Of a stock worker: what to discard, and whether to stop."""
        if id not in self.clients and id in self.stopped:
            return [], True
        client = self._client(id)
        self._seen(client)
        if holds is None:
            discard = sorted(client["withdrawn"])
        else:
            discard = sorted(set(holds) - set(client["holds"]))
            for unit in list(client["holds"].values()):
                if unit["id"] not in holds and unit["since"] + self.lease_s <= self.now:
                    self._take_back(unit)
        client["withdrawn"] = set()
        return discard, False

    def checkout(self, id: str, available: int) -> tuple[list[Any], dict[str, int]]:
        """Of a stock worker: one workunit."""
        client = self._client(id)
        if client["suspended"]:
            raise Refused("client_suspended")
        if self.suspended:
            raise Refused("queue_suspended")
        self._seen(client)
        used = sum(unit["task"]["cores"] for unit in client["holds"].values())
        return self._give(client, 1, (client["cores"] or 1) - used, available)

    def exchange(self, id: str, x: Any) -> Thing:
        """Reports, then what is held, then work."""
        reply: Thing = {"results": [], "grants": [], "discard": [], "suspended": False, "stop": False}
        reply["skipped"] = {}
        if id not in self.clients and id in self.stopped:
            results = [(r.work, r.attempt or 0, "lease_lost") for r in x.reports]
            return {**reply, "results": results, "discard": list(x.holds), "stop": True}
        client = self._client(id)
        if x.incarnation != client["incarnation"] or x.request_id < client["request"]:
            raise Refused("stale_exchange")
        before = []
        if x.request_id > client["request"]:
            before, client["granted"] = client["granted"], []
            client["request"] = x.request_id
        self._seen(client)
        client["draining"] = x.draining
        for r in x.reports:
            try:
                result = self._settle(client, r)
            except Refused as exc:
                result = {"lease_lost": "lease_lost", "workunit_not_found": "unknown"}[str(exc)]
            reply["results"].append((r.work, r.attempt or 0, result))
        gets = not (client["suspended"] or client["draining"] or self.suspended)
        if gets and before:  # the reply that brought these was not seen, or was given up
            client["granted"] = [
                key
                for key in before
                if self._held(client, key) and key not in x.holds
                and self.words[key[0]]["since"] + self.lease_s > self.now
            ]  # fmt: skip
        reported = {(r.work, r.attempt) for r in x.reports}
        reply["discard"] = [k for k in x.holds if not self._held(client, k) and k not in reported]
        client["withdrawn"] = set()
        for unit in list(client["holds"].values()):
            if (unit["id"], unit["attempt"]) not in [*x.holds, *client["granted"]]:
                self._take_back(unit)
        reply["suspended"] = bool(client["suspended"])
        if x.leaving:
            self._withdraw_all(client)
            client.update(offline=True, granted=[], withdrawn=set())
        elif gets and client["granted"]:
            held = [key for key in client["granted"] if self._held(client, key)]
            reply["grants"] = [(*key, _part(self.words[key[0]])) for key in held]
        elif gets and x.want:
            reply["grants"], reply["skipped"] = self._give(client, x.want, x.free.cores, -1)
            client["granted"] = [grant[:2] for grant in reply["grants"]]
        return reply

    def report(self, id: str, r: Any) -> str:
        """A report by itself: it renews nothing."""
        return self._settle(self._client(id), r)

    def tokens(self, grants: Iterable[Any]) -> None:
        """Chance is the real one's: the tokens of what was granted."""
        for grant in grants:
            self.words[grant.workunit_id]["token"] = grant.token

    # -- data ------------------------------------------------------------------------------------------------

    def waits_for_data(self, task_id: str, generation: int, which: str) -> bool:
        """Whether an effect (`preparing`, `finishing`) is still wanted."""
        task = self._find_task(task_id)
        return task is not None and task["generation"] == generation and bool(task[which])

    def prepared(self, task_id: str, generation: int, units: int, input_bytes: int) -> None:
        """The inputs were looked at: so many units, so many bytes. A part has at least one unit."""
        if not self.waits_for_data(task_id, generation, "preparing"):
            return
        task = self._find_task(task_id)
        assert task is not None
        ranks = task["wanted"] if task["uncut"] else max(1, min(task["wanted"], units))
        task["units"] = units if ranks > 1 and not task["uncut"] else 0
        task["bytes"] = -(-input_bytes // ranks) if task["units"] else input_bytes
        self._cut(task, ranks)

    def refused(self, task_id: str, generation: int) -> None:
        if self.waits_for_data(task_id, generation, "preparing"):
            self._halt_task(self._find_task(task_id))

    def finished(self, task_id: str, generation: int) -> None:
        if self.waits_for_data(task_id, generation, "finishing"):
            self._close(self._find_task(task_id))

    def unfinishable(self, task_id: str, generation: int, lost: Collection[int]) -> None:
        """Results of some ranks are gone: after resume these and no others are done again."""
        if not self.waits_for_data(task_id, generation, "finishing"):
            return
        task = self._find_task(task_id)
        assert task is not None
        for rank in lost:
            unit = task["ranks"][rank] = _unit(task, rank)
            unit.update(handed=True, attempt=task["highest"])
            self.words[unit["id"]] = unit
        self._halt_task(task)

    def cut_is_void(self, task_id: str, generation: int) -> None:
        task = self._find_task(task_id)
        if task and task["generation"] == generation and task["state"] in RUNNING and not task["finishing"]:
            self._halt_task(task)

    # -- time and chance -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Silent clients are missed, jobs whose time has come begin."""
        for client in list(self.clients.values()):
            if client["deadline"] <= self.now and not client["offline"]:
                client.update(offline=True, granted=[])
                while client["holds"]:
                    self._end(next(iter(client["holds"].values())), "lost", missed=True)
        for job in self.jobs.values():
            self._advance(job)

    def committed(self) -> None:
        """A batch is durable: from now on the store has these words and no others."""
        self.stored = {id: dict(unit) for id, unit in self.words.items()}

    def restart(self) -> None:
        """What is stored comes back; everybody gets a full grace period."""
        self.jobs = {id: job for id, job in self.jobs.items() if job["state"] not in ENDED}
        self.stopped = set()
        for client in self.clients.values():
            client.update(request=0, granted=[], withdrawn=set(), draining=False)
            client["deadline"] = self.now + self.lease_s
            for unit in client["holds"].values():
                unit["since"] = self.now
        for unit in self.words.values():
            if unit["state"] == "queued":
                unit["others"] = self._for_others(unit)

    def same_order(self, clients: Mapping[str, Iterable[str]]) -> None:
        """Look at clients and their leases in this order; they have to be the same ones."""
        assert set(clients) == set(self.clients)
        self.clients = {id: self.clients[id] for id in clients}
        for id, held in clients.items():
            mine = self.clients[id]["holds"]
            assert set(held) == set(mine), f"{id} holds {sorted(held)}, and here {sorted(mine)}"
            self.clients[id]["holds"] = {work: mine[work] for work in held}

    # -- handing out -----------------------------------------------------------------------------------------

    def _give(self, client: Thing, want: int, cores: int, room: int) -> tuple[list[Any], dict[str, int]]:
        """Always the first of all that fits, one by one; `room` for inputs is not looked at if < 0."""
        ready = sorted(self._ready(), key=_order)
        todo = [unit for unit in ready if not _unfit(unit["task"], client)]
        grants: list[Any] = []
        while todo and len(grants) < want:
            unit = min(todo, key=self._fair_order) if self.fair else todo[0]
            todo.remove(unit)
            task = unit["task"]
            if task["cores"] <= cores and _has_room(task, room) and not self._is_others(unit, client):
                cores -= task["cores"]
                self._lease(client, unit)
                grants.append((unit["id"], unit["attempt"], _part(unit)))
        return grants, {} if grants else self._why_nothing(client, ready, cores, room)

    def _fair_order(self, unit: Thing) -> Any:
        job = unit["task"]["job"]
        return -job["priority"], self._running(job["user"]), _order(unit)

    def _why_nothing(self, client: Thing, ready: list[Thing], cores: int, room: int) -> dict[str, int]:
        """Tasks by the reason; of what failed on this client, workunits."""
        skipped: Counter[str] = Counter()
        for task in {unit["task"]["id"]: unit["task"] for unit in ready}.values():
            if reason := _unfit(task, client):
                skipped[reason] += 1
            elif task["cores"] > cores:
                skipped["no_free_resources"] += 1
            elif not _has_room(task, room):
                skipped["disk_full"] += 1
            else:
                skipped["skip_list"] += sum(unit["task"] is task for unit in ready)
        return dict(skipped)

    def _ready(self) -> Iterator[Thing]:
        for job in self.jobs.values():
            for task in job["tasks"]:
                if job["state"] in ACTIVE and task["state"] in RUNNING:
                    for unit in task["ranks"].values():
                        if unit["state"] == "queued" and unit["due"] <= self.now:
                            yield unit

    def _is_others(self, unit: Thing, client: Thing) -> bool:
        """It failed on this client, and another one is there that could run it, and has it for now."""
        is_for_others = unit["id"] in client["skip"] and self.now < unit["others"]
        return is_for_others and any(
            _is_up(other) and unit["id"] not in other["skip"] and not _unfit(unit["task"], other)
            for other in self.clients.values()
            if other is not client
        )

    def _lease(self, client: Thing, unit: Thing) -> None:
        task = unit["task"]
        attempt = unit["attempt"] + 1 if unit["handed"] else task["first"]
        unit.update(handed=True, state="checkout", attempt=attempt, client=client["id"], how="", missed=False)
        unit.update(since=self.now, due=0.0)
        task["highest"] = max(task["highest"], attempt)
        task["state"] = task["job"]["state"] = "in-progress"
        client["holds"][unit["id"]] = self.words[unit["id"]] = unit
        client["withdrawn"].discard(unit["id"])
        client["checkouts"] += 1

    # -- reports ---------------------------------------------------------------------------------------------

    def _settle(self, client: Thing, r: Any) -> str:
        word = self.words.get(r.work)
        if word is None or not self._may_report(client, word, r):
            return self._repeated(client, word or self.stored.get(r.work), r)
        if word["state"] == "queued":  # its client was missed, and nobody has taken the work since
            if r.outcome == "released":
                return self._repeated(client, word, r)
            count = "lost" if word["how"] == "lost" else "given"
            word[count] = max(0, word[count] - 1)
            word.update(state="checkout", due=0.0, how="")
            client["holds"][word["id"]] = word
        if r.outcome == "done":
            self._unlease(word)
            word["state"] = "completed"
            client["completed"] += 1
            client["blamed"] = set()
            if done(word["task"]) == len(word["task"]["ranks"]):
                self._ranks_done(word["task"])
        else:
            kind = "released" if r.outcome == "released" else str(r.kind or "command")
            self._end(word, kind, exit_code=r.exit_code, ran=r.ran and kind == "node")
        return "accepted"

    def _may_report(self, client: Thing, unit: Thing, r: Any) -> bool:
        """Native clients name attempt and token; of a stock worker its id is enough."""
        is_open = unit["state"] == "checkout" or (unit["state"] == "queued" and unit["missed"])
        holder = self.clients.get(unit["client"])
        if r.token is None and holder is not None and holder["native"]:
            return False
        return bool(
            is_open
            and unit["client"] == client["id"]
            and r.attempt in (None, unit["attempt"])
            and r.token in (None, unit["token"])
        )

    def _repeated(self, client: Thing, word: Thing | None, r: Any) -> str:
        """The same report again is a duplicate, anything else is refused."""
        if word is None:
            task = self._find_task(r.work.rpartition("_")[0])
            rank = int(r.work.rpartition("_")[2])
            is_known = task is not None and (task["ranks"] is None or rank in task["ranks"])
            raise Refused("lease_lost" if is_known else "workunit_not_found")
        if r.attempt is None and r.token is None:
            same = word["client"] == client["id"]
        else:
            same = r.attempt in (None, word["attempt"]) and r.token in (None, word["token"])
        if r.outcome == "done":
            same = same and word["state"] == "completed"
        else:
            kind = "released" if r.outcome == "released" else r.kind
            same = same and word["state"] not in ("checkout", "completed") and word["how"] == kind
        if not same:
            raise Refused("lease_lost")
        return "duplicate"

    # -- how attempts end ------------------------------------------------------------------------------------

    def _end(
        self,
        unit: Thing,
        kind: str,
        *,
        exit_code: int | None = None,
        missed: bool = False,
        ran: bool = False,
    ) -> None:
        """Anything but well. `missed`: its client may still say how it ended; `ran`: a node's, meanwhile."""
        client, job = self.clients.get(unit["client"]), unit["task"]["job"]
        self._unlease(unit)
        unit.update(how=kind, missed=missed)
        if kind == "command" and exit_code == 42:
            unit.update(failed=unit["failed"] + 1)
            self._stop(job, "failed-permanent", "failed-permanent")
            job.update(state="failed-permanent", lastfailed=unit["id"])
            return
        if kind == "released":
            was_kept = self.now - unit["since"] >= 2 * self.lease_s
            unit["given"] = 0 if was_kept else unit["given"] + 1
        else:
            unit["failed" if kind in (*OWN, "input") else kind] += 1
            unit["input"] += kind == "input"
            unit["lost"] += ran
        if self._is_given_up(unit, "lost" if ran else kind):
            self._halt(job, unit["id"])
        else:
            unit.update(state="queued", due=self._due(unit, kind))
            unit["others"] = self._for_others(unit)
        if client is not None and kind == "input":
            client["skip"].add(unit["id"])  # it may be this client's way to the host that is broken
        if client is not None and ran:
            client["failed"] += 1
            client["skip"].add(unit["id"])
        elif client is not None and kind in (*OWN, "node"):
            self._blame(unit, client, kind)

    def _is_given_up(self, unit: Thing, kind: str) -> bool:
        noretry = unit["task"]["job"]["noretry"]
        most = 1 if noretry else unit["task"]["max_failures"] or self.max_failed
        return bool(
            (kind in (*OWN, "input") and unit["failed"] >= most)
            or (kind == "lost" and unit["lost"] >= (1 if noretry else self.max_lost))
            or unit["node"] >= MAX_NODE_FAILURES
            or unit["given"] >= MAX_GIVEN_BACK
        )

    def _due(self, unit: Thing, kind: str) -> float:
        """When it may be handed out again: after 1 s · 2ⁿ, for what is given back from the fourth time on;
        what was lost twice or more often at some moment within half a lease · 4ⁿ.
        """
        lost_s = 0.0
        if unit["lost"] > 1:
            text = f"{unit['id']} {unit['attempt']}".encode()
            drawn = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())
            lost_s = min(self.lease_s / 2 * 4.0 ** (unit["lost"] - 2), self.retry_cap_s) * drawn / 2**32
            lost_s = (math.floor(lost_s * 64) + 1) / 64
        if kind == "lost":
            wait_s = lost_s
        elif kind == "released":
            times = unit["given"] - 4
            wait_s = min(2.0**times, LONGEST_PAUSE_S) if times >= 0 else 0.0
        else:
            base_s = unit["task"]["retry_delay_s"]
            base_s = self.retry_base_s if base_s is None else base_s
            wait_s = min(base_s * 2.0 ** (unit["failed"] + unit["node"] - 1), max(self.retry_cap_s, base_s))
            wait_s = max(wait_s, lost_s) if kind == "node" else wait_s
        return self.now + wait_s if wait_s else 0.0

    def _for_others(self, unit: Thing) -> float:
        """Until when others have it to themselves: for a while, if its input may have been to blame."""
        return max(unit["due"], self.now) + self.retry_cap_s if unit["input"] else math.inf

    def _blame(self, unit: Thing, client: Thing, kind: str) -> None:
        """Decision 7: whose fault it was, and whose it was not after all."""
        task = unit["task"]
        client["failed"] += 1
        client["skip"].add(unit["id"])
        is_tasks = False
        if kind in OWN and not done(task):
            if task["blamed"] is None:
                task["blamed"] = client["id"]
            elif task["blamed"] not in ("", client["id"]):
                self._clear_task(task)
            is_tasks = task["blamed"] == ""
        side = "node" if kind == "node" else "work"
        first = unit["blamed"].get(side, client["id"])
        if first != client["id"]:  # a second client: the workunit is bad
            unit["blamed"][side] = ""
            self._take_off(first, {unit["id"]})
            return
        unit["blamed"][side] = client["id"]
        if is_tasks:
            return
        client["blamed"].add(unit["id"])
        is_full = len(client["blamed"]) >= self.max_blamed
        if is_full:
            one_task = all(id.rpartition("_")[0] == task["id"] for id in client["blamed"])
        else:
            one_task = unit["state"] == "suspend"
        if (
            one_task
            and task["blamed"] == client["id"]
            and not done(task)
            and self._stands_alone(task, client)
        ):
            self._clear_task(task)
        if len(client["blamed"]) >= self.max_blamed and not client["suspended"]:
            self._put_aside(client, FAILURES)

    def _stands_alone(self, task: Thing, client: Thing) -> bool:
        others = (other for other in self.clients.values() if other is not client)
        return not any(_is_up(other) and not _unfit(task, other) for other in others)

    def _clear_task(self, task: Thing) -> None:
        """The task is bad: only where a machine could not even start its commands the blame stays."""
        id, task["blamed"] = task["blamed"], ""
        self._take_off(
            id,
            {
                work
                for work in self.clients.get(id, {"blamed": ()})["blamed"]
                if work.rpartition("_")[0] == task["id"]
                and (work not in self.words or self.words[work]["blamed"].get("node") != id)
            },
        )

    def _take_off(self, id: str, works: set[str]) -> None:
        client = self.clients.get(id)
        if client is None or not client["blamed"] & works:
            return
        client["blamed"] -= works
        if client["suspended"] == FAILURES and len(client["blamed"]) < self.max_blamed:
            client["suspended"] = ""

    def _put_aside(self, client: Thing, why: str) -> None:
        client["suspended"] = why
        self._withdraw_all(client)

    def _withdraw_all(self, client: Thing) -> None:
        while client["holds"]:
            self._withdraw(next(iter(client["holds"].values())))

    def _withdraw(self, unit: Thing) -> None:
        self._unlease(unit, withdrawn=True)
        self._end(unit, "released")

    def _take_back(self, unit: Thing) -> None:
        self._unlease(unit)
        self._end(unit, "released")

    def _unlease(self, unit: Thing, withdrawn: bool = False) -> None:
        client = self.clients.get(unit["client"])
        if client is not None and client["holds"].get(unit["id"]) is unit:
            del client["holds"][unit["id"]]
            if withdrawn:
                client["withdrawn"].add(unit["id"])

    # -- tasks and jobs --------------------------------------------------------------------------------------

    def _advance(self, job: Thing) -> None:
        if job["state"] in ACTIVE and job["start"] <= self.now:
            self._start(job)

    def _start(self, job: Thing) -> None:
        """Whatever is ready: parents done. A task that is left out counts as done at once."""
        for task in job["tasks"]:  # parents come first
            if task["state"] != "pending" or task["preparing"]:
                continue
            if all(job["tasks"][parent]["state"] in DONE for parent in task["parents"]):
                if task["skip"]:
                    task["state"] = "skipped"
                elif task["reads"] or task["writes"]:
                    task["preparing"] = True
                else:
                    self._cut(task, task["wanted"])
        if all(task["state"] in DONE for task in job["tasks"]):
            job["state"] = "completed"

    def _cut(self, task: Thing, ranks: int) -> None:
        numbers = [0] if ranks == 1 else range(1, ranks + 1)
        task.update(state="queued", preparing=False, ranks={rank: _unit(task, rank) for rank in numbers})
        if task["job"]["state"] == "init":
            task["job"]["state"] = "queued"

    def _ranks_done(self, task: Thing) -> None:
        if task["writes"]:
            task["finishing"] = True
        else:
            self._close(task)

    def _close(self, task: Thing | None) -> None:
        assert task is not None
        task.update(state="completed", finishing=False)
        self._start(task["job"])

    def _halt_task(self, task: Thing | None) -> None:
        assert task is not None
        task.update(state="suspend", preparing=False, finishing=False)
        self._halt(task["job"], task["id"])

    def _halt(self, job: Thing, lastfailed: str = "") -> None:
        if job["state"] not in ACTIVE:
            raise Refused("illegal_move")
        self._stop(job, "suspend", "suspend")
        job.update(state="suspend", lastfailed=lastfailed or job["lastfailed"])

    def _stop(self, job: Thing, task_state: str, unit_state: str) -> None:
        for task in job["tasks"]:
            task.update(preparing=False, finishing=False)
            if task["state"] in RUNNING:
                task["state"] = task_state
            for unit in live(task):
                self._unlease(unit, withdrawn=True)
                unit.update(state=unit_state, due=0.0)

    def _set_back(self, tasks: Iterable[Thing]) -> None:
        """To before the first attempt; the next attempt of a rank has a number that none had before."""
        tasks = list(tasks)
        for task in tasks:
            for unit in live(task):
                self._unlease(unit, withdrawn=True)
        self._drop_words(tasks)
        for client in self.clients.values():
            ids = {task["id"] for task in tasks}
            client["skip"] = {work for work in client["skip"] if work.rpartition("_")[0] not in ids}
        for task in tasks:
            task.update(state="pending", preparing=False, finishing=False, ranks=None, bytes=0, units=0)
            task.update(generation=task["generation"] + 1, first=task["highest"] + 1, blamed=None)

    def _go_on(self, job: Thing) -> None:
        """What is suspended goes on where it was: all is forgiven, the clients may try again."""
        for task in job["tasks"]:
            if task["state"] != "suspend":
                continue
            handed = [unit for unit in (task["ranks"] or {}).values() if unit["handed"]]
            task["state"] = "pending" if task["ranks"] is None else "in-progress" if handed else "queued"
            for unit in live(task):
                unit.update(state="queued", failed=0, lost=0, input=0, node=0, given=0)
                for client in self.clients.values():
                    client["skip"].discard(unit["id"])
        states = {task["state"] for task in job["tasks"]}
        standing = "queued" if "queued" in states else "init"
        job["state"] = "in-progress" if states & {"in-progress", "completed"} else standing
        job["lastfailed"] = ""
        job["resumed"] += 1
        for task in job["tasks"]:
            if task["state"] in RUNNING and done(task) == len(task["ranks"]):
                self._ranks_done(task)
        self._advance(job)

    def _drop_words(self, tasks: Iterable[Thing]) -> None:
        for task in tasks:
            for unit in (task["ranks"] or {}).values():
                self.words.pop(unit["id"], None)

    # -- small things ----------------------------------------------------------------------------------------

    def _client(self, id: str) -> Thing:
        if id not in self.clients:
            raise Refused("client_not_found")
        return self.clients[id]

    def _find_task(self, task_id: str) -> Thing | None:
        tasks = (task for job in self.jobs.values() for task in job["tasks"])
        return next((task for task in tasks if task["id"] == task_id), None)

    def _seen(self, client: Thing) -> None:
        client.update(offline=False, deadline=self.now + self.lease_s)

    def _held(self, client: Thing, key: tuple[str, int]) -> bool:
        unit = client["holds"].get(key[0])
        return unit is not None and unit["attempt"] == key[1]

    def _running(self, user: str) -> int:
        held = (unit for client in self.clients.values() for unit in client["holds"].values())
        return sum(unit["task"]["job"]["user"] == user for unit in held)


def _unit(task: Thing, rank: int) -> Thing:
    return {
        "id": f"{task['id']}_{rank}", "task": task, "rank": rank, "state": "queued", "handed": False,
        "attempt": 0, "client": "", "token": "", "how": "", "missed": False, "blamed": {}, "due": 0.0,
        "since": 0.0, "failed": 0, "lost": 0, "input": 0, "node": 0, "given": 0,
        "others": math.inf,
    }  # fmt: skip


def live(task: Thing) -> list[Thing]:
    """Workunits that were handed out and are not completed."""
    return [u for u in (task["ranks"] or {}).values() if u["handed"] and u["state"] != "completed"]


def done(task: Thing) -> int:
    return sum(unit["state"] == "completed" for unit in (task["ranks"] or {}).values())


def _order(unit: Thing) -> Any:
    """Priority, submission, task, what is done again, rank."""
    task = unit["task"]
    job = task["job"]
    return -job["priority"], job["jid"], task["index"], not unit["handed"], unit["rank"]


def _part(unit: Thing) -> str:
    """Units of the input, as evenly as can be, the first parts one longer."""
    task = unit["task"]
    if not task["units"]:
        return ""
    size, longer = divmod(task["units"], len(task["ranks"]))
    sizes = [size + (rank <= longer) for rank in range(1, unit["rank"] + 1)]
    first, last = sum(sizes[:-1]) + 1, sum(sizes)
    return str(first) if first == last else f"{first}-{last}"


def _has_room(task: Thing, room: int) -> bool:
    return room < 0 or room > task["bytes"]


def _is_up(client: Thing) -> bool:
    return not (client["offline"] or client["suspended"] or client["draining"])


def _unfit(task: Thing, client: Thing) -> str:
    """Why this client can never run it; "" if it can."""
    names = task["group"] or task["job"]["groups"]
    groups = {name.strip() for name in names.split(",")} - {""}
    if groups and client["group"] not in groups:
        return "wrong_group"
    if not {task["cmd"], "*"} & set(client["apps"]):
        return "wrong_app"
    if not client["native"] and task["reads"] and task["wanted"] > 1 and task["uncut"]:
        return "stock_worker"
    return "not_enough_cores" if task["cores"] > (client["cores"] or 1) else ""
