"""Fill the `#KEY` placeholders of AWE templates, as AWE's own submitting script did.

A template is JSON text in which `#jobname`, `#inputfile`, `#totalwork` … stand for values; they are replaced
as plain text before the document is parsed, so a number may stand without quotes. A value that lands inside a
JSON string is escaped; outside a string it must itself be JSON. In a command's `args` a value is a word, or a
part of one, whatever blanks and quotes it has.
"""

import json
import re
from collections.abc import Mapping

from shared_models.errors import InvalidDocument

#: A placeholder: `#` and a name. A `#` before anything else is ordinary text.
PLACEHOLDER = re.compile(r"#([A-Za-z_][A-Za-z0-9_]*)")

#: What stands from the key on until its value, when that is what the command is started with.
_ARGS_KEY = re.compile(r'"args"\s*:\s*$')
_NEEDS_QUOTES = re.compile(r"""[ \t\r\n'"\\]""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder that has a value; a longer name wins over its own beginning.

    Raises InvalidDocument when a value is given that the template does not name, or when a placeholder stands
    outside a string and its value is not JSON.
    """
    used: set[str] = set()
    pieces: list[str] = []
    position = key_at = 0
    for match in _STRING.finditer(text):
        pieces.append(_outside(text[position : match.start()], values, used))
        write = _in_args if _ARGS_KEY.search(text, key_at, match.start()) else _in_text
        pieces.append(write(match.group(), values, used))
        key_at = match.start()
        position = match.end()
    pieces.append(_outside(text[position:], values, used))
    unused = sorted(set(values) - used)
    if unused:
        named = sorted({match.group(1) for match in PLACEHOLDER.finditer(text)})
        known = ", ".join(f"#{name}" for name in named) or "none"
        raise InvalidDocument(
            f"--set {unused[0]}: the document has no placeholder #{unused[0]}; it has: {known}"
        )
    return "".join(pieces)


def _key_of(name: str, values: Mapping[str, str]) -> str | None:
    """The longest given key that the name begins with, so `#jobname_prep` is filled by `jobname`."""
    candidates = [key for key in values if name.startswith(key)]
    return max(candidates, key=len, default=None)


def _in_text(literal: str, values: Mapping[str, str], used: set[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        key = _key_of(name, values)
        if key is None:
            return match.group()
        used.add(key)
        return json.dumps(values[key])[1:-1] + name[len(key) :]

    return PLACEHOLDER.sub(replace, literal)


def _in_args(literal: str, values: Mapping[str, str], used: set[str]) -> str:
    """As `_in_text`, where the value has to pass the splitting into words as well."""
    try:
        text: str = json.loads(literal)
    except ValueError:  # the server says precisely what is wrong with it
        return _in_text(literal, values, used)

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        key = _key_of(name, values)
        if key is None:
            return match.group()
        used.add(key)
        return _quoted(values[key], _open_quote(text[: match.start()])) + name[len(key) :]

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


def _outside(text: str, values: Mapping[str, str], used: set[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            return match.group()
        used.add(key)
        try:
            json.loads(values[key])
        except ValueError as exc:
            raise InvalidDocument(
                f"--set {key}: #{key} stands outside quotes, so its value must be JSON (a number, true, …), "
                f"not '{values[key]}'"
            ) from exc
        return values[key]

    return PLACEHOLDER.sub(replace, text)
