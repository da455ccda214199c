"""Look at the indexes of files elsewhere while no server runs.

What is wrong with one costs nothing: it is built again when it is needed. One that nobody needs any more is
no fault: the server removes it by and by.
"""

import os
import re
from pathlib import Path

from awe_server.data.check import Problem, Report
from awe_server.data.files import TEMPORARY_PREFIX, walk
from awe_server.data.indexes import OUTDATED, index_problem

_NAME = re.compile(r"[0-9a-f]{64}\.(?:line|record|chunkrecord)\.idx")


def check_indexes(report: Report, root: Path, nodes: Path) -> None:
    """Read every index file below `root` and report what is wrong; the report's paths begin at `nodes`."""
    for path in sorted(Path(entry.path) for entry in walk(root)):
        shown = os.path.relpath(path, nodes)
        if path.name.startswith(TEMPORARY_PREFIX):
            report.problems.append(Problem("temporary", shown, "", "an index whose making was broken off"))
        elif not _NAME.fullmatch(path.name):
            report.problems.append(Problem("orphan_index", shown, "", "is not called as an index is"))
        else:
            report.indexes += 1
            try:
                problem = index_problem(path)
            except OSError as exc:
                report.problems.append(Problem("unreadable", shown, "", exc.strerror or str(exc)))
                continue
            if problem == OUTDATED:
                report.outdated += 1
            elif problem:
                report.problems.append(Problem("damaged_index", shown, "", problem))
