"""`partinfo.options`: how many records, or lines, belong together and are never torn apart."""

import re

_OPTION = re.compile(r"records=([1-9][0-9]{0,5})", re.ASCII)

#: What is wrong with options that `records_together` does not understand.
OPTIONS_PROBLEM = (
    "must be 'records=K', K records that belong together (interleaved pairs: records=2), or left out"
)


def records_together(options: str) -> int:
    """How many records belong together; 1 = each stands for itself. 0 = the options say something else."""
    if not options:
        return 1
    match = _OPTION.fullmatch(options)
    return int(match[1]) if match else 0
