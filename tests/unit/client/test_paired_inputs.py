"""Paired inputs: an attempt gets its own piece of each."""

import pytest

from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


async def test_each_paired_input_is_cut_at_its_own_bytes(server: FakeServer, start: MakeDaemon) -> None:
    start()
    works = await server.add_task(
        script=["cat r1; echo; cat r2; echo; cat ref"],
        ranks=2,
        grants=[
            {"part": "1-2", "pieces": [(0, 2), (0, 20)]},
            {"part": "3", "pieces": [(2, 4), (20, 0)]},
        ],
        inputs=[
            server.input("ref", b"whole"),
            server.input("r2", b"b" * 20),
            server.input("r1", b"aacccc"),
        ],
        part_inputs=["r1", "r2"],
        index="record",
    )
    texts = [(await server.result(work))["stdout_tail"].split("\n") for work in works]
    assert texts == [["aa", "b" * 20, "whole"], ["cccc", "", "whole"]]
