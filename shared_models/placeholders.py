"""Template placeholders (`#inputfile`) that a submitting script forgot to fill in.

AWE's templates mark what is to be filled in with `#name`; the server never replaced them, so a forgotten one
became part of a file name. We point it out.
"""

import re

_KNOWN = ("jobname", "project", "user", "clientgroups", "inputfile", "shockurl", "shocknode", "totalwork")
_ANYWHERE = re.compile(rf"#(?:{'|'.join(_KNOWN)})(?![A-Za-z0-9])")
#: In a file name any `#word` not after a letter or digit: `sample#1.fq` is a name, `#sample.fq` is not.
_IN_NAME = re.compile(r"(?<![A-Za-z0-9])#[A-Za-z]\w*")


def placeholder_in(text: str) -> str | None:
    """Give the first of AWE's own placeholders in a text, such as `#shockurl`."""
    found = _ANYWHERE.search(text)
    return found.group() if found else None


def placeholder_in_name(text: str) -> str | None:
    """Give the first placeholder in a file or task name, AWE's own or anybody's."""
    found = _ANYWHERE.search(text) or _IN_NAME.search(text)
    return found.group() if found else None


def left_over(placeholder: str) -> str:
    """Say what is wrong with a placeholder and what would be right."""
    return (
        f"still has the template placeholder '{placeholder}'; "
        f"fill it in before submitting (awe submit --set {placeholder[1:]}=VALUE)"
    )


def placeholder_hint(text: str) -> str:
    """Give a hint for JSON that breaks at a bare placeholder, as in `"totalwork": #totalwork`."""
    found = re.match(r"\s*(#[A-Za-z]\w*)", text)
    return f" (it {left_over(found.group(1))})" if found else ""
