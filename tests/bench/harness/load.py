"""Simulated clients: they do what the wire contract says and compute nothing."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

from tests.bench.harness.http import AsyncLine, Line

#: What a real client says of a short command.
PERF = {"cpu_user_s": 0.000412, "cpu_system_s": 0.000731, "peak_memory_bytes": 1_703_936}
FREE = {"cores": 1_000_000, "memory_bytes": 2**50, "disk_bytes": 2**50, "gpus": 0}


class SimulatedClient:
    """One client on one connection: reports all that it holds, and asks for a batch, in each exchange."""

    def __init__(self, line: AsyncLine, group: str = "default") -> None:
        self._line = line
        self.id, self._incarnation = str(uuid.uuid4()), uuid.uuid4().hex
        self._group = group
        self._requests = 0
        self._held: list[tuple[str, int, str]] = []
        self.done = 0

    async def register(self) -> None:
        profile = {
            **{key: value for key, value in FREE.items() if key != "gpus"},
            "id": self.id, "name": "simulated", "group": self._group, "apps": ["*"], "native": True,
            "incarnation": self._incarnation,
        }  # fmt: skip
        self.id = (await self._line.call("POST", "/client", profile))["id"]

    async def exchange(self, want: int, wait_s: float = 0.0) -> int:
        """Report what is held, take up to `want`; how many came."""
        self._requests += 1
        reports: list[dict[str, Any]] = [
            {
                "work": work, "attempt": attempt, "token": token, "outcome": "done", "exit_code": 0,
                "signal": None, "computetime_s": 0.0011, "stdout_tail": "", "stderr_tail": "", "perf": PERF,
                "outputs": [],
            }
            for work, attempt, token in self._held
        ]  # fmt: skip
        body = {
            "incarnation": self._incarnation, "request_id": self._requests, "free": FREE,
            "holds": [(work, attempt) for work, attempt, _ in self._held], "reports": reports,
            "want": want, "wait_s": wait_s,
        }  # fmt: skip
        data = await self._line.call("POST", f"/client/{self.id}/exchange", body)
        self.done += sum(result["result"] == "accepted" for result in data["results"])
        self._held = [(f"{g['task']}_{g['rank']}", g["attempt"], g["token"]) for g in data["work"]]
        return len(self._held)

    async def work_off(self, batch: int) -> None:
        """Until nothing comes any more and all is reported."""
        while await self.exchange(batch):
            pass

    def close(self) -> None:
        self._line.close()


def array(count: int, group: str = "") -> dict[str, Any]:
    """A job of one task, so many times /bin/true without files; only for clients of the group, if given."""
    return {
        "info": {"name": "bench", "clientgroups": group},
        "tasks": [{"taskid": "only", "cmd": {"name": "/bin/true"}, "totalwork": count}],
    }


def submit(port: int, document: dict[str, Any]) -> str:
    """Submit a job over a connection of its own; its id."""
    with Line(port) as line:
        return str(line.call("POST", "/job", document)["id"])


async def connect(port: int, clients: int, groups: Sequence[str] = ("default",)) -> list[SimulatedClient]:
    """So many clients, registered; the groups take turns."""
    made = [
        SimulatedClient(await AsyncLine.open(port), groups[number % len(groups)]) for number in range(clients)
    ]
    for client in made:
        await client.register()
    return made


async def _work_off(
    port: int, clients: int, batch: int, count: int, jobs: int, cpu_s: Callable[[], float]
) -> tuple[float, float]:
    made, line = await connect(port, clients), await AsyncLine.open(port)
    await line.call("POST", "/job", array(clients * batch))  # what is slow once is no cost of a workunit
    await asyncio.gather(*(client.work_off(batch) for client in made))
    used_s, began = cpu_s(), time.perf_counter()
    for _ in range(jobs):
        await line.call("POST", "/job", array(count))
        await asyncio.gather(*(client.work_off(batch) for client in made))
    took_s, used_s = time.perf_counter() - began, cpu_s() - used_s
    done = sum(client.done for client in made) - clients * batch
    assert done == count * jobs, f"{done} of {count * jobs} were accepted"
    line.close()
    for client in made:
        client.close()
    return took_s, used_s


def work_off(
    port: int, clients: int, batch: int, count: int, *, cpu_s: Callable[[], float], jobs: int = 1
) -> tuple[float, float]:
    """Let simulated clients do jobs of `count` workunits, one job after the other.

    Seconds from the first submission to the last report, and by how much `cpu_s` grew meanwhile. The clients
    are registered and warm: each has done a batch before.
    """
    return uvloop.run(_work_off(port, clients, batch, count, jobs, cpu_s))
