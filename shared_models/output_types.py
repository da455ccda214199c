"""What the `type` of an output asks for, and which keys go with it.

basic (or none)  the file is stored
copy             no file: the output is a copy of another node
subset           the file lists units of another node's index; the output has just these
update           no file: only attributes are written, to a node that is there already
The other node is `formoptions.parent_node`, or that of the input `formoptions.parent_name`. Checked form
options have one of these two; a subset has `parent_index`, a copy has `copy_indexes` "1" or leaves it out.
Source: AWE lib/core/io.go DataUrl, lib/shock putFileToShock; differs: what could not be followed is refused.
"""

import re
from collections.abc import Iterable

from shared_models.documents import IO
from shared_models.locations import is_node_id
from shared_models.nearest import did_you_mean
from shared_models.paths import normal_relative_path
from shared_models.problems import Problems

_INDEXES = ("size", "line", "record", "chunkrecord")
_YES = re.compile(r"1|true|yes", re.IGNORECASE)
_NO = re.compile(r"0|false|no|", re.IGNORECASE)
#: Which form options each type reads.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "copy": ("parent_node", "parent_name", "copy_indexes"),
    "subset": ("parent_node", "parent_name", "parent_index"),
}
#: What speaks of the file of an output that has none.
_OF_FILES = ("directory", "nonzero", "optional", "nofile", "header_lines")
_SENSELESS: dict[str, tuple[str, ...]] = {
    "copy": _OF_FILES,
    "subset": ("optional", "nofile", "header_lines"),
    "update": (*_OF_FILES, "shockfilename", "shockindex", "delete", "formoptions"),
}


def check_output_type(io: IO, place: str, inputs: Iterable[IO], problems: Problems) -> None:
    """Check an output that is in its form against its type, and even out its form options."""
    if io.type in ("", "basic"):
        if io.formoptions:
            problems.add(f"{place}.formoptions", "apply to outputs of type 'copy' and 'subset' only")
        return
    for key in _SENSELESS[io.type]:
        if getattr(io, key):
            problems.add(f"{place}.{key}", f"does not apply to outputs of type '{io.type}'; leave it out")
    if io.type == "update":
        _check_update(io, place, problems)
    else:
        _check_options(io, f"{place}.formoptions", inputs, problems)


def _check_update(io: IO, place: str, problems: Problems) -> None:
    if bool(io.node) == bool(io.origin):
        what = "is given beside origin; leave out one of them" if io.node else "is missing, and so is origin"
        problems.add(f"{place}.node", f"{what}; an update is of a node here, or of an origin task's output")
    if not (io.nodeattr or io.attrfile):
        problems.add(f"{place}.nodeattr", "is missing, and so is attrfile; an update changes attributes only")


def _check_options(io: IO, path: str, inputs: Iterable[IO], problems: Problems) -> None:
    options = io.formoptions
    known = _OPTIONS[io.type]
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            problems.add(f"{path}.{key[:100]}", f"does not apply to outputs of type '{io.type}'{hint}")
    if bool(options.get("parent_node")) == bool(options.get("parent_name")):
        problems.add(path, "must have either parent_node (a node id) or parent_name (an input of this task)")
    elif options.get("parent_node"):
        node = options["parent_node"] = options["parent_node"].lower()
        if not is_node_id(node):
            problems.add(f"{path}.parent_node", f"'{node[:200]}' is not a node id (a uuid)")
    else:
        options["parent_name"] = normal_relative_path(options["parent_name"])
        _check_parent(options["parent_name"], f"{path}.parent_name", inputs, problems)
    if io.type == "subset" and options.get("parent_index") not in _INDEXES:
        given = options.get("parent_index", "")
        what = f"'{given[:100]}' is no index" if given else "is missing"
        problems.add(f"{path}.parent_index", f"{what}; it must be one of {', '.join(_INDEXES)}")
    copied = options.pop("copy_indexes", "") if io.type == "copy" else ""
    if _YES.fullmatch(copied):
        options["copy_indexes"] = "1"
    elif not _NO.fullmatch(copied):
        problems.add(f"{path}.copy_indexes", f"'{copied[:100]}' must be 1 or 0")


def _check_parent(name: str, path: str, inputs: Iterable[IO], problems: Problems) -> None:
    by_name = {io.filename: io for io in inputs}
    parent = by_name.get(name)
    if parent is None:
        problems.add(path, f"'{name[:200]}' is not an input of this task{did_you_mean(name, by_name)}")
    elif parent.url:
        problems.add(path, f"'{name[:200]}' is not a node of this server, and only those can be parents")
