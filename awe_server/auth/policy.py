"""What a caller may do."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from awe_server.auth.caller import Caller
from shared_models.errors import Forbidden


class Right(StrEnum):
    """The four kinds of access; WORK is a client's: check out, report, fetch secrets of what it holds."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    WORK = "work"


def allow(caller: Caller, right: Right, thing: Mapping[str, Any] | None = None) -> None:
    """Return if the caller has this right on a thing (a document with an `acl`; None = the server itself).

    Raises Forbidden. Source: AWE lib/controller (owner, the right's list, or admin).
    """
    if caller.admin or thing is None:
        return
    acl = thing.get("acl") or {}
    if caller.user != acl.get("owner") and caller.user not in (acl.get(right) or ()):
        raise Forbidden
