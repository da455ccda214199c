"""One scan in a process of its own: a request on stdin, an answer on stdout, both one JSON object in a line.

stdin stays open while the server lives: when it closes, the process ends, however the server ended.
Run as `python -m awe_server.data.worker` by builder.py.
"""

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from awe_server.data.build import build_index
from awe_server.data.ports import IndexFact, Unreadable
from awe_server.data.sources.facts import (
    NoRanges,
    Place,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
)
from shared_models.errors import AweError, InvalidData, NoSpace, NotCuttable

#: What a scan may refuse; the server raises the same again.
REFUSALS: dict[str, type[Exception]] = {
    "invalid_data": InvalidData,
    "not_cuttable": NotCuttable,
    "no_space": NoSpace,
    "unreadable": Unreadable,
    "file_not_found": FileNotFoundError,
    **{
        error.code: error
        for error in (NoRanges, SourceChanged, SourceMissing, SourceRefused, SourceUnreachable)
    },
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked for: the fields of the fact, or `refused` and the refusal's fields."""
    try:
        place = request.get("place")
        source = place and Place(**{**place, "roots": tuple(place["roots"])})
        return asdict(build_index(Path(request["blob"]), request["kind"], request["name"], source))
    except FileNotFoundError:
        return {"refused": "file_not_found", "fields": {}}
    except AweError as exc:
        if exc.code not in REFUSALS:
            raise
        return {"refused": exc.code, "fields": exc.fields}


def read_answer(line: bytes) -> IndexFact:
    """The fact. Raises the refusal; ValueError if there is no answer."""
    reply = json.loads(line)
    if "refused" in reply:
        raise REFUSALS[reply["refused"]](**reply["fields"])
    return IndexFact(**reply)


def main() -> None:
    """Serve one request, at a lower priority than the server's."""
    os.nice(5)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    print(json.dumps(answer(request)))


def _end_with_the_server() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    main()
