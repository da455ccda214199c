"""How a command's arguments become words.

`args` is split as a shell would: blanks separate, single and double quotes group, a backslash takes the
next character as it is. Then, inside each word, `@name` becomes the path of the input called `name` and
`${NAME}` the value of that variable of the workunit's environment. Nothing is ever dropped: an `@` that
names no input stays as it is, and an unset variable is an error. `$${NAME}` stands for the text `${NAME}`.
A word is never split again, whatever is put into it.

Source: AWE lib/worker/processor.go ParseWorkunitArgs; differs: real quoting; AWE read the worker's own
environment, dropped words with an unknown `@` and refused a second `@` in a word.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from shared_models.errors import InvalidDocument

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+) | (?P<plain>[^ \t\r\n'"\\]+)
    | '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.)""",
    re.DOTALL | re.VERBOSE,
)
_DOUBLE_ESCAPE = re.compile(r'\\(["\\])')
_QUOTING = re.compile(r"""['"\\]""")
_BLANKS = re.compile(r"[ \t\r\n]+")
#: The characters of AWE's input references: a name ends where they end.
_NAME = re.compile(r"[\w.\-]+")
_REFERENCE = re.compile(r"[\w./\-]+")
_SPECIAL = re.compile(r"@|\$?\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class InputNames:
    """Finds which input an `@` names: the longest filename that stands there and does not go on.

    A folder goes on with what lies in it: `@bt2/lambda`.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.plain: set[str] = set()  #: names made only of letters, digits, `_ . -`
        odd: dict[int, set[str]] = {}
        for name in names:
            if _NAME.fullmatch(name):
                self.plain.add(name)
            else:
                odd.setdefault(len(name), set()).add(name)
        self.odd = sorted(odd.items(), reverse=True)  #: the others, by length, longest first

    def match(self, word: str, start: int) -> str | None:
        """Give the input whose name stands at `start`, right after the `@`."""
        for length, names in self.odd:
            candidate = word[start : start + length]
            if candidate in names and (candidate.endswith("/") or not _NAME.match(word, start + length)):
                return candidate
        found = _NAME.match(word, start)
        return found.group() if found and found.group() in self.plain else None


def split_words(args: str) -> list[str]:
    """Split a text into words as a POSIX shell would, without expanding anything.

    Raises InvalidDocument with the position of a quote that is not closed.
    """
    if not _QUOTING.search(args):
        return [word for word in _BLANKS.split(args) if word]
    words: list[str] = []
    current: list[str] | None = None
    position = 0
    while position < len(args):
        token = _TOKEN.match(args, position)
        if token is None:
            raise InvalidDocument(f"args: {_open_quote(args[position])} at position {position}")
        if token.lastgroup == "blank":
            if current is not None:
                words.append("".join(current))
            current = None
        else:
            current = current or []
            current.append(_token_text(token))
        position = token.end()
    if current is not None:
        words.append("".join(current))
    return words


def split_arguments(
    args: str, args_array: Sequence[str], inputs: Mapping[str, str], environ: Mapping[str, str]
) -> list[str]:
    """Give the words a command is started with.

    `inputs` maps filename → absolute path, `environ` is the workunit's environment. `args_array` is used,
    word by word, when `args` is empty.
    Raises InvalidDocument naming the place: an open quote, or a variable that is not set.
    """
    names = InputNames(inputs)
    if args.strip():
        return [
            _substitute(word, names, inputs, environ, f"args: word {i}")
            for i, word in enumerate(split_words(args), 1)
        ]
    return [
        _substitute(word, names, inputs, environ, f"args_array[{i}]") for i, word in enumerate(args_array)
    ]


def as_typed(word: str) -> str:
    """Write a word so that each `${NAME}` in it arrives as it is: for words that a shell has split already.

    An `@` has no such form: it names an input, or stays as it is.
    """
    return _VARIABLE.sub(r"$\g<0>", word)


def unknown_references(words: Iterable[str], names: InputNames) -> Iterable[str]:
    """Give what follows each `@` that names no input (as far as it looks like a name)."""
    for word in words:
        start = word.find("@")
        while start >= 0:
            name = names.match(word, start + 1)
            if name is None and (found := _REFERENCE.match(word, start + 1)):
                yield found.group()
            start = word.find("@", start + 1 + len(name or ""))


def variable_names(word: str) -> Iterable[str]:
    """Give the name in each `${NAME}` of a word that stands for a value."""
    for found in _SPECIAL.finditer(word):
        if found.group(1) is not None and not found.group().startswith("$$"):
            yield found.group(1)


def _substitute(
    word: str, names: InputNames, inputs: Mapping[str, str], environ: Mapping[str, str], place: str
) -> str:
    out: list[str] = []
    position = 0
    while found := _SPECIAL.search(word, position):
        out.append(word[position : found.start()])
        position = found.end()
        variable = found.group(1)
        if variable is None:
            name = names.match(word, position)
            out.append("@" if name is None else inputs[name])
            position += len(name or "")
        elif found.group().startswith("$$"):
            out.append(found.group()[1:])
        elif variable in environ:
            out.append(environ[variable])
        else:
            raise InvalidDocument(f"{place}: variable '{variable}' is not set in cmd.environ")
    out.append(word[position:])
    return "".join(out)


def _token_text(token: re.Match[str]) -> str:
    kind = token.lastgroup or ""
    text = token.group(kind)
    return _DOUBLE_ESCAPE.sub(r"\1", text) if kind == "double" else text


def _open_quote(character: str) -> str:
    return "nothing follows the backslash" if character == "\\" else f"the quote {character} is not closed"
