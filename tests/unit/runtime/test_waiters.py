"""Long-polls: woken when there is reason to, a few at a time, never in vain for ever."""

import asyncio

import pytest

from awe_server.runtime.waiters import FIRST_WAVE, Waiters
from awe_server.scheduler.demands import Demand
from awe_server.scheduler.state import Client, Job, State
from shared_models.ids import ClientId, JobId
from shared_models.states import JobState
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


class Farm:
    """Clients and demands without any job: `offer` says how many tasks of a demand have work."""

    def __init__(self, clients: int = 0) -> None:
        self.state = State()
        self.waiters = Waiters(lambda: self.state)
        self.woken: list[ClientId] = []
        self.stock: dict[Demand, int] = {}  #: what the woken take
        for number in range(clients):
            self.add_client(f"c{number}")

    def add_client(self, name: str, group: str = "default") -> ClientId:
        client = Client(ClientId(name))
        client.group, client.apps, client.cores = group, ("*",), 4
        self.state.clients[client.id] = client
        return client.id

    def demand(self, group: str = "", cores: int = 1) -> Demand:
        key = (frozenset({group} if group else ()), "app", cores, 0, 0, 0, False, False, frozenset())
        demand = self.state.demands[key] = Demand(key)
        self.state.demand_list.append(demand)
        return demand

    def offer(self, demand: Demand, count: int = 1) -> None:
        demand.listed = 1
        self.waiters.appeared({demand: count})

    async def wait(self, client_id: ClientId, timeout_s: float = 5.0) -> bool:
        woken = await self.waiters.work(client_id, timeout_s)
        if woken:
            self.woken.append(client_id)
            for demand in self.stock:
                self.stock[demand] -= 1
                demand.listed = int(self.stock[demand] > 0)
        return woken

    async def all_wait(self) -> list[asyncio.Task[bool]]:
        tasks = [asyncio.create_task(self.wait(id)) for id in self.state.clients]
        await eventually(lambda: self.waiters.counts[0] == len(tasks))
        return tasks


async def finish(tasks: list[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_workunit_wakes_one_of_ten_thousand_clients() -> None:
    farm = Farm(10_000)
    demand = farm.demand()
    tasks = await farm.all_wait()
    farm.stock[demand] = 1
    farm.offer(demand)
    await eventually(lambda: len(farm.woken) >= 1)
    await asyncio.sleep(0.02)
    assert farm.woken == [ClientId("c0")], "the one that waited longest"
    await finish(tasks)


async def test_work_that_the_woken_do_not_take_wakes_the_next() -> None:
    farm = Farm(100)
    demand = farm.demand()
    tasks = await farm.all_wait()
    farm.offer(demand)
    await eventually(lambda: len(farm.woken) == 100)
    assert len(set(farm.woken)) == 100, "nobody twice"
    await finish(tasks)


async def test_many_workunits_wake_a_first_wave_at_once() -> None:
    farm = Farm(100)
    demand = farm.demand()
    tasks = await farm.all_wait()
    farm.offer(demand, 1000)
    demand.listed = 0
    await eventually(lambda: len(farm.woken) == FIRST_WAVE)
    await finish(tasks)


async def test_clients_that_can_never_run_it_sleep_on() -> None:
    farm = Farm(5)
    big = farm.add_client("big", group="big")
    tasks = await farm.all_wait()
    farm.offer(farm.demand(group="big"))  # newer than the waits
    await eventually(lambda: farm.woken == [big])
    farm.offer(farm.demand(cores=64))
    await asyncio.sleep(0.01)
    assert farm.woken == [big]
    await finish(tasks)


async def test_work_that_appeared_between_asking_and_waiting_is_not_missed() -> None:
    farm = Farm(1)
    demand = farm.demand()
    farm.offer(demand)
    assert await farm.wait(ClientId("c0"), 0.5)


async def test_a_client_that_cannot_take_what_is_there_is_woken_once_for_it() -> None:
    farm = Farm(1)
    demand = farm.demand()
    farm.offer(demand)
    assert await farm.wait(ClientId("c0"), 0.5)
    assert not await farm.wait(ClientId("c0"), 0.05), "it has asked already"
    farm.offer(demand)
    assert await farm.wait(ClientId("c0"), 0.5)


async def test_a_newer_wait_ends_the_older_one() -> None:
    farm = Farm(1)
    older = asyncio.create_task(farm.wait(ClientId("c0")))
    await eventually(lambda: farm.waiters.counts[0] == 1)
    newer = asyncio.create_task(farm.wait(ClientId("c0")))
    assert await older is False
    farm.waiters.supersede(ClientId("c0"))
    assert await newer is False
    assert farm.waiters.counts == (0, 0)


async def test_what_a_client_must_hear_wakes_it_also_if_it_was_not_waiting_yet() -> None:
    farm = Farm(1)
    waiting = asyncio.create_task(farm.wait(ClientId("c0")))
    await eventually(lambda: farm.waiters.counts[0] == 1)
    farm.waiters.tell([ClientId("c0")])
    assert await waiting
    farm.waiters.tell([ClientId("c0")])
    assert await farm.wait(ClientId("c0"))
    assert not await farm.wait(ClientId("c0"), 0.02)


async def test_readers_of_a_job_wake_when_it_changes_and_not_for_others() -> None:
    farm = Farm()
    reader = asyncio.create_task(farm.waiters.job(JobId("j"), 3, 5.0))
    await eventually(lambda: farm.waiters.counts[1] == 1)
    farm.waiters.revised([JobId("other")])
    await asyncio.sleep(0)
    assert not reader.done()
    farm.waiters.revised([JobId("j")])
    assert await reader
    assert not await farm.waiters.job(JobId("j"), 3, 0.01)
    assert farm.waiters.counts == (0, 0)


async def test_who_waits_for_the_end_of_a_job_sleeps_through_its_other_changes() -> None:
    farm = Farm()
    job = Job(JobId("j"), 1, {}, {})
    farm.state.jobs[job.id] = job
    reader = asyncio.create_task(farm.waiters.job_end(job.id, 5.0))
    await eventually(lambda: farm.waiters.counts[1] == 1)
    farm.waiters.revised([job.id])
    await asyncio.sleep(0)
    assert not reader.done()
    job.state = JobState.SUSPEND
    farm.waiters.revised([job.id])
    assert await reader
    assert await farm.waiters.job_end(job.id, 5.0)
    assert farm.waiters.counts == (0, 0)


async def test_closing_ends_every_wait() -> None:
    farm = Farm(3)
    tasks = await farm.all_wait()
    reader = asyncio.create_task(farm.waiters.job(JobId("j"), 0, 5.0))
    other = asyncio.create_task(farm.waiters.job_end(JobId("j"), 5.0))
    await asyncio.sleep(0)
    farm.waiters.close()
    assert await asyncio.gather(*tasks, reader, other) == [False] * 5
    assert not await farm.wait(ClientId("c0"))
