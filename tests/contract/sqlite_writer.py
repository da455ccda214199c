"""A process to be killed: commits batches for ever and says on stdout which it was told are durable."""

import asyncio
import os
import sys
from pathlib import Path

from awe_server.store.base import Operation, Put
from awe_server.store.sqlite import SqliteStore

BATCH = 20


def batch(number: int) -> list[Operation]:
    """Twenty new workunits, and a job document that tells which batch was last."""
    units: list[Operation] = [
        Put(
            "workunits",
            {"id": f"w{number:06}_{n:02}", "taskid": f"t{number}", "state": "checkout", "pad": "x" * 900},
        )
        for n in range(BATCH)
    ]
    return [*units, Put("jobs", {"id": "job", "state": "in-progress", "last": number})]


async def write(folder: Path, first: int) -> None:
    """Commit batch after batch until killed."""
    store = SqliteStore(folder)
    await store.open()
    if "--fork" in sys.argv and os.fork() == 0:
        if "--exec" in sys.argv:
            os.execvp("cat", ["cat"])
        os.read(0, 1)
        os._exit(0)
    for number in range(first, 10**9):
        await store.commit(batch(number))
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
