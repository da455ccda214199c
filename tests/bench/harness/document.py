"""Writes docs/benchmarks.md: the table of goals, what each side keeps, the method, and all medians."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.bench.harness.figure import Table

HEAD = """# Benchmarks

Written by `make bench`, which runs everything here anew: our own server and client, the limit of the
machine, and the peers, one after the other. One figure alone: `python -m tests.bench.NAME`, with `--help`
for its options.
"""

METHOD = """## Method

* Each value is the median of {runs} runs. A ratio is taken inside one run, between things measured one
  right after the other; the table has the median of those ratios. `busy_before` in the JSON lines is the
  share of the machine that others used right before a run: above a few hundredths the run says little.
* Our side is durable throughout: the real `awe-server` with SQLite (WAL, `synchronous=FULL`), its data in a
  fresh folder below the folder for temporary files (on {fs}), so that every fsync is one.
* The client's own copy of results that the server has not answered yet is fsynced before they are sent, on
  the same file system.
* Output files of commands go to fresh folders on tmpfs (`/dev/shm`), on both sides. ext4 makes new files
  several times slower for minutes after others were deleted.
* The limit is a C loop of `posix_spawn` and `waitpid` with two new output files for each command, two
  processes at once.
* Simulated clients speak the exchange as [wire.md](wire.md) says and compute nothing: one process on an
  event loop, which uses a part of the other core. They report whatever they hold and ask for the next batch
  in one request.
* CPU of a process is what the kernel counts for it with all its threads, in ticks of 10 ms.
* All on loopback. Server, clients and whoever submits share the same cores, as the peers' do.
* MongoDB is SecantusDB, which speaks its wire protocol with transactions: round trips and bytes are counted
  by a proxy and hold for a real one; its speed would not.
"""

KEEPS = """## Who the peers are, and what each side keeps

A rate says little without what is left when a process is killed. Of us: every submission, checkout and
report that was answered, as an fsynced transaction, with exit code, times, peak memory and the tails of
both outputs; the files themselves where a job names them as outputs, which these do not. "HyperQueue" is
its wheel from PyPI: its worker starts commands by a full fork of a Python process, and it has no option for
the journal of the native `hq` program, which was not to be had here and is probably faster; nothing is
claimed about that. Redis "fsynced" has `appendfsync always`, on the same file system as our own data. The
functions of Celery, Dramatiq and dask call `subprocess.run`, with all output to `/dev/null`; Dramatiq runs
up to 16 at once, the others and we two.

| | is left when it is killed | version |
|---|---|---|
"""


def document(machine: Mapping[str, str], lines: Sequence[Mapping[str, Any]], table: Table, runs: int) -> str:
    """The whole file."""
    kinds = sorted({line["server_fs"] for line in lines if "server_fs" in line})
    return "\n".join(
        [
            HEAD,
            *(f"* {name}: {value}" for name, value in machine.items()),
            "\n## Goals\n",
            *table.lines(),
            "",
            KEEPS + "\n".join(_kept(lines)),
            "",
            METHOD.format(runs=runs, fs=" and ".join(kinds) or "the disk"),
            "## All medians\n",
            "Median (least – most) of each value.\n",
            *_medians(lines),
        ]
    )


def _kept(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each case that says what it keeps, once."""
    seen = {line["case"]: line for line in lines if "keeps" in line}
    for case, line in seen.items():
        yield f"| {case} | {line['keeps']} | {line.get('version', '')} |"


def _medians(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A table for each figure."""
    name = ""
    for line in lines:
        if "median_min_max" not in line:
            continue
        if line["bench"] != name:
            name = line["bench"]
            yield f"\n### {line['figure']}: `{name}`\n"
            yield "| case | value | median | range |"
            yield "|---|---|---|---|"
        for key, (median, least, most) in line["median_min_max"].items():
            yield f"| {line['case']} | {key} | {median:,g} | {least:,g} – {most:,g} |"
