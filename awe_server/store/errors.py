"""What keeps a store from being opened, or ends its life. Each message is one line that says what to do."""

from pathlib import Path

from shared_models.errors import AweError, StoreUnavailable


class StoreLocked(AweError):
    """Another server owns this store: {owner}."""

    code = "store_locked"


class StoreCorrupt(AweError):
    """The store's file is damaged; any method may raise it."""

    code = "store_corrupt"

    def __init__(self, message: str = "", *, path: Path | str = "?", detail: str = "?") -> None:
        super().__init__(
            message
            or f"{path} is damaged ({detail}); it was left as it is: restore a backup, "
            f"save what is readable with `sqlite3 {path} .recover`, or move it away to start empty",
            path=str(path),
            detail=detail,
        )


class StoreVersion(AweError):
    """{name} holds documents of format {found}, this server reads format {wanted}; use a matching version."""

    code = "store_version"


class LeaseGone(AweError):
    """Another server took over this store: this one must stop and never write again."""

    code = "lease_gone"


def no_answer(reason: str) -> StoreUnavailable:
    """What a request is told that has waited for the store long enough."""
    return StoreUnavailable(f"The store does not answer ({reason}); try again.", reason=reason)
