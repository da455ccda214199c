"""The end of a soak: everything is worked off, and what came out is looked at."""

import asyncio
import time

from tests.soak.people import open_jobs
from tests.soak.world import Line, World

LOOKED_AT = 200  #: jobs whose outputs are read
WORKED_OFF_S = 240.0  #: by then nothing is open any more, on a busy machine


async def work_off(world: World, line: Line) -> None:
    """Resume whatever was suspended, until nothing is open and nobody holds anything."""
    deadline_s = time.monotonic() + WORKED_OFF_S
    while await open_jobs(line, suspended=True):
        for path in ("/queue?resume", "/client?resumeall", "/job?resumeall"):
            await line.data("PUT", path)
        if time.monotonic() > deadline_s:
            stuck = await line.data(
                "GET", "/job?verbosity=minimal&limit=5&state=init,queued,in-progress,suspend"
            )
            why = [await line.data("GET", f"/job/{job['id']}?why") for job in stuck]
            raise AssertionError(f"{await open_jobs(line, suspended=True)} jobs are stuck: {why}")
        await asyncio.sleep(1)
    leased = await line.data("GET", "/work?state=checkout&limit=5")
    assert not leased, f"leases are left: {leased}"


async def count_jobs(world: World, line: Line) -> None:
    """How the acknowledged jobs ended. Each is stored, or was to go: expired, or deleted entirely."""
    left = len(world.jobs)
    for state in ("completed", "deleted", "failed-permanent"):
        reply = await line.insist("GET", f"/job?verbosity=minimal&limit=1&state={state}")
        count = int(reply.json()["total_count"])
        world.counts[f"jobs {state} and stored"] = count
        left -= count
    world.counts["jobs ended and gone"] = left


async def look_at_outputs(world: World, line: Line) -> None:
    """Outputs of the last jobs are what they have to be."""
    for id, content in list(world.jobs.items())[-LOOKED_AT:]:
        reply = await line.insist("GET", f"/job/{id}")
        if not content or not reply.is_success or reply.json()["data"]["state"] != "completed":
            continue
        for task in reply.json()["data"]["tasks"]:
            [output] = task["outputs"]
            file = await line.insist("GET", f"/node/{output['node']}?download")
            if file.status_code == 404 and (await line.insist("GET", f"/job/{id}")).status_code == 404:
                break  # its time had come just now
            if file.content != content:
                world.problem(f"output {output['filename']} of job {id} is not its input: {file.status_code}")
        world.counts["jobs whose outputs were read"] += 1
