"""One tree of errors for server and client.

AweError                      internal            500
├─ BadRequest                 invalid_request     400   InvalidDocument, UnknownParameter, InvalidData,
│                                                   NotCuttable, NoFile, NoIndex
├─ Unauthenticated            unauthenticated     401
├─ Forbidden                  forbidden           403
├─ NotFound                   not_found           404   JobNotFound, TaskNotFound, WorkunitNotFound,
│                                                   ClientNotFound, NodeNotFound
├─ Conflict                   conflict            409   IllegalMove, LeaseLost, AlreadyExists,
│                                                   ClientSuspended, StaleExchange, MissingPart
├─ TooLarge                   too_large           413
├─ BadRange                   bad_range           416
├─ Unavailable                unavailable         503   StoreUnavailable (NotConfirmed), QueueSuspended,
│                                                   Starting (LeadInDoubt), ShuttingDown
├─ NoSpace                    no_space            507   QuotaExceeded
└─ ServerUnreachable          server_unreachable  client side only: NotAnAweServer

Every class that crosses the wire stands here: the server turns a class into its status and code in one
handler, and the client raises the same class again from the code. Rooms add only what stays inside one
process (store/errors.py, ...).
"""

from typing import Any, ClassVar


class AweError(Exception):
    """Something went wrong inside."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", **fields: Any) -> None:
        self.fields = fields
        text = message or (type(self).__doc__ or "").split("\n", 1)[0].format_map(_Fields(fields))
        super().__init__(text)

    @property
    def message(self) -> str:
        """The text a person reads."""
        return str(self.args[0])


class _Fields(dict[str, Any]):
    """Lets a default message name a field that was not given."""

    def __missing__(self, key: str) -> str:
        return "?"


class BadRequest(AweError):
    """The request is not valid."""

    code = "invalid_request"
    http_status = 400


class InvalidDocument(BadRequest):
    """The document is not valid.

    `problems` is a list of `<field path>: <what is wrong>[; <what would be right>]`.
    """

    code = "invalid_document"

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        super().__init__("; ".join(self.problems), problems=self.problems)


class UnknownParameter(BadRequest):
    """Unknown parameter '{name}'."""

    code = "unknown_parameter"


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


class Unauthenticated(AweError):
    """Invalid Auth Header"""

    code = "unauthenticated"
    http_status = 401


class Forbidden(AweError):
    """User Unauthorized"""

    code = "forbidden"
    http_status = 403


class NotFound(AweError):
    """Not found."""

    code = "not_found"
    http_status = 404


class JobNotFound(NotFound):
    """job not found:{job_id}"""

    code = "job_not_found"


class TaskNotFound(NotFound):
    """task not found:{task_id}"""

    code = "task_not_found"


class WorkunitNotFound(NotFound):
    """no workunit found with id {workunit_id}"""

    code = "workunit_not_found"


class ClientNotFound(NotFound):
    """Client not found"""

    code = "client_not_found"


class NodeNotFound(NotFound):
    """Node not found: {node_id}"""

    code = "node_not_found"


class Conflict(AweError):
    """The request does not fit the present state."""

    code = "conflict"
    http_status = 409


class IllegalMove(Conflict):
    """{entity} {id} cannot go from '{source}' to '{target}'."""

    code = "illegal_move"


class UnreadableJob(Conflict):
    """This server cannot read the documents of job {job_id} ({problem})."""

    code = "unreadable_job"


class UnreadableNode(Conflict):
    """This server cannot read the document of node {node_id} ({problem})."""

    code = "unreadable_node"


class LeaseLost(Conflict):
    """The attempt is not held any more: workunit {workunit_id}."""

    code = "lease_lost"


class AlreadyExists(Conflict):
    """It exists already."""

    code = "already_exists"


class ClientSuspended(Conflict):
    """Client suspended"""

    code = "client_suspended"


class StaleExchange(Conflict):
    """A newer exchange of this client, or another incarnation of it, was served already."""

    code = "stale_exchange"


class MissingPart(Conflict):
    """Part {rank} (attempt {attempt}) of node {node_id} was never uploaded."""

    code = "missing_part"


class TooLarge(AweError):
    """The request is too large."""

    code = "too_large"
    http_status = 413


class BadRange(AweError):
    """The requested range is not satisfiable."""

    code = "bad_range"
    http_status = 416


class Unavailable(AweError):
    """The server cannot do this now; try again."""

    code = "unavailable"
    http_status = 503
    retryable = True


class StoreUnavailable(Unavailable):
    """The store does not answer; try again."""

    code = "store_unavailable"


class NotConfirmed(StoreUnavailable):
    """It was accepted, but the store has not confirmed it ({reason}): it may still be carried out.

    Only what means the same when it arrives twice may be repeated.
    """

    code = "not_confirmed"


class QueueSuspended(Unavailable):
    """Server queue is suspended"""

    code = "queue_suspended"


class Starting(Unavailable):
    """The server is reading its state; try again."""

    code = "starting"


class LeadInDoubt(Starting):
    """Another server may lead by now, so nothing is known for sure here; try again, or ask that one."""

    code = "lead_in_doubt"


class ShuttingDown(Unavailable):
    """The server is shutting down."""

    code = "shutting_down"


class NoSpace(AweError):
    """No space left on the server's disk."""

    code = "no_space"
    http_status = 507
    retryable = True


class QuotaExceeded(NoSpace):
    """{wanted_bytes} bytes more do not fit into the quota: {used_bytes} of {limit_bytes} bytes are taken."""

    code = "quota_exceeded"


class ServerUnreachable(AweError):
    """The server cannot be reached."""

    code = "server_unreachable"
    http_status = 503
    retryable = True


class NotAnAweServer(ServerUnreachable):
    """Something answers there, and it is not an AWE server."""

    code = "not_an_awe_server"
    retryable = False


def _tree(root: type[AweError]) -> dict[str, type[AweError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def error_classes() -> dict[str, type[AweError]]:
    """Every error class by its code."""
    return _tree(AweError)


def error_from_code(code: str, message: str) -> AweError:
    """Build the error that a reply's `code` names; an unknown code gives a plain AweError."""
    cls = error_classes().get(code, AweError)
    return cls(message)
