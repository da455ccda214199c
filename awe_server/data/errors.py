"""What can be wrong with data: the tree of shared_models.errors continues here."""

from shared_models.errors import BadRequest, Conflict


class InvalidData(BadRequest):
    """{file}: record {record}, line {line}: {problem}"""

    code = "invalid_data"


class NotCuttable(BadRequest):
    """{file} cannot be cut: {reason}"""

    code = "not_cuttable"


class NoFile(BadRequest):
    """Node has no file"""

    code = "no_file"


class NoIndex(BadRequest):
    """Node {node_id} has no index '{kind}'; build it first."""

    code = "no_index"


class MissingPart(Conflict):
    """Part {rank} (attempt {attempt}) of node {node_id} was never uploaded."""

    code = "missing_part"
