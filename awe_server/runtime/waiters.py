"""Who waits for what: clients for work, readers for a job's next revision.

A workunit that appears wakes as many waiting clients as could take it, longest wait first, not all of them.
A woken client may take nothing (its skip list, its free cores), so while the demand still has work the next
few are woken, twice as many each time. Nobody is woken twice for the same appearance.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from awe_server.scheduler.demands import Demand, eligible_demands, unfit
from awe_server.scheduler.state import ACTIVE_JOBS, State
from shared_models.errors import ShuttingDown, Unavailable
from shared_models.ids import ClientId, JobId

MAX_WORK_WAITS: Final = 50_000
MAX_JOB_WAITS: Final = 20_000
FIRST_WAVE: Final = 16  #: clients woken at once for one demand
WAVE_PAUSE_S: Final = 0.002  #: time for those woken to take what they want

_Future = asyncio.Future[bool]


class _Wait:
    """One client's long-poll."""

    __slots__ = ("demands", "for_work", "future")

    def __init__(self, future: _Future, demands: list[Demand], for_work: bool) -> None:
        self.future = future
        self.demands = demands
        self.for_work = for_work


class Waiters:
    """Long-polls in progress."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._closed = False
        self._clients: dict[ClientId, _Wait] = {}
        self._by_demand: dict[Demand, dict[ClientId, None]] = {}
        self._version = 0  #: grows whenever work appears
        self._appeared: dict[Demand, int] = {}  #: version of the last appearance
        self._tried: dict[ClientId, int] = {}  #: version up to which a client has asked
        self._told: set[ClientId] = set()  #: were told something while they did not wait
        self._chains: set[Demand] = set()  #: demands that will be looked at again soon
        self._jobs: dict[JobId, set[_Future]] = {}  #: readers that wait for any change
        self._ends: dict[JobId, set[_Future]] = {}  #: readers that wait for the end
        self._job_waits = 0

    # -- clients ---------------------------------------------------------------------------------------------

    async def work(self, client_id: ClientId, timeout_s: float, *, for_work: bool = True) -> bool:
        """Wait until work may have appeared for this client, or there is something it must hear.

        True = ask again; False = the time is over, a newer request of the client took over (`supersede`), or
        the server stops. `for_work=False` waits only for what it must hear.
        """
        self.supersede(client_id)
        if self._closed or timeout_s <= 0 or len(self._clients) >= MAX_WORK_WAITS:
            return False
        demands = self._eligible(client_id) if for_work else []
        if client_id in self._told or self._is_new(client_id, demands):
            self._told.discard(client_id)
            self._tried[client_id] = self._version
            return True
        wait = _Wait(asyncio.get_running_loop().create_future(), demands, for_work)
        self._clients[client_id] = wait
        for demand in demands:
            self._waiting(demand)[client_id] = None
        try:
            async with asyncio.timeout(timeout_s):
                return await wait.future
        except TimeoutError:
            return False
        finally:
            self._leave(client_id, wait)

    def supersede(self, client_id: ClientId) -> None:
        """End this client's present wait: a newer exchange has come."""
        self._end(client_id, False)

    def appeared(self, work: Mapping[Demand, int]) -> None:
        """Workunits appeared: wake some of those who may want them."""
        if not work:
            return
        self._version += 1
        for demand, count in work.items():
            self._appeared[demand] = self._version
            self._wave(demand, min(count, FIRST_WAVE))
        demands = self._state().demand_list
        if len(self._appeared) > 2 * len(demands) + 1000:
            self._appeared = {demand: self._appeared.get(demand, 0) for demand in demands}
            self._by_demand = {d: waiting for d, waiting in self._by_demand.items() if d in self._appeared}

    def tell(self, clients: Iterable[ClientId]) -> None:
        """There is something these clients must hear now."""
        for client_id in clients:
            if client_id in self._clients:
                self._end(client_id, True)
            else:
                self._told.add(client_id)  # it may be just about to wait

    def forget(self, client_id: ClientId) -> None:
        """The client is gone."""
        self._end(client_id, False)
        self._tried.pop(client_id, None)
        self._told.discard(client_id)

    def reset(self) -> None:
        """The state was read anew: everyone asks again."""
        self.tell(list(self._clients))
        self._by_demand.clear()
        self._appeared.clear()
        self._told.clear()

    def _eligible(self, client_id: ClientId) -> list[Demand]:
        state = self._state()
        client = state.clients.get(client_id)
        return [] if client is None else list(eligible_demands(state, client))

    def _is_new(self, client_id: ClientId, demands: list[Demand]) -> bool:
        """Whether work appeared, and is there, that the client has not asked about."""
        tried = self._tried.get(client_id, 0)
        return any(demand.listed and self._appeared.get(demand, 0) > tried for demand in demands)

    def _waiting(self, demand: Demand) -> dict[ClientId, None]:
        """Who waits for the demand; one that is newer than some waits is compared with their clients once."""
        waiting = self._by_demand.get(demand)
        if waiting is None:
            waiting = self._by_demand[demand] = {}
            clients = self._state().clients
            for client_id, wait in self._clients.items():
                client = clients.get(client_id)
                if wait.for_work and client is not None and unfit(demand, client) is None:
                    waiting[client_id] = None
                    if demand not in wait.demands:
                        wait.demands.append(demand)
        return waiting

    def _wave(self, demand: Demand, most: int) -> None:
        """Wake up to `most` clients that have not asked since; look again soon whether more are needed."""
        waiting = self._waiting(demand)
        if not waiting or not demand.listed:
            return
        appeared = self._appeared.get(demand, 0)
        untried = (client_id for client_id in waiting if self._tried.get(client_id, 0) < appeared)
        chosen = list(islice(untried, most))
        for client_id in chosen:
            self._tried[client_id] = self._version
            self._end(client_id, True)
        if chosen and demand not in self._chains:
            self._chains.add(demand)
            asyncio.get_running_loop().call_later(WAVE_PAUSE_S, self._next_wave, demand, 2 * most)

    def _next_wave(self, demand: Demand, most: int) -> None:
        self._chains.discard(demand)
        self._wave(demand, most)

    def _end(self, client_id: ClientId, outcome: bool) -> None:
        wait = self._clients.get(client_id)
        if wait is not None:
            self._leave(client_id, wait)
            if not wait.future.done():
                wait.future.set_result(outcome)

    def _leave(self, client_id: ClientId, wait: _Wait) -> None:
        if self._clients.get(client_id) is not wait:
            return
        del self._clients[client_id]
        for demand in wait.demands:
            if demand in self._by_demand:
                self._by_demand[demand].pop(client_id, None)

    # -- readers of jobs -------------------------------------------------------------------------------------

    async def job(self, job_id: JobId, revision: int, timeout_s: float) -> bool:
        """Wait until the job's revision differs from this one; False when the time is over.

        Reading the job then waits until what it shows is durable. Raises ShuttingDown, or Unavailable when
        too many wait.
        """
        job = self._state().jobs.get(job_id)
        if job is not None and job.revision != revision:
            return True
        return await self._read(self._jobs, job_id, timeout_s)

    async def job_end(self, job_id: JobId, timeout_s: float) -> bool:
        """Wait until the job has ended or is suspended; as `job`, but no other change wakes the reader."""
        job = self._state().jobs.get(job_id)
        if job is not None and job.state not in ACTIVE_JOBS:
            return True
        return await self._read(self._ends, job_id, timeout_s)

    async def _read(self, readers: dict[JobId, set[_Future]], job_id: JobId, timeout_s: float) -> bool:
        if self._closed:
            raise ShuttingDown()
        if self._job_waits >= MAX_JOB_WAITS:
            raise Unavailable("too many requests wait for jobs to change; ask without wait_s")
        future: _Future = asyncio.get_running_loop().create_future()
        readers.setdefault(job_id, set()).add(future)
        self._job_waits += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return False
        finally:
            self._job_waits -= 1
            futures = readers.get(job_id)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del readers[job_id]

    def revised(self, jobs: Iterable[JobId]) -> None:
        """These jobs changed, durably."""
        for job_id in jobs:
            _wake(self._jobs.get(job_id, ()), True)
            if job_id in self._ends:
                job = self._state().jobs.get(job_id)
                if job is None or job.state not in ACTIVE_JOBS:
                    _wake(self._ends[job_id], True)

    def close(self) -> None:
        """End every wait: the server stops."""
        self._closed = True
        for client_id in list(self._clients):
            self._end(client_id, False)
        for futures in (*self._jobs.values(), *self._ends.values()):
            _wake(futures, False)

    @property
    def counts(self) -> tuple[int, int]:
        """Waiting clients and waiting readers, for metrics."""
        return len(self._clients), self._job_waits


def _wake(futures: Iterable[_Future], outcome: bool) -> None:
    for future in futures:
        if not future.done():
            future.set_result(outcome)
