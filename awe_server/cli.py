"""The `awe-server` command: serve, check, export."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from pydantic import ValidationError

from awe_server.data.check import Report, advice, check_files, removals
from awe_server.data.check import repair as repair_files
from awe_server.data.check_indexes import check_indexes
from awe_server.runtime import logs, recovery
from awe_server.runtime.collector import no_garbage_collection
from awe_server.runtime.export import exported
from awe_server.runtime.folder_mark import check_folder
from awe_server.runtime.survey_documents import survey_documents
from awe_server.scheduler.state import Context
from awe_server.settings import Settings
from awe_server.store.base import Collection, Store, require_lead
from awe_server.store.errors import StoreCorrupt
from awe_server.store.open import open_store
from shared_models.errors import AweError, LeadInDoubt

cli = typer.Typer(
    name="awe-server", no_args_is_help=True, add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False,
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"awe-server {version('awe')}")
        raise typer.Exit


@cli.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The AWE job server."""


Data = Annotated[Path | None, typer.Option("--data", help="Data directory (default: awe-data).")]
StoreUrl = Annotated[
    str | None, typer.Option("--store", help="mongodb://…; default: SQLite in the data directory.")
]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file of settings; flags and AWE_* variables win.")
]


def _settings(config: Path | None, **flags: Any) -> Settings:
    try:
        return Settings.load(config, {name: value for name, value in flags.items() if value is not None})
    except ValidationError as exc:
        for problem in exc.errors():
            name = ".".join(str(part) for part in problem["loc"])
            print(f"awe-server: setting {name}: {problem['msg']}", file=sys.stderr)
        raise typer.Exit(2) from exc
    except (OSError, ValueError) as exc:
        print(f"awe-server: {config}: {exc}", file=sys.stderr)
        raise typer.Exit(2) from exc


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 = any free one (default: 8001).")] = None,
    data: Data = None,
    store: StoreUrl = None,
    config: Config = None,
    policy: Annotated[str | None, typer.Option(help="fcfs or fair (default: fcfs).")] = None,
    public_url: Annotated[
        str | None, typer.Option(help="How clients reach the server (default: as they ask).")
    ] = None,
    file_root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR", help="Open a directory of shared files to jobs (file:// URLs); repeatable."
        ),
    ] = None,
    lease_s: Annotated[
        float | None, typer.Option(help="Seconds until a silent client loses its work (default: 60).")
    ] = None,
    quota: Annotated[
        str | None,
        typer.Option(help="Bytes that nodes may take, such as 500G; 0 = no limit (default: 0)."),
    ] = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby", help="Wait while another server owns the store, then take over."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (default: info).")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="human or json (default: human).")] = None,
) -> None:
    """Run the server until SIGTERM or SIGINT."""
    if file_root is not None:
        file_root = [os.path.abspath(root) for root in file_root]
    settings = _settings(
        config, host=host, port=port, data_dir=data, store_url=store, policy=policy, public_url=public_url,
        file_roots=file_root,
        lease_s=lease_s, quota_bytes=quota, standby=standby, log_level=log_level, log_format=log_format,
    )  # fmt: skip
    logs.configure(settings.log_level, settings.log_format)
    with no_garbage_collection():
        from awe_server import app as composition  # most of what a start takes; no other command needs it
    raise typer.Exit(composition.run(settings))


@cli.command()
def check(
    data: Data = None,
    store: StoreUrl = None,
    config: Config = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove files of the node store that no document names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look for damage in the store, for documents that do not fit together, those of ended jobs included, and
    read every file of the node store. Each line says what is wrong and what to do. No server may be running.
    Exit code 1 if something is wrong.
    """
    settings = _settings(config, data_dir=data, store_url=store)
    _with_store(settings, lambda opened: _check(opened, settings, repair=repair, as_json=as_json))


@cli.command()
def export(data: Data = None, store: StoreUrl = None, config: Config = None) -> None:
    """Write every stored document as a line {"collection": …, "document": …}. No server may be running.

    Secrets are left out: lease tokens, private environment, data tokens. A line that lacks one names it:
    "left_out": ["_token"]. What is no document is named on the error output; then the exit code is 1.
    """
    _with_store(_settings(config, data_dir=data, store_url=store), _export)


def _with_store(settings: Settings, action: Callable[[Store], Awaitable[int]]) -> None:
    logs.configure(settings.log_level, settings.log_format)

    async def use() -> int:
        store = open_store(settings.store_url, settings.data_dir, must_exist=True)
        await store.open()
        try:
            return await action(store)
        finally:
            await store.close()

    try:
        code = asyncio.run(use())
    except AweError as exc:
        print(f"awe-server: {exc.message}", file=sys.stderr)
        code = 1
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        print(f"awe-server: {where}{exc.strerror or exc}", file=sys.stderr)
        code = 1
    raise typer.Exit(code)


async def _check(store: Store, settings: Settings, *, repair: bool, as_json: bool) -> int:
    folder = settings.data_dir / "nodes"
    await check_folder(folder, store)
    problems = await store.check()
    try:
        problems += await recovery.survey(store, settings, lambda: Context(0.0, time.time(), str))
        problems += await survey_documents(store)
    except StoreCorrupt as exc:  # what hangs on the one that cannot be read would be called lost
        problems.append(f"documents were not compared with each other: {exc.message}")
    report: Report | None = None
    try:
        report = await check_files(folder, store.scan("nodes"))
        await asyncio.to_thread(check_indexes, report, settings.data_dir / "indexes", folder)
    except StoreCorrupt as exc:  # a file that it names would be called an orphan
        problems.append(f"files were not compared with documents: {exc.message}")
    await store.commit([])  # what was seen is true only if no other server has led meanwhile
    if repair and report is not None:
        try:
            await asyncio.to_thread(repair_files, folder, report, partial(require_lead, store))
        except LeadInDoubt as exc:
            _tell_stopped(store.name, report, exc.message, as_json=as_json)
            return 1
    _tell(store.name, folder, problems, report, as_json=as_json)
    return 0 if report is not None and report.is_sound and not problems else 1


def _tell(name: str, folder: Path, problems: list[str], report: Report | None, *, as_json: bool) -> None:
    is_sound = report is not None and report.is_sound
    if as_json:
        files = None if report is None else asdict(report)
        shown = {"store": name, "sound": is_sound and not problems, "problems": problems, "nodes": files}
        print(orjson.dumps(shown).decode())
        return
    lines = [] if report is None else [*report.problems, *advice(report)]
    for line in (*problems, *lines):
        print(line)
    if not problems:
        print(f"{name}: sound")
    if report is not None and report.is_sound:
        print(f"{folder}: sound: {report.nodes} nodes, {report.files} files, {report.bytes} bytes")


def _tell_stopped(name: str, report: Report, reason: str, *, as_json: bool) -> None:
    """What was removed by then. Whatever else was found may not be true any more."""
    wanted = removals(report)
    done = [problem for problem in wanted if problem.removed or problem.files_removed]
    removed = sum(problem.removed for problem in wanted)
    message = f"--repair stopped after {removed} of {len(wanted)} removals: {reason}"
    if as_json:
        files = asdict(replace(report, problems=done, spoilt={}))
        shown = {"store": name, "sound": False, "problems": [message], "nodes": files}
        print(orjson.dumps(shown).decode())
    else:
        for problem in done:
            print(problem)
    print(f"awe-server: {message}", file=sys.stderr)


async def _export(store: Store) -> int:
    out = sys.stdout.buffer
    skipped = 0

    def skip(collection: Collection, id: str) -> None:
        nonlocal skipped
        skipped += 1
        problem = f"document {id} of {collection} is no document of that id"
        print(f"awe-server: not exported: {problem}", file=sys.stderr)

    async for line in exported(store, skip):
        out.write(orjson.dumps(line) + b"\n")
    out.flush()
    return 1 if skipped else 0


def main() -> None:
    """Entry point of `awe-server`."""
    cli()
