"""Figure 14: how long an exchange takes while files go up and down through the same server at full speed."""

import argparse
import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event

import uvloop

from tests.bench.harness.figure import Figure, Goal, Row, percentile
from tests.bench.harness.http import Line
from tests.bench.harness.load import SimulatedClient, array, connect, submit
from tests.bench.harness.site import Site

BLOCK_BYTES = 1 << 20
CLIENTS = 8
EVERY_S = 0.08  #: an exchange of each client is due: together about as many as a busy site has
ALONE = 200  #: exchanges without transfers, to compare with

FIGURE = Figure(
    "exchange_under_transfers",
    14,
    "Exchanges of one workunit while 8 transfers of 1 GB (4 up, 4 down, hashed) run at full speed",
    [Goal("exchange p99 while 8 transfers of 1 GB run ≤ 25 ms", "with transfers", "p99_ms", 25.0)],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="of each transfer")
    parser.add_argument("--transfers", type=int, default=8, help="half of them up, half of them down")


def transfer(port: int, node: str, size: int, transfers: int, ready: Event, go: Event) -> None:
    """In a process of its own: all transfers at once, each in a thread."""
    block = os.urandom(BLOCK_BYTES)

    def up() -> None:
        with Line(port) as line:
            line.upload("POST", "/node?file_name=file", block, size)

    def down() -> None:
        with Line(port) as line:
            line.drain(f"/node/{node}?download")

    threads = [threading.Thread(target=down if number % 2 else up) for number in range(transfers)]
    ready.set()
    go.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def exchanges(
    port: int, count: int, others: "multiprocessing.context.SpawnProcess | None"
) -> list[float]:
    """Seconds from when each exchange was due: `count` of them, or as long as the other process lives.

    They are due at fixed moments: what holds up one makes those late that were due meanwhile.
    """
    made = await connect(port, CLIENTS)
    took_s: list[float] = []

    async def live(client: SimulatedClient, due: float) -> None:
        while others.is_alive() if others else len(took_s) < count:
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            await client.exchange(1)
            took_s.append(time.perf_counter() - due)
            due += EVERY_S
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(live(client, began + n * EVERY_S / CLIENTS) for n, client in enumerate(made)))
    return took_s


def row(case: str, took_s: list[float]) -> Row:
    return {
        "case": case,
        "exchanges": len(took_s),
        "p50_ms": percentile(took_s, 50) * 1e3,
        "p99_ms": percentile(took_s, 99) * 1e3,
        "max_ms": max(took_s) * 1e3,
    }


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    context = multiprocessing.get_context("spawn")
    with Site() as site, Line(site.port) as line:
        node = line.upload("POST", "/node?file_name=file", os.urandom(BLOCK_BYTES), options.bytes)["id"]
        submit(site.port, array(1_000_000))
        yield row("alone", uvloop.run(exchanges(site.port, ALONE, None)))
        ready, go = context.Event(), context.Event()
        others = context.Process(
            target=transfer, args=(site.port, node, options.bytes, options.transfers, ready, go), daemon=True
        )
        others.start()
        if not ready.wait(60.0):
            raise RuntimeError("the transfers did not begin")
        began = time.perf_counter()
        go.set()
        found = row("with transfers", uvloop.run(exchanges(site.port, 0, others)))
        others.join()
        moved = options.bytes * options.transfers
        if others.exitcode:
            raise RuntimeError("a transfer failed")
        yield {**found, "transfers_mb_per_s": moved / (time.perf_counter() - began) / 1e6}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
