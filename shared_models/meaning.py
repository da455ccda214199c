"""What the values of a document must mean, beyond their types: names, groups, times."""

import re

from shared_models.documents import Info
from shared_models.limits import MAX_NAME_CHARS
from shared_models.placeholders import left_over, placeholder_in, placeholder_in_name
from shared_models.problems import Problems
from shared_models.times import parse_rfc3339

GROUP_NAME = re.compile(r"[A-Za-z0-9_\-.]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_info(info: Info, problems: Problems) -> None:
    """Check a job's info; its priority becomes at least 1, as AWE does at submission."""
    for key in ("name", "project", "user", "pipeline"):
        placeholder = placeholder_in(getattr(info, key))
        if placeholder:
            problems.add(f"info.{key}", left_over(placeholder))
    info.clientgroups = check_groups(info.clientgroups, "info.clientgroups", problems)
    info.priority = max(1, info.priority)
    try:
        parse_rfc3339(info.start_at)
    except ValueError:
        problems.add("info.start_at", f"'{info.start_at[:100]}' is no time such as 2026-01-31T12:00:00Z")


def check_groups(text: str, path: str, problems: Problems) -> str:
    """Check a comma list of client groups and give it without blanks and empty entries.

    Source: AWE lib/core/cqmgr.go filterWorkByClient; differs: AWE kept blanks, so `a, b` never matched `b`.
    """
    groups = [group for part in text.split(",") if (group := part.strip())]
    for group in groups:
        if not GROUP_NAME.fullmatch(group):
            placeholder = placeholder_in(group)
            problems.add(
                path,
                left_over(placeholder)
                if placeholder
                else f"'{group[:100]}' is not a group name; letters, digits, '_', '-' and '.' are allowed",
            )
    return ",".join(groups)


def task_name_problem(name: str) -> str | None:
    """Say why a task may not have this name, or None."""
    if not name:
        return "is empty; a task needs a name of its own, such as '0'"
    if len(name) > MAX_NAME_CHARS:
        return f"is longer than {MAX_NAME_CHARS} characters"
    if "/" in name:
        return f"'{name}' has a '/', which would break its address"
    if _CONTROL.search(name):
        return f"{name!r} has a control character"
    placeholder = placeholder_in_name(name)
    return left_over(placeholder) if placeholder else None
