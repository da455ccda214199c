"""Job documents for crash tests."""

from typing import Any

Document = dict[str, Any]


def plain(name: str, tasks: int = 1, width: int = 1) -> Document:
    """A chain of tasks without files, each an array of `width` workunits."""
    return {
        "info": {"name": name},
        "tasks": [
            {
                "taskid": str(i),
                "cmd": {"name": "true"},
                "totalwork": width,
                "dependsOn": [str(i - 1)] if i else [],
            }
            for i in range(tasks)
        ],
    }


def split(node: str, parts: int) -> Document:
    """One task that is cut by lines, with one merged output."""
    return {
        "info": {"name": "split"},
        "tasks": [
            {
                "taskid": "0",
                "cmd": {"name": "cat", "args": "@in.txt"},
                "inputs": [{"filename": "in.txt", "node": node}],
                "outputs": [{"filename": "out.txt"}],
                "totalwork": parts,
                "partinfo": {"input": "in.txt", "index": "line"},
            }
        ],
    }
