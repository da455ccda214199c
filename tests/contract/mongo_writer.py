"""A process to be killed: holds the writer's lease of a MongoDB database and says so on stdout."""

import asyncio
import sys

from awe_server.store.base import Put
from awe_server.store.mongo import MongoStore


async def hold(url: str) -> None:
    """Become the writer, write, and wait to be killed."""
    store = MongoStore(url)
    await store.open()
    await store.commit([Put("jobs", {"id": "j"})])
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1]))
