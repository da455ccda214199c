"""Fill the `#KEY` placeholders of AWE templates, as AWE's own submitting script did.

A template is JSON text in which `#jobname`, `#inputfile`, `#totalwork` … stand for values; they are replaced
as plain text before the document is parsed, so a number may stand without quotes. A value that lands inside a
JSON string is escaped; outside a string it must itself be JSON. In a command's `args` a value is a word, or a
part of one, whatever blanks and quotes it has.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shared_models.errors import InvalidDocument
from shared_models.nearest import did_you_mean
from shared_models.placeholders import placeholder_in, placeholder_in_name

#: A placeholder: `#` and the whole name behind it. A `#` before anything else is ordinary text.
PLACEHOLDER = re.compile(r"#([A-Za-z_][A-Za-z0-9_]*)")

#: What stands from the key on until its value, when that is what the command is started with.
_ARGS_KEY = re.compile(r'"args"\s*:\s*$')
_NEEDS_QUOTES = re.compile(r"""[ \t\r\n'"\\]""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
#: Where `#word` is a comment rather than a placeholder, unless it is one of AWE's own.
_PROSE = {"cmd_script", "description"}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder; a document that is no template is returned as it is.

    Raises InvalidDocument when a value is given that the template does not name, when a placeholder has no
    value, or when one stands outside a string and its value is not JSON.
    """
    _refuse_unknown(text, values)
    if left := _without_value(text, values):
        raise InvalidDocument([_unfilled(name) for name in left])
    if not values:
        return text
    pieces: list[str] = []
    position = key_at = 0
    for match in _STRING.finditer(text):
        pieces.append(_outside(text[position : match.start()], values))
        write = _in_args if _ARGS_KEY.search(text, key_at, match.start()) else _in_text
        pieces.append(write(match.group(), values))
        key_at = match.start()
        position = match.end()
    pieces.append(_outside(text[position:], values))
    return "".join(pieces)


def _refuse_unknown(text: str, values: Mapping[str, str]) -> None:
    named = sorted({match.group(1) for match in PLACEHOLDER.finditer(text)})
    known = ", ".join(f"#{name}" for name in named) or "none"
    problems = [
        f"--set {key}: the document has no placeholder #{key}; it has: {known}{did_you_mean(key, named)}"
        for key in sorted(set(values) - set(named))
    ]
    if problems:
        raise InvalidDocument(problems)


def _unfilled(name: str) -> str:
    return f"the placeholder #{name} has no value: add --set {name}=VALUE (or '{name}=#{name}' if it is none)"


def _without_value(text: str, values: Mapping[str, str]) -> list[str]:
    """The placeholders of a template that nothing is given for, in their order.

    A template is what values are given for, and what has a placeholder as its name or outside of strings.
    """
    bare = [name for a, b in _between_strings(text) for name in PLACEHOLDER.findall(text, a, b)]
    try:
        document = json.loads(_with_zeros(text))
        names = [*_names(document), *bare]
    except (ValueError, RecursionError):
        document, names = None, bare  # the server says precisely what is wrong with it
    if not (values or bare or _is_named_by_placeholder(document)):
        return []
    return [name for name in dict.fromkeys(names) if name not in values]


def _between_strings(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    for match in _STRING.finditer(text):
        yield position, match.start()
        position = match.end()
    yield position, len(text)


def _with_zeros(text: str) -> str:
    """The template as JSON: a number for every placeholder outside of strings."""
    pieces: list[str] = []
    position = 0
    for start, end in _between_strings(text):
        pieces += [text[position:start], PLACEHOLDER.sub("0", text[start:end])]
        position = end
    return "".join(pieces)


def _is_named_by_placeholder(document: Any) -> bool:
    info = document.get("info") if isinstance(document, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return isinstance(name, str) and placeholder_in_name(name) is not None


def _names(value: Any, *, is_prose: bool = False) -> Iterator[str]:
    """Names of the placeholders in the keys and texts of a document."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _names(key)
            yield from _names(entry, is_prose=is_prose or key in _PROSE)
    elif isinstance(value, list):
        for entry in value:
            yield from _names(entry, is_prose=is_prose)
    elif isinstance(value, str):
        for match in PLACEHOLDER.finditer(value):
            before = value[: match.start()]
            is_own = placeholder_in(match.group()) == match.group()
            if is_own or not (is_prose or before[-1:].isalnum()):
                yield match.group(1)


def _in_text(literal: str, values: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        return match.group() if value is None else json.dumps(value)[1:-1]

    return PLACEHOLDER.sub(replace, literal)


def _in_args(literal: str, values: Mapping[str, str]) -> str:
    """As `_in_text`, where the value has to pass the splitting into words as well."""
    try:
        text: str = json.loads(literal)
    except ValueError:  # the server says precisely what is wrong with it
        return _in_text(literal, values)

    def replace(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        return match.group() if value is None else _quoted(value, _open_quote(text[: match.start()]))

    return json.dumps(PLACEHOLDER.sub(replace, text), ensure_ascii=False)


def _quoted(value: str, quote: str) -> str:
    """A value so that it stays one word, behind the quote that is open where it is put."""
    if quote == '"':
        return re.sub(r'(["\\])', r"\\\1", value)
    inside = value.replace("'", "'\\''")
    return inside if quote or not _NEEDS_QUOTES.search(value) else f"'{inside}'"


def _open_quote(text: str) -> str:
    """The quote that is open at the end of a text: `'`, `"`, or none."""
    quote, escaped = "", False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
    return quote


def _outside(text: str, values: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            return match.group()
        try:
            json.loads(values[key])
        except ValueError as exc:
            raise InvalidDocument(
                f"--set {key}: #{key} stands outside quotes, so its value must be JSON (a number, true, …), "
                f"not '{values[key]}'"
            ) from exc
        return values[key]

    return PLACEHOLDER.sub(replace, text)
