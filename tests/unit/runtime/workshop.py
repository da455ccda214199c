"""An engine over a faulty store, and the few transitions that the tests of this room use."""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson

from awe_server.runtime.clock import Clock
from awe_server.runtime.engine import Engine
from awe_server.scheduler.clients import register
from awe_server.scheduler.exchange import ExchangeReply, exchange
from awe_server.scheduler.state import Effect, State
from awe_server.scheduler.submit import submit_job
from awe_server.settings import Settings
from shared_models.ids import ClientId, JobId, WorkunitId
from shared_models.messages import check_exchange
from shared_models.parse import parse_job_document
from tests.support.faulty import FaultyStore

CLIENT = ClientId("11111111-1111-4111-8111-111111111111")


@dataclass
class Hands:
    """Clock hands that the test moves."""

    monotonic_s: float = 1000.0
    wall_s: float = 1_800_000_000.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.monotonic_s, lambda: self.wall_s)


@dataclass
class RecordedDuties:
    """Takes effects and does nothing with them."""

    begun: list[Effect] = field(default_factory=list)
    abandoned: int = 0
    troubles: dict[str, str] = field(default_factory=dict)

    async def start(self) -> None:
        """Nothing goes on by itself."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def begin(self, effects: Any) -> None:
        self.begun += effects

    def abandon(self) -> None:
        self.abandoned += 1
        self.begun.clear()


class Workshop:
    """One engine; `again()` is a restart on the same store."""

    def __init__(self, store: FaultyStore | None = None, hands: Hands | None = None, **settings: Any) -> None:
        self.store = store or FaultyStore()
        self.hands = hands or Hands()
        self.duties = RecordedDuties()
        self.fatal: list[BaseException] = []
        self.options = settings
        self.engine = Engine(self.store, Settings(**settings), self.hands.clock, self.fatal.append)
        self.engine.attach(self.duties)
        self.request_id = 0

    async def start(self) -> "Workshop":
        await self.engine.start()
        return self

    async def again(self, *, crash: bool = False) -> "Workshop":
        """Stop (or drop) this engine and start another on what the store kept."""
        if crash:
            await abandon(self.engine)
        else:
            await self.engine.stop()
        return await Workshop(self.store, self.hands, **self.options).start()

    async def submit(self, *tasks: dict[str, Any], key: str = "", **info: Any) -> JobId:
        document = parse_job_document(orjson.dumps({"info": {"name": "t", **info}, "tasks": list(tasks)}))
        job = await self.engine.do(
            submit_job, document, job_id=JobId(str(uuid.uuid4())), owner="", idempotency_key=key
        )
        return job.id

    async def register(self) -> None:
        profile = {
            "name": "c", "group": "default", "apps": ["*"], "cores": 64, "memory_bytes": 2**40,
            "disk_bytes": 2**40, "native": True, "incarnation": "one",
        }  # fmt: skip
        await self.engine.do(register, profile, CLIENT, CLIENT)

    async def exchange(
        self, want: int = 0, holds: Any = (), reports: Any = (), wait_s: float = 0.0
    ) -> ExchangeReply:
        self.request_id += 1
        x = check_exchange({
            "incarnation": "one", "request_id": self.request_id, "holds": [list(h) for h in holds],
            "reports": list(reports), "want": want, "wait_s": wait_s,
        })  # fmt: skip
        finished = await self.engine.finished([WorkunitId(r.work) for r in x.reports])
        return await self.engine.do(exchange, CLIENT, x, finished)

    async def fetch(self, want: int = 1, holds: Any = ()) -> list[Any]:
        return (await self.exchange(want, holds)).grants


def done(grant: Any) -> dict[str, Any]:
    """The report of a success."""
    unit = grant.unit
    return {"work": unit.id, "attempt": grant.attempt, "token": grant.token, "outcome": "done"}


async def abandon(engine: Engine) -> None:
    """Let an engine vanish as a kill would: whatever is not durable is gone."""
    engine.close()
    writer = engine._writer
    assert writer is not None
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)


def task(name: str = "0", **keys: Any) -> dict[str, Any]:
    """A task without files."""
    return {"taskid": name, "cmd": {"name": "true"}, **keys}


def shape(state: State) -> dict[str, Any]:
    """Where everything stands, to compare before and after."""
    return {
        "jobs": {job.id: job.state.value for job in state.jobs.values()},
        "tasks": {t.id: (t.state.value, t.remainwork, t.fresh_rank) for t in state.tasks.values()},
        "workunits": {u.id: (u.state.value, u.attempt, u.token) for u in state.workunits.values()},
    }
