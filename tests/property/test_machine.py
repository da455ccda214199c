"""Random commands against the scheduler: whatever people, clients, networks and restarts do, and in whatever
order, every invariant holds, nothing is lost or done twice, and a restart at any moment changes nothing.

Each command goes to the reference model (reference_model.py) as well, and both give the same answer.
After each step the batch goes to a store as the engine would write it, `invariants.check` runs, the history
is compared with the step before, and the state is loaded from the store and compared with the live one. At
the end somebody repairs what can be repaired, and all that was submitted must complete.

HYPOTHESIS_PROFILE=long looks longer and elsewhere each time.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from awe_server.scheduler import clients, jobs, queue, suspension
from awe_server.scheduler.checkout import Grant, checkout
from awe_server.scheduler.exchange import ExchangeReply, exchange
from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.finish import task_finished, task_unfinishable
from awe_server.scheduler.queue import queue_counts
from awe_server.scheduler.ready import cut_is_void, task_prepared, task_refused
from awe_server.scheduler.report import report
from awe_server.scheduler.restart import descendants
from awe_server.scheduler.split import index_candidates
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    ENDED_JOBS,
    RUNNING_TASKS,
    Context,
    Document,
    FinishTask,
    Job,
    PrepareTask,
    Rules,
    State,
    Task,
)
from awe_server.scheduler.submit import submit_job
from awe_server.scheduler.tick import tick
from awe_server.scheduler.why import why_job, why_workunit
from shared_models.errors import AweError, ClientNotFound, StaleExchange
from shared_models.ids import ClientId, WorkunitId
from shared_models.messages import ExchangeRequest, Free, Report
from shared_models.states import FailureKind, JobState, TaskState, WorkunitState
from shared_models.times import rfc3339
from tests.builders import GIB, PLENTY, a_job, a_profile, job_id
from tests.property.reference_model import Reference, Refused
from tests.property.reference_views import counts
from tests.property.reference_views import picture as reference_picture
from tests.property.scheduler_model import FakeClient, Server, picture

T = TypeVar("T")

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

pytestmark = pytest.mark.timeout(7_200 if LONG else 600)

#: Small limits, so that a short run reaches them.
RULES = Rules(
    lease_s=8.0, max_work_failure=2, max_client_failure=3, max_lost=3, retry_base_s=1.0, retry_cap_s=4.0
)

GROUPS = ("", "a", "b", "a, b")
APPS = ("run", "blast")
KINDS = tuple(kind for kind in FailureKind if kind not in (FailureKind.LOST, FailureKind.RELEASED))
SMALL = Free(cores=2, memory_bytes=GIB, disk_bytes=GIB, gpus=0)

pick = st.integers(0, 1_000)

tasks = st.fixed_dictionaries(
    {
        "parts": st.sampled_from((1, 1, 2, 3)),
        "parents": st.integers(0, 7),  #: bits: which of the tasks before it
        "reads": st.sampled_from(("", "parent", "node")),
        "writes": st.booleans(),
        "cut": st.sampled_from(("", "record", "none")),
        "cmd": st.sampled_from(("run", "run", "run", "blast")),
        "group": st.sampled_from(("", "", "a")),
        "cores": st.sampled_from((1, 1, 1, 1, 2, 9)),
        "skip": st.sampled_from((False,) * 7 + (True,)),
        "max_failures": st.sampled_from((None, None, 1, 3)),
        "retry_delay_s": st.sampled_from((None, 0.0, 2.5)),
    }
)

infos = st.fixed_dictionaries(
    {
        "clientgroups": st.sampled_from(GROUPS),
        "priority": st.integers(1, 3),
        "noretry": st.sampled_from((False, False, False, True)),
        "user": st.sampled_from(("anna", "bert")),
    }
)


#: What happens, by weight.
ACTS = (
    *("work",) * 14,
    *("time",) * 3,
    *("effect",) * 4,
    *("steer",) * 4,
    *("adjust", "switch_queue", "steer_client", "new_client", "come_back", "foreign_report"),
    *("stale_report", "forget", "restart", "look"),
)

DAILY = ("work",) * 8 + ("time", "effect", "effect", "come_back")

VERBS = ("suspend", "resume", "resume", "recompute", "recompute", "resubmit", "delete", "remove", "recover")
AFTER_A_STOP = ("resume", "recompute", "resubmit")  #: refused while a job goes on


class SchedulerMachine(RuleBasedStateMachine):
    """People, clients and time, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.wall_s = 1_767_268_800.0
        self.tokens = 0
        self.submitted = 0
        self.clients: list[FakeClient] = []
        self.ticked = True
        self.eager = False  #: effects are carried out at once
        self.moody = False  #: every command fails
        self.quiet: set[str] = set()  #: acts that do not happen in this run
        self.sound = False  #: nothing was found so far
        self.batch: list[str] | None = None  #: verbs of a batch that is still gathering

    @initialize(
        fair=st.booleans(),
        eager=st.sampled_from((True, True, False)),
        moody=st.sampled_from((False, False, True)),
        natives=st.integers(0, 2),
        stocks=st.integers(0, 2),
        quiet=st.sets(st.sampled_from(sorted(set(ACTS) - {"work"}))),
        first=st.lists(st.tuples(infos, st.lists(tasks, min_size=1, max_size=4)), min_size=1, max_size=2),
    )
    def start(
        self,
        fair: bool,
        eager: bool,
        moody: bool,
        natives: int,
        stocks: int,
        quiet: set[str],
        first: list[Any],
    ) -> None:
        self.server = Server(State(replace(RULES, policy="fair" if fair else "fcfs")))
        self.reference = Reference(
            lease_s=RULES.lease_s,
            max_work_failure=RULES.max_work_failure,
            max_client_failure=RULES.max_client_failure,
            max_lost=RULES.max_lost,
            retry_base_s=RULES.retry_base_s,
            retry_cap_s=RULES.retry_cap_s,
            fair=fair,
        )
        self.reference.now = self.now_s
        self.eager = eager
        self.moody = moody
        self.quiet = quiet
        for _ in range(natives):
            self.add_client(native=True, group="a", cores=4)
        for _ in range(stocks):
            self.add_client(native=False, group="a", cores=1)
        for info, specs in first:
            self._submit(info, specs)

    @rule(
        info=infos,
        specs=st.lists(tasks, min_size=1, max_size=4),
        owner=st.sampled_from(("", "anna", "bert")),
        key=st.sampled_from(("", "", "k1", "k2")),
        later_s=st.sampled_from((0, 0, 0, 0, 3)),
        torn_at=pick,
    )
    def submit(
        self, info: Document, specs: list[Document], owner: str, key: str, later_s: int, torn_at: int
    ) -> None:
        self._submit(info, specs, owner, key, later_s, torn_at)

    @rule(acts=st.lists(st.tuples(st.sampled_from(DAILY), pick, pick, pick), min_size=10, max_size=25))
    def go_on(self, acts: list[tuple[str, int, int, int]]) -> None:
        """Clients work for a while, and nobody meddles."""
        for name, a, b, c in acts:
            getattr(self, name)(a, b, c)

    @rule(
        acts=st.lists(st.tuples(st.sampled_from(ACTS), pick, pick, pick), min_size=1, max_size=12),
        together=st.sampled_from((False, False, True)),
    )
    def happen(self, acts: list[tuple[str, int, int, int]], together: bool) -> None:
        """Things happen; each takes what it needs to know from three numbers.

        `together`: while the store is busy, so that all becomes one batch.
        """
        self.batch = [] if together else None
        for name, a, b, c in acts:
            if name not in self.quiet:
                getattr(self, name)(a, b, c)
        if self.batch is not None:
            verbs, self.batch = self.batch, None
            self.settle(*verbs, torn_at=acts[0][1])

    # -- helpers ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.server.state

    @property
    def ctx(self) -> Context:
        return Context(self.now_s, self.wall_s, self._token)

    def _token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"

    def both(
        self, real: Callable[[], T], ours: Callable[[], Any], told: Callable[[T], Any] = lambda answer: answer
    ) -> T:
        """Give one command to both schedulers: the same answer, or the same refusal, which is raised.

        `told` is what of the real one's answer the other one says as well.
        """
        refusal: AweError | None = None
        said: Any
        try:
            answer = real()
            said = told(answer)
        except AweError as exc:
            refusal, said = exc, f"refused: {exc.code}"
        expected: Any
        try:
            expected = ours()
        except Refused as exc:
            expected = f"refused: {exc}"
        assert said == expected, f"the answer is {said}, the reference model's {expected}"
        if refusal is not None:
            raise refusal
        return answer

    def same(self) -> None:
        """People would be shown the same of both."""
        real, ours = picture(self.state, self.now_s), reference_picture(self.reference)
        wrong = {
            part: {
                key: (held.get(key), ours[part].get(key))
                for key in {*held, *ours[part]}
                if held.get(key) != ours[part].get(key)
            }
            if isinstance(held, dict)
            else (held, ours[part])
            for part, held in real.items()
            if held != ours[part]
        }
        assert not wrong, f"the state is not the reference model's: {wrong}"

    def settle(self, *verbs: str, torn_at: int | None = None) -> None:
        """Commit what the step changed and look at everything."""
        self.sound = False
        self.same()
        if self.batch is not None:
            self.batch += verbs
            self.server.check()
            return
        self.server.commit(verbs, torn_at, self.ctx)
        self.reference.committed()
        if self.ticked:
            self.server.check_reload(self.ctx)
        self.sound = True
        if self.eager and self.server.effects:
            self.effect(0, 0, torn_at or 0)

    def a_client(self, at: int) -> FakeClient:
        return self.clients[at % len(self.clients)]

    def a_job(self, at: int) -> Job | None:
        """Any job; of a batch that is gathering, rather one that is in it."""
        held = list(self.state.jobs.values())
        if at % 4 and self.state.changes.revised:
            held = [job for job in held if job.id in self.state.changes.revised] or held
        return held[at % len(held)] if held else None

    def an_attempt(self, client: FakeClient, at: int) -> tuple[WorkunitId, int, str] | None:
        held = list(client.running.items())
        if not held:
            return None
        id, (attempt, token) = held[at % len(held)]
        return id, attempt, token

    def unchanged(self) -> bool:
        """A refusal changes nothing."""
        return self.batch is not None or self.state.changes.is_empty()

    # -- people ----------------------------------------------------------------------------------------------

    def _submit(
        self,
        info: Document,
        specs: list[Document],
        owner: str = "",
        key: str = "",
        later_s: int = 0,
        torn_at: int = 0,
    ) -> None:
        document = a_job(**info, **({"start_at": rfc3339(self.wall_s + later_s)} if later_s else {}))
        for i, spec in enumerate(specs):
            _add_task(document, i, spec, specs)
        plain = [_plain(i, spec, specs) for i, spec in enumerate(specs)]
        self.submitted += 1
        known = self.state.idempotency.get((owner, key)) if key else None
        id = job_id(self.submitted)
        try:
            job = self.both(
                lambda: submit_job(
                    self.state, self.ctx, document.build(), job_id=id, owner=owner, idempotency_key=key
                ),
                lambda: self.reference.submit(id, plain, owner=owner, key=key, later_s=later_s, **info),
                lambda job: (job.id, job.jid),
            )
        except AweError:
            assert self.unchanged()
        else:
            assert known is None or job is known
        self.settle(torn_at=torn_at)

    def steer(self, a: int, b: int, c: int) -> None:
        """A verb on a job."""
        job, verb = self.a_job(a), VERBS[b % len(VERBS)]
        if job is None:
            return
        if verb in AFTER_A_STOP and job.state in ACTIVE_JOBS and c % 3:
            self._steer(job, "suspend", job.state, c)
            self.settle("suspend")
        was = job.state
        try:
            self._steer(job, verb, was, c)
        except AweError:
            assert self.unchanged(), f"{verb} refused and changed {job!r}"
        self.settle("delete" if verb == "remove" else verb, torn_at=c)
        if verb == "remove" and self.batch is None:
            for collection in ("jobs", "tasks", "workunits"):
                left = [d["id"] for d in self.server.store.all(collection)]
                assert not [id for id in left if id.startswith(job.id)]

    def _steer(self, job: Job, verb: str, was: JobState, c: int) -> None:
        state, ctx, other, id = self.state, self.ctx, self.reference, job.id

        def verb_on_both(real: Callable[[], Any], ours: Callable[[], None]) -> None:
            self.both(real, ours, lambda _: None)

        match verb:
            case "suspend":
                verb_on_both(
                    lambda: jobs.suspend_job(state, ctx, id, "by hand"), lambda: other.suspend_job(id)
                )
                assert job.state is JobState.SUSPEND
            case "resume":
                verb_on_both(lambda: jobs.resume_job(state, ctx, id), lambda: other.resume_job(id))
                assert was is JobState.SUSPEND
                assert job.state in ACTIVE_JOBS | {JobState.COMPLETED}
            case "recompute":
                task = job.tasks[c % len(job.tasks)]
                verb_on_both(
                    lambda: jobs.recompute_job(state, ctx, id, task.name),
                    lambda: other.recompute_job(id, task.index),
                )
                assert task.generation > 1
                assert not any(t.done for t in descendants(task))
            case "resubmit":
                verb_on_both(lambda: jobs.resubmit_job(state, ctx, id), lambda: other.resubmit_job(id))
                assert not any(task.done for task in job.tasks)
            case "delete":
                verb_on_both(lambda: jobs.delete_job(state, ctx, id), lambda: other.delete_job(id, False))
                assert job.state is JobState.DELETED
            case "remove":
                verb_on_both(
                    lambda: jobs.delete_job(state, ctx, id, full=True), lambda: other.delete_job(id, True)
                )
                assert job.id not in state.jobs
            case _:
                jobs.recover_job(state, ctx, job.id)

    def adjust(self, a: int, b: int, c: int) -> None:
        """What a job is like, or an input of it."""
        job = self.a_job(a)
        if job is None:
            return
        match b % 5:
            case 0 | 1:
                jobs.set_priority(self.state, self.ctx, job.id, c % 5)
                self.reference.set_priority(job.id, c % 5)
            case 2:
                jobs.set_clientgroups(self.state, self.ctx, job.id, GROUPS[c % len(GROUPS)])
                self.reference.set_clientgroups(job.id, GROUPS[c % len(GROUPS)])
            case 3 if c % 4 == 0:
                task = job.tasks[c % len(job.tasks)]
                runs = task.state in RUNNING_TASKS and not task.finishing
                cut_is_void(self.state, self.ctx, task.id, task.generation, "input was replaced")
                self.reference.cut_is_void(task.id, task.generation)
                assert task.state is TaskState.SUSPEND or not runs
            case 3:
                jobs.set_expiration(self.state, self.ctx, job.id, f"{c}H")
            case _:
                jobs.set_datatoken(self.state, self.ctx, job.id, "secret")
        self.settle(torn_at=c)

    def switch_queue(self, a: int, b: int, c: int) -> None:
        """Mostly on."""
        (queue.suspend_queue if a % 3 == 0 else queue.resume_queue)(self.state, self.ctx)
        self.reference.suspended = a % 3 == 0
        self.settle()

    def steer_client(self, a: int, b: int, c: int) -> None:
        """A verb on a client."""
        if not self.clients:
            return
        state, ctx, id, other = self.state, self.ctx, self.a_client(a).id, self.reference
        try:
            match b % 8:
                case 0 | 1:
                    self.both(
                        lambda: suspension.suspend_client(state, ctx, id),
                        lambda: other.suspend_client(id),
                        lambda _: None,
                    )
                    assert not state.clients[id].holds
                case 2 | 3 | 4:
                    self.both(
                        lambda: suspension.resume_client(state, ctx, id),
                        lambda: other.resume_client(id),
                        lambda _: None,
                    )
                    assert not state.clients[id].blamed
                case 5:
                    self.both(lambda: suspension.suspend_all(state, ctx), other.suspend_all)
                    assert not state.running
                case 6:
                    self.both(lambda: suspension.resume_all(state, ctx), other.resume_all)
                case _:
                    self.both(
                        lambda: suspension.remove_client(state, ctx, id),
                        lambda: other.remove_client(id),
                    )
        except AweError:
            assert self.unchanged()
        self.settle(torn_at=c)

    def look(self, a: int, b: int, c: int) -> None:
        """Views change nothing, and explain everything that waits."""
        _look(self.state, self.ctx)
        assert queue_counts(self.state) == counts(self.reference)
        assert self.unchanged()

    # -- data ------------------------------------------------------------------------------------------------

    def effect(self, a: int, b: int, c: int) -> None:
        """An effect comes back: soon, late, badly, twice, or long after it was void."""
        server = self.server
        how = ("well", "well", "well", "badly", "twice", "again", "again")[b % 7]
        source = server.done_effects if how == "again" or not server.effects else server.effects
        if not source:
            return
        effect = source[a % len(source)]
        if how != "twice" and source is server.effects:
            source.remove(effect)
            server.done_effects = [*server.done_effects[-8:], effect]
        current = server.is_current(effect)
        which = "preparing" if isinstance(effect, PrepareTask) else "finishing"
        assert current == self.reference.waits_for_data(effect.task_id, effect.generation, which)
        if isinstance(effect, PrepareTask):
            self._prepare(effect, how == "badly", c % 4)
        else:
            self._finish(effect, how == "badly", c)
        assert current or self.batch is not None or not self.state.changes.tasks
        self.settle(torn_at=c)

    def _prepare(self, effect: PrepareTask, badly: bool, units: int) -> None:
        if badly:
            task_refused(self.state, self.ctx, effect.task_id, effect.generation, "input is missing")
            self.reference.refused(effect.task_id, effect.generation)
            return
        task = self.state.tasks.get(effect.task_id)
        facts = _facts(task, units, self._token()) if task else TaskFacts()
        task_prepared(self.state, self.ctx, effect.task_id, effect.generation, facts)
        input_bytes = sum(fact.size_bytes for fact in facts.inputs)
        self.reference.prepared(effect.task_id, effect.generation, units, input_bytes)

    def _finish(self, effect: FinishTask, badly: bool, c: int) -> None:
        task = self.state.tasks.get(effect.task_id)
        if badly:
            lost = self._lose_results(task, c) if task and self.server.is_current(effect) else []
            reason = f"parts {lost} are missing"
            task_unfinishable(self.state, self.ctx, effect.task_id, effect.generation, reason, lost)
            self.reference.unfinishable(effect.task_id, effect.generation, lost)
            return
        outputs = task.outputs if task else []
        facts = [OutputFact(io["filename"], io["node"], 10, "0" * 32) for io in outputs]
        task_finished(self.state, self.ctx, effect.task_id, effect.generation, facts)
        self.reference.finished(effect.task_id, effect.generation)

    def _lose_results(self, task: Task, c: int) -> list[int]:
        """Results of some ranks are gone, and none of them counts as accepted any more."""
        lost = [rank for rank in range(task.end_rank - task.totalwork, task.end_rank) if (rank + c) % 3 == 0]
        for rank in lost:
            id = WorkunitId(f"{task.wuid_prefix}{rank}")
            self.server.history.accepted.discard((id, task.generation))
            self.server.history.finished.pop(id, None)
        return lost

    # -- clients ---------------------------------------------------------------------------------------------

    def new_client(self, a: int, b: int, c: int) -> None:
        """Another client comes."""
        self.add_client(a % 2 == 0, ("", "a", "b")[b % 3], (1, 2, 4, 16)[c % 4])

    def add_client(self, native: bool, group: str, cores: int) -> None:
        if len(self.clients) >= 4:
            return
        id = ClientId(f"c{len(self.clients) + 1}")
        apps = ["*"] if cores != 2 else ["run"]
        profile = a_profile(name=f"node{id}", group=group, cores=cores, apps=apps, native=native)
        client = FakeClient(id, native, profile)
        self.clients.append(client)
        self.register(client)

    def come_back(self, a: int, b: int, c: int) -> None:
        """A client registers again: as it is, after a restart, or after it lost its disk."""
        if not self.clients:
            return
        client = self.a_client(a)
        if b % 4:
            client.restart(loses_spool=b % 4 == 3)
        self.register(client)

    def register(self, client: FakeClient) -> None:
        profile = {**client.profile, "incarnation": f"i{client.incarnation}" if client.native else ""}
        if client.native:
            profile["spooled"] = [(r.work, r.attempt) for r in client.spool]
        else:
            profile["current_work"] = list(client.running)
        self.both(
            lambda: clients.register(self.state, self.ctx, profile, client.id, client.id),
            lambda: self.reference.register(client.id, profile),
            lambda known: sorted(known.holds),
        )
        self.settle()

    def work(self, a: int, b: int, c: int) -> None:
        """A client does what clients do."""
        if self.clients:
            client = self.a_client(a)
            (self._native if client.native else self._stock)(client, b, c)

    def _native(self, client: FakeClient, b: int, c: int) -> None:
        """Report, renew, fetch; the reply may be lost, then the next one is a repeat or a new one."""
        lost = b % 5 == 4
        if client.last_request and b % 3:
            self.send(client, client.last_request, lost)
            return
        for i in range(b % 4):
            self._end_one(client, c + i, c // 3 + i)
        if b % 8 == 4 and client.running:
            client.drop(next(iter(client.running)))  # it lost track of it
        client.request_id += 1
        request = ExchangeRequest(
            incarnation=f"i{client.incarnation}",
            request_id=client.request_id,
            holds=[(id, attempt) for id, (attempt, _) in client.running.items()],
            reports=list(client.spool),
            want=(1, 2, 3, 4, 8, 0)[c % 6],
            wait_s=0.0,
            free=SMALL if c % 8 == 7 else PLENTY,
            draining=b % 16 == 15,
            leaving=b % 32 == 30,
        )
        client.last_request = request
        self.send(client, request, lost)

    def _stock(self, client: FakeClient, b: int, c: int) -> None:
        """Fetch one workunit, report one, or send a heartbeat; a worker's replies get lost as well."""
        lost = b % 5 == 4
        if b % 4 == 0:
            self._heartbeat(client, says=c % 3 > 0, misses=lost)
        elif client.running:
            self._end_one(client, b, c)
            r = client.spool.pop()
            self._report(client.id, r)
            if lost:
                self._report(client.id, r)
        else:
            self._stock_checkout(client, 10 if c % 10 == 9 else -1, lost)

    def send(self, client: FakeClient, request: ExchangeRequest, lost: bool) -> None:
        """Send an exchange; unless the reply is lost, do what it says."""
        ids = [r.work for r in request.reports]
        known = self.state.clients.get(client.id)
        repeated = known is not None and known.last_request == request.request_id
        earlier = [g for g in known.last_grants if g.is_held] if known else []
        generations = self._generations(ids)
        try:
            reply = self.both(
                lambda: exchange(self.state, self.ctx, client.id, request, self.server.finished(*ids)),
                lambda: self.reference.exchange(client.id, request),
                _told,
            )
        except (ClientNotFound, StaleExchange):
            assert self.unchanged()
            return
        self.reference.tokens(reply.grants)
        for result in reply.results:
            if result["result"] == "accepted":
                self._accepted(WorkunitId(result["work"]), generations)
        may_get = known is not None and known.is_live and not self.state.queue_suspended
        if earlier and repeated and may_get:
            assert reply.grants == earlier, "a repeated request was given other work"
        self.server.history.granted(self.state, [g for g in reply.grants if g not in earlier])
        listed = set() if repeated else set(request.holds)
        given_twice = [g for g in reply.grants if (g.workunit_id, g.attempt) in listed]
        assert not given_twice, f"{given_twice} are listed as held and were given again"
        if not lost:
            client.last_request = None
            client.spool.clear()
            for id, attempt in reply.discard:
                client.drop(id, attempt)
            client.take(reply.grants)
        self.settle(torn_at=request.request_id)

    def _stock_checkout(self, client: FakeClient, available: int, lost: bool) -> None:
        try:
            result = self.both(
                lambda: checkout(self.state, self.ctx, client.id, 1, None, available),
                lambda: self.reference.checkout(client.id, available),
                lambda result: (_granted(result.grants), {} if result.grants else result.skipped),
            )
        except AweError:
            pass
        else:
            self.reference.tokens(result.grants)
            self.server.history.granted(self.state, result.grants)
            assert len(result.grants) <= 1
            if not lost:
                client.take(result.grants)
        self.settle()

    def _heartbeat(self, client: FakeClient, says: bool, misses: bool) -> None:
        holds = list(client.running)[1 if misses else 0 :] if says else None
        try:
            told = self.both(
                lambda: clients.heartbeat(self.state, self.ctx, client.id, holds),
                lambda: self.reference.heartbeat(client.id, holds),
                lambda told: (sorted(told.discard), told.stop),
            )
        except ClientNotFound:
            assert self.unchanged()
            return
        for id in told.discard:
            client.drop(id)
        self.settle()

    def foreign_report(self, a: int, b: int, c: int) -> None:
        """Somebody reports what another client runs, with or without knowing the attempt."""
        busy = [client for client in self.clients if client.running]
        if not busy or len(self.clients) < 2:
            return
        victim = busy[a % len(busy)]
        thief = next(client for client in self.clients if client is not victim)
        attempt = self.an_attempt(victim, b)
        assert attempt is not None
        id, number, token = attempt
        knows = c % 3
        r = _report(id, number if knows else None, (None, "guessed", token)[knows], c)
        holder = self.state.clients.get(victim.id)
        self._report(thief.id, r, foreign=holder is not None and id in holder.holds)

    def stale_report(self, a: int, b: int, c: int) -> None:
        """A report from another time: of any workunit that ever was, of some attempt."""
        stored = sorted(self.server.store.documents["workunits"])
        if stored and self.clients:
            r = _report(WorkunitId(stored[b % len(stored)]), c % 4, "old", c)
            self._report(self.a_client(a).id, r, foreign=True)

    def _report(self, client_id: ClientId, r: Report, foreign: bool = False) -> None:
        generations = self._generations([r.work])
        try:
            result = self.both(
                lambda: report(self.state, self.ctx, client_id, r, self.server.finished(r.work)),
                lambda: self.reference.report(client_id, r),
            )
        except AweError:
            assert self.unchanged()
            return
        assert not (foreign and result == "accepted"), (
            f"{client_id} reported {r.work}, which it does not hold"
        )
        if result == "accepted":
            self._accepted(r.work, generations)
        else:
            assert self.unchanged(), "a duplicate changed something"
        self.settle()

    def _generations(self, ids: list[WorkunitId]) -> dict[WorkunitId, int]:
        return {id: self.state.workunits[id].generation for id in ids if id in self.state.workunits}

    def _accepted(self, id: WorkunitId, generations: dict[WorkunitId, int]) -> None:
        unit = self.state.changes.workunits.get(id)
        if unit is not None and unit.state is WorkunitState.COMPLETED:
            self.server.history.result(id, generations[id])

    def _end_one(self, client: FakeClient, which: int, how: int) -> None:
        """A command ends; its report is spooled."""
        attempt = self.an_attempt(client, which)
        if attempt is not None:
            id, number, token = attempt
            del client.running[id]
            native = client.native
            how = 3 * how if self.moody else how
            client.spool.append(_report(id, number if native else None, token if native else None, how))

    # -- time ------------------------------------------------------------------------------------------------

    def time(self, a: int, b: int, c: int) -> None:
        """Time passes; the server may notice at once or only later."""
        self.pass_s((0.5, 1.0, 2.5, 5.0, 9.0)[a % 5])
        if b % 4:
            self.tick()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds
        self.reference.now = self.now_s
        self.ticked = False

    def tick(self) -> None:
        tick(self.state, self.ctx)
        self.reference.tick()
        self.ticked = True
        self.settle()

    def forget(self, a: int, b: int, c: int) -> None:
        """A job that ended leaves memory."""
        waiting = self.server.to_forget
        if waiting and self.batch is None:
            job_id = waiting.pop(a % len(waiting))
            job = self.state.jobs.get(job_id)
            gone = self.state.forget_job(job_id)
            assert gone == (job is not None and job.state in ENDED_JOBS)
            assert gone == self.reference.forget(job_id)
            self.settle()

    def restart(self, a: int, b: int, c: int) -> None:
        """Kill -9 and start: everybody who waits for nothing but the server goes on."""
        if self.batch is not None:
            return
        self.tick()
        self.server.restart(self.ctx)
        self.reference.restart()
        self.reference.same_order({client.id: client.holds for client in self.state.clients.values()})
        self.settle()

    # -- the end ---------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Repair everything a person would repair; then every job must complete."""
        if self.sound:
            _Repair(self).run()


class _Repair:
    """A person with patience, and one client that can do everything."""

    def __init__(self, machine: SchedulerMachine) -> None:
        self.m = machine
        self.heroes: list[FakeClient] = []

    def run(self) -> None:
        m = self.m
        queue.resume_queue(m.state, m.ctx)
        m.reference.suspended = False
        groups = {g.strip() for group in GROUPS for g in group.split(",")} | {""}
        for group in sorted(groups):
            profile = a_profile(name=f"hero{group}", group=group, cores=64)
            self.heroes.append(FakeClient(ClientId(f"hero-{group}"), True, profile))
            m.register(self.heroes[-1])
        m.settle()
        for _ in range(200):
            if all(job.state in ENDED_JOBS for job in m.state.jobs.values()):
                return
            self._round()
        rows = [
            why_job(m.state, m.ctx, job.id) for job in m.state.jobs.values() if job.state not in ENDED_JOBS
        ]
        raise AssertionError(f"jobs never end: {rows}")

    def _round(self) -> None:
        m = self.m
        for job in list(m.state.jobs.values()):
            if job.state is JobState.SUSPEND:
                jobs.resume_job(m.state, m.ctx, job.id)
                m.reference.resume_job(job.id)
        m.settle("resume")
        while m.server.effects:
            m.effect(0, 0, 3)
        for hero in self.heroes:
            hero.request_id += 1
            hero.spool = [_report(id, attempt, token, 1) for id, (attempt, token) in hero.running.items()]
            hero.running.clear()
            request = ExchangeRequest(
                f"i{hero.incarnation}", hero.request_id, [], list(hero.spool), 10, 0.0, PLENTY, False
            )
            m.send(hero, request, lost=False)
        m.pass_s(1.0)
        m.tick()


def _add_task(document: Any, i: int, spec: dict[str, Any], specs: list[dict[str, Any]]) -> None:
    parents = [k for k in range(i) if spec["parents"] >> k & 1]
    document.task(
        f"t{i}",
        parts=spec["parts"],
        cmd=spec["cmd"],
        clientgroups=spec["group"],
        resources={"cores": spec["cores"]},
        max_failures=spec["max_failures"],
        retry_delay_s=spec["retry_delay_s"],
        skip=spec["skip"],
    )
    makers = [k for k in parents if specs[k]["writes"]]
    document.depends(*(f"t{k}" for k in parents))
    if spec["reads"] == "parent" and makers:
        document.reads(f"out{makers[0]}", origin=f"t{makers[0]}")
    elif spec["reads"] == "node":
        document.reads(f"in{i}")
    if spec["writes"]:
        document.writes(f"out{i}")
    if spec["cut"]:
        document._tasks[-1]["partinfo"] = {"index": spec["cut"]}


def _plain(i: int, spec: dict[str, Any], specs: list[dict[str, Any]]) -> dict[str, Any]:
    """The same task for the reference model."""
    parents = [k for k in range(i) if spec["parents"] >> k & 1]
    makers = [k for k in parents if specs[k]["writes"]]
    reads = spec["reads"] == "node" or (spec["reads"] == "parent" and bool(makers))
    taken = ("writes", "cmd", "group", "cores", "skip", "max_failures", "retry_delay_s")
    return {
        "name": f"t{i}",
        "wanted": spec["parts"],
        "parents": parents,
        "reads": reads,
        "uncut": not reads or spec["cut"] == "none",
        **{key: spec[key] for key in taken},
    }


def _granted(grants: list[Grant]) -> list[tuple[str, int, str]]:
    return [(grant.workunit_id, grant.attempt, grant.part) for grant in grants]


def _told(reply: ExchangeReply) -> dict[str, Any]:
    return {
        "results": [(row["work"], row["attempt"], row["result"]) for row in reply.results],
        "grants": _granted(reply.grants),
        "discard": reply.discard,
        "suspended": reply.suspended,
        "stop": reply.stop,
        "skipped": {} if reply.grants else reply.skipped,
    }


def _facts(task: Task, units: int, unique: str) -> TaskFacts:
    inputs = [InputFact(io["filename"], io["node"] or "node", 1024) for io in (*task.inputs, *task.predata)]
    outputs = [OutputFact(io["filename"], f"{task.name}-{io['filename']}-{unique}") for io in task.outputs]
    kinds = index_candidates(task)
    return TaskFacts(inputs, outputs, kinds[0] if kinds else None, units if kinds else None)


def _report(id: WorkunitId, attempt: int | None, token: str | None, how: int) -> Report:
    """How an attempt ended, from a number: mostly well."""
    outcome, kind, exit_code = "done", None, 0
    if how % 3 == 0:
        outcome, kind, exit_code = "failed", KINDS[how // 3 % len(KINDS)], 1
        if how % 33 == 0:
            kind, exit_code = FailureKind.COMMAND, 42
    elif how % 10 == 7:
        outcome = "released"
    return Report(
        work=id,
        attempt=attempt,
        token=token,
        outcome=outcome,  # type: ignore[arg-type]
        kind=kind,
        exit_code=exit_code,
        signal=None,
        message={"failed": "it hurts", "released": "client restarted"}.get(
            outcome, ""
        ),  # as the server says it
        computetime_s=1.5,
        stdout_tail="",
        stderr_tail="",
        perf={},
        outputs=[],
        ran=how % 2 == 0,  # of kind `node` the command ran; of others it says nothing
    )


def _look(state: State, ctx: Context) -> None:
    counts = queue_counts(state)
    live = [job for job in state.jobs.values() if job.state in ACTIVE_JOBS or job.state is JobState.SUSPEND]
    units = [unit for job in live for task in job.tasks for unit in task.units.values()]
    assert counts["workunits"]["checkout"] == sum(u.state is WorkunitState.CHECKOUT for u in units)
    assert counts["workunits"]["total"] == sum(
        t.remainwork for j in live for t in j.tasks if t.is_cut and not t.is_done
    )
    assert min(min(section.values()) for section in counts.values()) >= 0
    assert counts["clients"]["total"] + counts["clients"]["offline"] == len(state.clients)
    for job in state.jobs.values():
        rows = why_job(state, ctx, job.id)
        assert bool(rows) == (job.state not in (JobState.COMPLETED, JobState.DELETED))
        assert all(row["reason"] for row in rows), rows
        for task in job.tasks:
            is_shown = task.id in [row["id"] for row in rows]
            assert is_shown == (bool(rows) and not task.is_done)
            for rank in range(task.end_rank - task.totalwork if task.is_cut else 0, task.end_rank):
                why_workunit(state, ctx, WorkunitId(f"{task.id}_{rank}"))


TestScheduler = pytest.mark.slow(SchedulerMachine.TestCase)
TestScheduler.settings = settings(
    deadline=None,
    max_examples=5_000 if LONG else 150,
    stateful_step_count=30 if LONG else 20,
    derandomize=not LONG,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
