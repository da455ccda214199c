"""`awe submit`, `awe run`: hand in work."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from awe_client.api import AweClient
from awe_client.cli.inputs import by_name, divided, keys_of
from awe_client.cli.one_task import STDOUT_NAME, OneTask, check_environ, check_splitting, login_name
from awe_client.cli.options import DEFAULT_SERVER, Json, Server
from awe_client.cli.output import note, print_json, print_line
from awe_client.cli.sizes import parse_array, parse_megabytes, parse_size
from awe_client.cli.stream import node_to_stdout
from awe_client.cli.template import fill
from awe_client.cli.upload import check_files, check_not_packed, submit_with_files
from awe_client.cli.watch import watch_job
from shared_models.errors import BadRequest, InvalidDocument
from shared_models.nearest import did_you_mean
from shared_models.views import JobView

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Wait until the job has ended.")]


def pairs(items: list[str], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Read `KEY=VALUE` items. Raises BadRequest for one without `=`, and for a key that comes again."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise BadRequest(f"{option} {item}: write {option} {form}")
        if key in found:
            raise BadRequest(f"{option} {key}: is given twice")
        found[key] = value
    return found


def read_document(path: Path, values: dict[str, str]) -> bytes:
    """Read a job document (`-` = standard input) and fill its placeholders."""
    if str(path) == "-":
        raw = sys.stdin.buffer.read()
    else:
        try:
            raw = path.read_bytes()
        except OSError as exc:
            raise BadRequest(f"{path}: {exc.strerror}") from exc
    if not values and b"#" not in raw:
        return raw
    try:
        return fill(raw.decode(), values).encode()
    except UnicodeDecodeError as exc:
        raise InvalidDocument(f"{path}: not UTF-8 text at byte {exc.start}") from exc


def bind_inputs(raw: bytes, nodes: dict[str, str]) -> bytes:
    """Point every input or predata of these names that comes from no task to its node or URL.

    Raises InvalidDocument when a name is nowhere to be found.
    """
    if not nodes:
        return raw
    try:
        document = orjson.loads(raw)
        tasks = document["tasks"]
        found = {name for task in tasks for name in _bind(task, nodes)}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return raw  # the server says precisely what is wrong with it
    if problems := [_unwanted(name, tasks) for name in nodes if name not in found]:
        raise InvalidDocument(problems)
    return orjson.dumps(document)


def _unwanted(name: str, tasks: list[dict[str, Any]]) -> str:
    """Why an upload is refused, and the names that it may have."""
    homeless = list(dict.fromkeys(other for task in tasks for other in _homeless(task)))
    known = [other for task in tasks for other, file in _inputs(task) if not file.get("origin")]
    wanted = f"; a file is wanted for: {', '.join(homeless)}" if homeless else ""
    hint = did_you_mean(name, homeless or known)
    return f"--upload {name}: no task has an input of this name without an origin{wanted}{hint}"


def _bind(task: dict[str, Any], nodes: dict[str, str]) -> list[str]:
    bound = []
    for name, file in _inputs(task):
        if name in nodes and not file.get("origin"):
            for old in ("url", "host", "node"):
                file.pop(old, None)
            file |= keys_of(nodes[name])
            bound.append(name)
    return bound


def check_sources(raw: bytes) -> None:
    """Refuse inputs that come from nowhere, and say how they can be given.

    Raises InvalidDocument with a problem for each of them.
    """
    try:
        homeless = {name: None for task in orjson.loads(raw)["tasks"] for name in _homeless(task)}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return  # the server says precisely what is wrong with it
    if homeless:
        problems = [f"no file is given for input {name}: add --upload {name}=PATH" for name in homeless]
        raise InvalidDocument(problems=problems)


def _homeless(task: dict[str, Any]) -> list[str]:
    return [
        name
        for name, file in _inputs(task)
        if not (file.get("origin") or file.get("url") or file.get("node", "-") not in ("", "-"))
    ]


def _inputs(task: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [*_files(task, "inputs"), *_files(task, "predata")]


def _files(task: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """Files of a task by name, whether they are written as a map or as a list."""
    files = task.get(key) or []
    if isinstance(files, dict):
        return list(files.items())
    return [(file["filename"], file) for file in files]


def submit(
    document: Annotated[
        Path, typer.Argument(metavar="JOB.JSON", help="The job document; - reads it from stdin.")
    ],
    uploads: Annotated[
        list[str] | None,
        typer.Option(
            "--upload",
            metavar="NAME=PATH",
            help="Upload a file as the input of that name, or take it from a URL or a node; repeatable.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Fill the placeholder #KEY of an AWE template; repeatable."
        ),
    ] = None,
    watch: Watch = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Submit a job document.

    Example: awe submit pipeline.json --upload reads.fastq=/data/run7.fastq --set jobname=run7 --watch
    """
    files = pairs(uploads or [], "--upload", "NAME=PATH")
    raw = read_document(document, pairs(settings or [], "--set"))
    check_sources(bind_inputs(raw, dict.fromkeys(files, "checked-before-anything-is-uploaded")))
    paths, places = divided(files)
    with AweClient(server) as awe:
        job = submit_with_files(awe, paths, lambda nodes: bind_inputs(raw, {**places, **nodes}))
        hand_over(awe, job, watch=watch, as_json=as_json)


def hand_over(awe: AweClient, job: JobView, *, watch: bool, as_json: bool) -> None:
    """Say which job it became, or watch it to its end."""
    if watch:
        note(f"job {job.jid} submitted: {job.id}")
        code = watch_job(awe, job.id, as_json=as_json)
        outputs = [file for task in job.tasks for file in task.outputs]
        if outputs and not (code or as_json):
            # Only what is kept here has no place when the job is submitted.
            is_here = any(not (file.url or file.host) for file in outputs)
            how = ", awe node get NODE fetches one" if is_here else " and where they are"
            note(f"awe show {job.id} lists its outputs{how}")
        raise typer.Exit(code)
    if as_json:
        print_json(job)
    else:
        print_line(job.id)


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD ARGS", help="The command, after --.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE|URL|NODE",
            help="Upload this file, or take it from a URL or a node; the command finds it under its name; "
            "repeatable.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", help="Keep this file that the command writes; repeatable."),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Cut the first input into parts of at most this size, in whole MB: 50MB.")
    ] = "",
    parts: Annotated[
        int | None, typer.Option(min=1, help="Cut the first input into this many parts.")
    ] = None,
    index: Annotated[
        str,
        typer.Option(
            help="Where to cut: record (default; FASTA, FASTQ, SAM or lines), line, size, chunkrecord."
        ),
    ] = "",
    paired: Annotated[
        bool, typer.Option("--paired", help="Cut the first two inputs, both at the same records.")
    ] = False,
    records: Annotated[
        int, typer.Option(min=1, max=999_999, help="Records that belong together; interleaved pairs: 2.")
    ] = 1,
    array: Annotated[str, typer.Option(help="Run once for each index, e.g. 1-100 (AWE_ARRAY_INDEX).")] = "",
    name: Annotated[str, typer.Option(help="The job's name (default: the command).")] = "",
    user: Annotated[str, typer.Option(help="Whose job it is (default: your login name).")] = "",
    group: Annotated[
        str, typer.Option(help="Client groups that may run it, a comma list (default: any).")
    ] = "",
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 1,
    environ: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="KEY=VALUE", help="Set an environment variable; repeatable."),
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Cores of one workunit.")] = 1,
    memory: Annotated[
        str,
        typer.Option(help="Memory that one workunit needs, and may use at most, e.g. 4GB (default: any)."),
    ] = "",
    time_limit: Annotated[int, typer.Option(min=0, help="Seconds one workunit may run; 0 = no limit.")] = 0,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0, help="How often a failed workunit is tried again (default: 2, set by the server)."
        ),
    ] = None,
    watch: Watch = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Run one command as a job, without writing JSON.

    The command gets its words as you typed them; inputs lie in its working directory under their names. Only
    @NAME, where NAME is that of an input, becomes the path of that input.

    With --watch its standard output (of all parts, in order) is printed at the end.

    Example: awe run --input reads.fastq --split 50MB --watch -- grep -c ACGT reads.fastq
    """
    task = OneTask(
        command,
        outputs=outputs or [],
        split_mb=parse_megabytes(split) if split else 0,
        parts=parts or 0,
        index=index,
        paired=paired,
        records=records,
        array=parse_array(array) if array else None,
        name=name,
        user=user or login_name(),
        group=group,
        priority=priority,
        environ=check_environ(pairs(environ or [], "--env")),
        cores=cores,
        memory_bytes=parse_size(memory) if memory else 0,
        time_limit_s=time_limit,
        retries=retries,
    )
    check_splitting(
        inputs=len(inputs or []),
        split=split,
        parts=parts,
        index=index,
        array=array,
        paired=paired,
        records=records,
    )
    with AweClient(server) as awe:
        named = by_name(awe, inputs or [])
        files, places = divided(named)
        check_files(files.values())
        if (split or parts) and index != "size":
            check_not_packed([files[name] for name in list(named)[: 2 if paired else 1] if name in files])
        job = submit_with_files(
            awe,
            files,
            lambda nodes: replace(task, inputs={n: {**places, **nodes}[n] for n in named}).document(),
        )
        if not watch or as_json:
            hand_over(awe, job, watch=watch, as_json=as_json)
            return
        note(f"job {job.jid} submitted: {job.id}")
        code = watch_job(awe, job.id, as_json=False)
        if not code:
            print_output(awe, job.id)
        raise typer.Exit(code)


def print_output(awe: AweClient, job_id: str) -> None:
    """Write the merged standard output of a one-task job to ours."""
    for file in awe.get_job(job_id).tasks[0].outputs:
        if file.filename == STDOUT_NAME:
            node_to_stdout(awe, file.node)
