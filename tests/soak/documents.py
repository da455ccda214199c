"""Job documents of a soak: every one has outputs whose content is known before."""

import random
from typing import Any

Document = dict[str, Any]

FAKE, REAL = "default", "real"  #: client groups


def lines(rng: random.Random) -> bytes:
    """A small input."""
    return b"".join(b"%08x %d\n" % (rng.getrandbits(32), i) for i in range(rng.randint(10, 300)))


def chain(rng: random.Random) -> Document:
    """Tasks without files, one after the other, each with a few workunits."""
    tasks: list[Document] = []
    for i in range(rng.randint(1, 3)):
        tasks.append(
            {
                "taskid": str(i), "cmd": {"name": "true"}, "totalwork": rng.randint(1, 4),
                "dependsOn": [str(i - 1)] if i else [],
            }
        )  # fmt: skip
    return {"info": {"name": "chain", "clientgroups": FAKE}, "tasks": tasks}


def copies(rng: random.Random, node: str, group: str = FAKE) -> Document:
    """A file is copied in parts, merged, and copied again: each output is the input."""
    return {
        "info": {"name": f"copies {group}", "clientgroups": group},
        "tasks": [
            {
                "taskid": "parts",
                "cmd": {"name": "cat", "args": "@in.txt", "stdout": "out.txt"},
                "inputs": [{"filename": "in.txt", "node": node}],
                "outputs": [{"filename": "out.txt"}],
                "totalwork": rng.randint(2, 6),
                "partinfo": {"input": "in.txt", "index": "line"},
            },
            {
                "taskid": "whole",
                "cmd": {"name": "cat", "args": "@out.txt", "stdout": "again.txt"},
                "inputs": [{"filename": "out.txt", "origin": "parts"}],
                "outputs": [{"filename": "again.txt"}],
                "dependsOn": ["parts"],
            },
        ],
    }
