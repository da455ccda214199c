"""The shell around the pure scheduler: runs transitions, makes what they changed durable, then answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from awe_server.store.base import Collection, Document, Match, Operation, Page, Query
from shared_models.ids import JobId, WorkunitId

if TYPE_CHECKING:
    from awe_server.runtime.events import EventLog
    from awe_server.runtime.waiters import Waiters
    from awe_server.scheduler.state import Context, State

P = ParamSpec("P")
T = TypeVar("T")


class Engine:
    """Owns the live state. One event loop, so no locks."""

    state: "State"
    waiters: "Waiters"
    events: "EventLog"
    server_uuid: str
    store_name: str

    def context(self) -> "Context":
        """Now, and a source of tokens, for one transition."""
        raise NotImplementedError

    async def do(
        self, transition: "Callable[Concatenate[State, Context, P], T]", *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a transition now; return its result when everything marked so far is durable.

        Raises what the transition refuses with, or StoreUnavailable when the store did not take the batch in
        commit_wait_s (the change stays and will be committed).
        """
        raise NotImplementedError

    async def do_with(
        self,
        ops: Sequence[Operation],
        transition: "Callable[Concatenate[State, Context, P], T]",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `do`, with further documents in the same batch."""
        raise NotImplementedError

    async def look(self, view: "Callable[Concatenate[State, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a pure view of the state; return when everything it could have seen is durable."""
        raise NotImplementedError

    async def put(self, *ops: Operation) -> None:
        """Store documents that are not the scheduler's (nodes, users), in the same group commit."""
        raise NotImplementedError

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One stored document; what was marked before is waited for."""
        raise NotImplementedError

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Stored documents by id; what was marked before is waited for."""
        raise NotImplementedError

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of stored documents; what was marked before is waited for."""
        raise NotImplementedError

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values of a field."""
        raise NotImplementedError

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many documents there are for each value of a field."""
        raise NotImplementedError

    async def ensure_job(self, job_id: JobId) -> None:
        """Load a finished job back into the live state, so that a verb can act on it.

        Raises JobNotFound.
        """
        raise NotImplementedError

    async def job_documents(self, job_id: JobId) -> tuple[Document, list[Document]]:
        """A job and its tasks, live or stored. Raises JobNotFound."""
        raise NotImplementedError

    async def finished(self, workunit_ids: Sequence[WorkunitId]) -> Mapping[WorkunitId, Document]:
        """Documents of workunits that are not live any more, for `report` and `exchange`."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether recovery is over and nothing stops the engine."""
        raise NotImplementedError

    @property
    def store_trouble(self) -> str:
        """What the store answered last, "" when it works; for /health."""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover, then start ticking."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Refuse new work, make everything durable, stop the background tasks."""
        raise NotImplementedError
