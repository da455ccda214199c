"""What the values of one task must mean: its name, its files, its command, and how they fit together."""

import re
from collections.abc import Mapping, Sequence

from shared_models.archives import is_archive
from shared_models.arguments import InputNames, split_words, unknown_references, variable_names
from shared_models.documents import Command, Environ, PartInfo, TaskDocument
from shared_models.errors import InvalidDocument, TooLarge
from shared_models.file_meaning import check_files, name_problem
from shared_models.file_urls import is_file_url, path_of
from shared_models.limits import MAX_ARGS_CHARS, MAX_ENVIRON_CHARS, MAX_REFERENCE_STEPS, MAX_WORD_BYTES
from shared_models.locations import Reach
from shared_models.meaning import check_groups, task_name_problem
from shared_models.nearest import did_you_mean, near_miss
from shared_models.paths import normal_relative_path
from shared_models.problems import Problems
from shared_models.records_option import OPTIONS_PROBLEM, records_together
from shared_models.variables import ARRAY_FIRST, ARRAY_INDEX, RESERVED, set_variables

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: How many unknown `@name`s of one document are compared with the inputs; the rest is left as it is.
_MAX_COMPARISONS = 5_000


class TaskCheck:
    """Checks the tasks of one document; what costs time is bounded over all of them together."""

    def __init__(self, reach: Reach, problems: Problems) -> None:
        self.reach = reach
        self.problems = problems
        self.comparisons_left = _MAX_COMPARISONS
        self.steps_left = MAX_REFERENCE_STEPS
        self.sinks: dict[
            str, tuple[str, str]
        ] = {}  #: where an output goes → its path in the document, its URL

    def __call__(self, task: TaskDocument, path: str, names: Mapping[str, Sequence[str]]) -> None:
        """Check a task and bring its files into their form. `names` as in `check_files`."""
        problem = task_name_problem(task.taskid)
        if problem:
            self.problems.add(f"{path}.taskid", problem)
        for i, name in enumerate(task.dependsOn):
            if not name:
                self.problems.add(f"{path}.dependsOn[{i}]", "is empty; it must be a task id")
        if len(task.dependsOn) > 1:
            task.dependsOn = list(dict.fromkeys(task.dependsOn))
        if task.clientgroups:
            task.clientgroups = check_groups(task.clientgroups, f"{path}.clientgroups", self.problems)
        if task.inputs or task.outputs or task.predata:
            check_files(task, path, names, self.reach, self.problems)
        if any(io.url for io in task.outputs):
            self._sinks(task, path, names)
        inputs = [io.filename for io in task.inputs]
        if task.partinfo is not None:
            self._partinfo(task.partinfo, inputs, f"{path}.partinfo")
        self._command(task.cmd, inputs, f"{path}.cmd")
        self._references(task, inputs, f"{path}.cmd")

    def _sinks(self, task: TaskDocument, path: str, names: Mapping[str, Sequence[str]]) -> None:
        """Check that no two outputs of the job go to one place, and that no task writes what it reads."""
        read = {self._leads_to(io.url): io.url for io in (*task.inputs, *task.predata) if io.url}
        for i, io in enumerate(task.outputs):
            if not io.url:
                continue
            key = f".{names['outputs'][i][:100]}" if "outputs" in names else f"[{i}]"
            place = f"{path}.outputs{key}"
            target = self._leads_to(io.url)
            first, its_url = self.sinks.setdefault(target, (place, io.url))
            if first != place:
                how = _by_links(io.url, its_url, target)
                self.problems.add(f"{place}.url", f"'{io.url[:200]}' is where {first} goes already{how}")
            if target in read:
                how = _by_links(io.url, read[target], target)
                self.problems.add(f"{place}.url", f"'{io.url[:200]}' is an input of the same task{how}")

    def _leads_to(self, url: str) -> str:
        """Give one text for all URLs of a shared file, which is no URL; other URLs as they are."""
        try:
            return self.reach.leads_to(path_of(url)) if is_file_url(url) else url
        except InvalidDocument:  # that is said already
            return url

    def _partinfo(self, part: PartInfo, inputs: list[str], path: str) -> None:
        if part.inputs:
            self._paired(part, inputs, path)
        elif part.input:
            part.input = self._input(part.input, inputs, f"{path}.input")
        elif not inputs and (records_together(part.options) > 1 or part.index not in ("", "none")):
            key = "options" if records_together(part.options) > 1 else "index"
            problem = f"'{getattr(part, key)[:200]}' is where an input is cut, and this task has none"
            self.problems.add(f"{path}.{key}", f"{problem}; leave it out")
        together = records_together(part.options)
        if not together:
            self.problems.add(f"{path}.options", OPTIONS_PROBLEM)
        elif (part.inputs or together > 1) and part.index in ("size", "none"):
            what = "paired inputs are" if part.inputs else f"'{part.options}' is"
            self.problems.add(
                f"{path}.index", f"'{part.index}' cuts through records; {what} cut by 'record' or 'line'"
            )

    def _paired(self, part: PartInfo, inputs: list[str], path: str) -> None:
        """Check inputs that are cut together, and give them in their normal form."""
        if part.input and part.input != part.inputs[0]:
            self.problems.add(f"{path}.input", f"must be the first of {path}.inputs")
        names = [self._input(name, inputs, f"{path}.input") for name in part.inputs]
        for name in dict.fromkeys(name for i, name in enumerate(names) if name in names[:i]):
            self.problems.add(f"{path}.input", f"'{name[:200]}' is named more than once")
        part.input, part.inputs = names[0], names if len(names) > 1 else []

    def _input(self, name: str, inputs: list[str], path: str) -> str:
        """Check that a name is that of an input, and give it in its normal form."""
        normal = normal_relative_path(name)
        if normal not in inputs:
            hint = did_you_mean(normal, inputs)
            self.problems.add(path, f"'{name[:200]}' is not an input of this task{hint}")
        elif is_archive(normal):
            self.problems.add(path, f"'{name[:200]}' is a folder or a pattern; name a single file")
        return normal

    def _command(self, cmd: Command, inputs: list[str], path: str) -> None:
        script = any(line.strip() for line in cmd.cmd_script)
        if not cmd.name.strip() and not script:
            self.problems.add(f"{path}.name", "is missing; a task needs cmd.name or cmd.cmd_script")
        if _CONTROL.search(cmd.name):
            self.problems.add(f"{path}.name", f"{cmd.name[:200]!r} has a control character")
        for key, text in (
            ("args", cmd.args),
            *((f"cmd_script[{i}]", t) for i, t in enumerate(cmd.cmd_script)),
        ):
            if "\0" in text:
                self.problems.add(f"{path}.{key}", "has a NUL character")
        if cmd.stdin:
            cmd.stdin = self._input(cmd.stdin, inputs, f"{path}.stdin")
        for key in ("stdout", "stderr"):
            name = getattr(cmd, key)
            problem = name_problem(name) if name else None
            if problem:
                self.problems.add(f"{path}.{key}", problem)
            elif name:
                setattr(cmd, key, normal_relative_path(name))
        self._environ(cmd.environ, f"{path}.environ")

    def _environ(self, environ: Environ, path: str) -> None:
        for key, variables in (("public", environ.public), ("private", environ.private)):
            for name, value in variables.items():
                if not _VARIABLE.fullmatch(name):
                    self.problems.add(
                        f"{path}.{key}", f"'{name[:100]}' is not a variable name ([A-Za-z_][A-Za-z0-9_]*)"
                    )
                elif name in RESERVED:
                    self.problems.add(
                        f"{path}.{key}.{name}", "is set by the client for each attempt; leave it out"
                    )
                elif "\0" in value:
                    self.problems.add(f"{path}.{key}.{name[:100]}", "has a NUL character")
            if sum(len(name) + len(value) for name, value in variables.items()) > MAX_ENVIRON_CHARS:
                self.problems.add(f"{path}.{key}", f"has more than {MAX_ENVIRON_CHARS} characters together")

    def _references(self, task: TaskDocument, inputs: list[str], path: str) -> None:
        """Check the words of the command, and that an `@name` is not a misspelt input."""
        try:
            key, words = _words(task.cmd)
        except InvalidDocument as exc:
            self.problems.add_below(path, exc.message)
            return
        for word in words:
            if len(word) * 4 > MAX_WORD_BYTES and len(word.encode()) > MAX_WORD_BYTES:
                self.problems.add(f"{path}.{key}", f"has a word longer than {MAX_WORD_BYTES} bytes")
        self._variables(task.cmd, [w for w in words if "${" in w], f"{path}.{key}")
        self._near_misses(task, [w for w in words if "@" in w], inputs, f"{path}.{key}")

    def _variables(self, cmd: Command, words: list[str], path: str) -> None:
        """Check that each `${NAME}` will be set: on the client it would fail every attempt."""
        if not words:
            return
        environ = cmd.environ
        in_container = bool(cmd.Dockerimage or cmd.dockerPull)
        known = set_variables((*environ.public, *environ.private), in_container=in_container)
        for name in dict.fromkeys(name for word in words for name in variable_names(word)):
            if name not in known:
                shown, hint = name[:100], did_you_mean(name, sorted(known))
                if name == ARRAY_INDEX:
                    hint = f"; it comes with {ARRAY_FIRST} in cmd.environ.public"
                place = f"give it in cmd.environ.public, or write $${{{shown}}} for the text itself"
                self.problems.add(path, f"'${{{shown}}}' is not set; {place}{hint}")

    def _near_misses(self, task: TaskDocument, words: list[str], inputs: list[str], path: str) -> None:
        if not (words and inputs):
            return
        names = InputNames(inputs)
        self.steps_left -= (1 + len(names.odd)) * sum(word.count("@") for word in words)
        if self.steps_left < 0:
            raise TooLarge(f"{path}: the document has too many '@' in its arguments")
        others = {io.filename for io in (*task.outputs, *task.predata)}
        for name in dict.fromkeys(unknown_references(words, names)):
            if name in others or self.comparisons_left < len(inputs):
                continue
            self.comparisons_left -= len(inputs)
            normal = normal_relative_path(name)
            meant = normal if normal in inputs else near_miss(name, inputs)
            if meant is not None:
                self.problems.add(path, f"'@{name[:100]}' is not an input; did you mean '@{meant}'?")


def _by_links(url: str, other: str, target: str) -> str:
    return f": links lead both to '{target[:200]}'" if url != other else ""


def _words(cmd: Command) -> tuple[str, list[str]]:
    """Give the key that holds the command's words, and the words.

    Raises InvalidDocument, its path beginning with that key.
    """
    if len(cmd.args) > MAX_ARGS_CHARS or sum(map(len, cmd.args_array)) > MAX_ARGS_CHARS:
        key = "args" if len(cmd.args) > MAX_ARGS_CHARS else "args_array"
        raise InvalidDocument(f"{key}: is longer than {MAX_ARGS_CHARS} characters")
    if cmd.args.strip() and cmd.args_array:
        raise InvalidDocument("args_array: is given beside args; give one of them")
    if any("\0" in word for word in cmd.args_array):
        raise InvalidDocument("args_array: has a NUL character")
    return ("args", split_words(cmd.args)) if cmd.args.strip() else ("args_array", cmd.args_array)
