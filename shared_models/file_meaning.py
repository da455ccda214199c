"""What the files of one task must mean: safe names, each name once, a place where the data is or goes."""

import re
from collections.abc import Callable, Mapping, Sequence

import orjson

from shared_models.archives import check_file_name, is_archive, overlaps
from shared_models.documents import IO, TaskDocument
from shared_models.limits import MAX_ATTRIBUTES_BYTES
from shared_models.locations import Reach, is_web_url, settle_input, settle_output
from shared_models.output_types import check_output_type
from shared_models.paths import check_relative_path, normal_relative_path
from shared_models.placeholders import left_over, placeholder_in_name
from shared_models.problems import Problems

#: What makes no sense for an archive.
_OF_SINGLE_FILES = ("shockindex", "header_lines")
#: What an input or predata may not ask for: nobody would do it.
_OF_OUTPUTS = ("optional", "header_lines", "nonzero", "shockfilename", "nodeattr", "formoptions")

#: What an output may not ask for.
_OF_SOURCES = ("uncompress", "md5")
_MD5 = re.compile(r"[0-9a-fA-F]{32}")


def check_files(
    task: TaskDocument, path: str, names: Mapping[str, Sequence[str]], reach: Reach, problems: Problems
) -> None:
    """Check all files of a task and bring them into their form.

    `names`: for lists that the user wrote as maps, the filenames that stood for the positions.
    """

    def at(key: str, i: int) -> str:
        return f"{path}.{key}.{names[key][i][:100]}" if key in names else f"{path}.{key}[{i}]"

    def each(key: str, check: Callable[[IO, str], None]) -> dict[str, IO]:
        seen: dict[str, IO] = {}
        for i, io in enumerate(getattr(task, key)):
            place = at(key, i)
            _check_names(io, place, problems)
            if io.filename in seen:
                problems.add(f"{place}.filename", f"'{io.filename[:200]}' is given twice in {key}")
            check(io, place)
            places[id(io)] = place
            seen[io.filename] = io
        return seen

    def source(io: IO, place: str) -> None:
        _check_source(io, place, reach, problems)

    def predata(io: IO, place: str) -> None:
        if io.origin:
            problems.add(f"{place}.origin", "predata has no origin; make the file an input")
        elif io.filename in inputs:
            problems.add(f"{place}.filename", f"'{io.filename[:200]}' is an input already")
        elif is_archive(io.filename):
            problems.add(f"{place}.filename", "predata is not unpacked; make the folder or pattern an input")
        else:
            for key in ("attrfile", "delete", "nofile"):
                if getattr(io, key):
                    problems.add(f"{place}.{key}", "does not apply to predata; make the file an input")
            source(io, place)

    def sink(io: IO, place: str) -> None:
        _check_sink(io, place, reach, task.inputs, problems)

    places: dict[int, str] = {}
    inputs = each("inputs", source)
    outputs = each("outputs", sink)
    for i, problem in overlaps(task.outputs):
        problems.add(f"{at('outputs', i)}.filename", problem)
    fetched = {**each("predata", predata), **inputs}
    for files in (fetched.values(), outputs.values()):
        _check_folders([io for io in files if not (io.nofile or io.optional)], places, problems)


def _check_folders(files: Sequence[IO], places: Mapping[int, str], problems: Problems) -> None:
    """What is a file cannot be the folder of another one."""
    paths = [f"{io.directory}/{io.filename}" if io.directory else io.filename for io in files]
    known = set(paths)
    for io, path in zip(files, paths, strict=True):
        end = path.find("/")
        while end > 0:
            if path[:end] in known:
                what = f"'{path[:200]}' needs a folder '{path[:end][:200]}', which is a file of this task"
                problems.add(f"{places[id(io)]}.filename", what)
                break
            end = path.find("/", end + 1)


def name_problem(name: str, check: Callable[[str], str | None] = check_relative_path) -> str | None:
    """Say why a file may not have this name, or None; `check` says what its form may be."""
    placeholder = placeholder_in_name(name) if "#" in name else None
    if placeholder:
        return f"'{name[:200]}' {left_over(placeholder)}"
    reason = check(name)
    return f"{name[:200]!r} {reason}" if reason else None


def _check_source(io: IO, place: str, reach: Reach, problems: Problems) -> None:
    for key in _OF_OUTPUTS:
        if getattr(io, key):
            problems.add(f"{place}.{key}", "applies to outputs only")
    if io.md5 and not _MD5.fullmatch(io.md5):
        problems.add(f"{place}.md5", f"{io.md5[:100]!r} is not an md5: 32 hex digits")
    io.md5 = io.md5.lower()
    if io.directory:
        problems.add(f"{place}.directory", "applies to outputs only; write filename 'folder/name' instead")
    if io.type not in ("", "basic"):
        problems.add(f"{place}.type", f"'{io.type}' applies to outputs only")
    problem = settle_input(io, reach)
    if problem:
        problems.add_below(place, problem)
    elif io.delete and io.url:
        problems.add(f"{place}.delete", "applies to files of this server only")
    elif io.attrfile and io.url and not io.node:
        problems.add(f"{place}.attrfile", "a URL has no attributes; only nodes have")


def _check_sink(io: IO, place: str, reach: Reach, inputs: Sequence[IO], problems: Problems) -> None:
    if io.origin and io.type != "update":
        problems.add(f"{place}.origin", "applies to inputs only; an output is made by its own task")
    for key in _OF_SOURCES:
        if getattr(io, key):
            problems.add(f"{place}.{key}", "applies to inputs and predata only")
    if io.nodeattr and len(orjson.dumps(io.nodeattr)) > MAX_ATTRIBUTES_BYTES:
        problems.add(f"{place}.nodeattr", f"has more than {MAX_ATTRIBUTES_BYTES} bytes")
    problem = settle_output(io, reach)
    if problem:
        problems.add_below(place, problem)
        return
    check_output_type(io, place, inputs, problems)
    if not io.url:
        return
    for key in ("nodeattr", "attrfile", "shockindex"):
        if getattr(io, key):
            problems.add(
                f"{place}.{key}", "applies to nodes only, and the output goes to a URL; leave it out"
            )
    if io.delete and is_web_url(io.url):
        problems.add(f"{place}.delete", "does not apply to http(s) addresses: nothing can be removed there")


def _check_names(io: IO, place: str, problems: Problems) -> None:
    if io.directory.endswith("/"):
        io.directory = io.directory.rstrip("/") or "/"
    for key in ("filename", "directory", "shockfilename", "attrfile"):
        name = getattr(io, key)
        if name or key == "filename":
            problem = name_problem(name, check_file_name if key == "filename" else check_relative_path)
            if problem:
                problems.add(f"{place}.{key}", problem)
            elif (normal := normal_relative_path(name)) != name:
                setattr(io, key, normal)
    if is_archive(io.filename):
        for key in _OF_SINGLE_FILES:
            if getattr(io, key):
                problems.add(
                    f"{place}.{key}", f"does not apply to '{io.filename[:200]}', which is kept as a tar"
                )
