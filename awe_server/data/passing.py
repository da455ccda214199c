"""Trouble that may pass by itself, and trouble that somebody has to end first."""

import errno

#: Answers that may be others the next time, besides 5xx; and 5xx that no waiting changes: the method or the
#: protocol is not known there.
_PASSING = frozenset({408, 425, 429})
_FOR_GOOD = frozenset({501, 505})

#: What a person has to put right. The rest may pass: a network file system has its moments, and so has a
#: server that is short of descriptors, memory or room.
_FOR_GOOD_ERRNOS = frozenset({
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP,
    errno.ENOTEMPTY, errno.EEXIST, errno.EXDEV, errno.ENXIO,
})  # fmt: skip


def is_passing(status: int) -> bool:
    """Whether the same request may be answered otherwise a little later."""
    return status in _PASSING or (status >= 500 and status not in _FOR_GOOD)


def is_passing_errno(number: int | None) -> bool:
    """Whether the same use of a shared file system may go better a little later."""
    return number not in _FOR_GOOD_ERRNOS
