"""A process to be killed: holds the writer's lease of a MongoDB database and says so on stdout.

Told `in-transaction` as well, it is in the middle of one that has renewed the lease.
"""

import asyncio
import sys

from awe_server.store.base import Put
from awe_server.store.mongo import MongoStore


async def hold(url: str, *, in_transaction: bool) -> None:
    """Become the writer, write, and wait to be killed."""
    store = MongoStore(url)
    await store.open()
    await store.commit([Put("jobs", {"id": "j"})])
    if in_transaction:
        async with store.transaction() as session:
            await store._opened_lease().renew(session)
            await say_ready()
    await say_ready()


async def say_ready() -> None:
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], in_transaction=sys.argv[2:] == ["in-transaction"]))
