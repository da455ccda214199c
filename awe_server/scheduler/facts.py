"""What the runtime found out about a task's data, as arguments of transitions."""

from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class InputFact:
    """An input or predata file that exists."""

    filename: str
    node: str
    size_bytes: int
    md5: str = ""
    url: str = ""
    version: str = ""  #: of a file that is not ours: changes with its content; "" = not told
    index: str = ""  #: names the index that the server has of such a file, if it is cut by one


@dataclass(slots=True, frozen=True)
class OutputFact:
    """The node of an output: empty when the task is prepared, whole when it is finished.

    An output that goes elsewhere has a `staging` node until it is delivered, then perhaps another `url`.
    """

    filename: str
    node: str
    size_bytes: int = 0
    md5: str = ""
    url: str = ""
    staging: str = ""
    is_missing: bool = False  #: nobody made it, and nobody had to


@dataclass(slots=True, frozen=True)
class TaskFacts:
    """All that a task needs to be cut."""

    inputs: list[InputFact] = field(default_factory=list)
    outputs: list[OutputFact] = field(default_factory=list)
    index: str | None = None  #: the index to cut by; None = do not cut
    units: int | None = None  #: how many units it has, of the first file that is cut
    records: int | None = None  #: how many records the input has, if the index counted them
    #: records, or lines, of each file that is cut, in the order of `part_inputs`
    counts: tuple[int, ...] = ()
    note: str = ""  #: why it is not cut although that was asked for
