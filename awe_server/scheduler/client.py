"""Client: what the scheduler knows of a daemon on a compute node. An entity as those of entities.py."""

from typing import TYPE_CHECKING, Any

from awe_server.scheduler.entities import Document, Workunit
from shared_models.ids import ClientId, WorkunitId
from shared_models.states import ClientStatus

if TYPE_CHECKING:
    from awe_server.scheduler.demands import Demand

#: What a client says of itself that no rule looks at.
PROFILE_KEYS = (
    "user",
    "domain",
    "instance_id",
    "instance_type",
    "host",
    "hostname",
    "host_ip",
    "proxy",
    "subclients",
    "version",
    "git_commit_hash",
)


class Client:
    """A daemon on a compute node."""

    __slots__ = (
        "apps",
        "blamed",
        "containers",
        "cores",
        "deadline_s",
        "disk_bytes",
        "draining",
        "eligible",
        "eligible_epoch",
        "eligible_seen",
        "file_roots",
        "free_disk_bytes",
        "gpus",
        "group",
        "holds",
        "id",
        "idle_since",
        "incarnation",
        "last_grants",
        "last_request",
        "lastcompleted",
        "memory_bytes",
        "name",
        "native",
        "offline",
        "offline_s",
        "profile",
        "regtime",
        "replaced",
        "skip",
        "suspend_reason",
        "suspended",
        "total_checkout",
        "total_completed",
        "total_failed",
        "trouble",
        "withdrawn",
    )

    def __init__(self, id: ClientId) -> None:
        self.id = id
        self.name = ""
        self.group = ""
        self.apps: tuple[str, ...] = ()
        self.containers: tuple[str, ...] = ()  #: container engines it offers
        self.file_roots: tuple[str, ...] = ()  #: directories that it opens to jobs
        self.cores = 0
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.gpus = 0
        self.profile: Document = {}  #: what it said of itself that no rule looks at (host, version, ...)
        self.native = False  #: speaks exchange
        self.incarnation = ""
        self.regtime = 0.0  #: when it registered first
        self.idle_since = 0.0  #: when it came, or held work last
        self.suspended = False
        self.suspend_reason = ""
        self.offline = False
        self.total_checkout = 0
        self.total_completed = 0
        self.total_failed = 0
        self.lastcompleted = 0.0
        self.blamed: dict[WorkunitId, None] = {}  #: failures in a row that stand on its account
        self.skip: dict[WorkunitId, None] = {}  #: workunits that failed here, oldest first
        # not in the document
        self.holds: dict[WorkunitId, Workunit] = {}  #: leased to it
        self.replaced: dict[str, None] = {}  #: incarnations that another one took the place of, oldest first
        self.deadline_s = 0.0  #: monotonic; its leases run out then
        self.offline_s = 0.0  #: monotonic; since when it is offline
        self.draining = False
        self.trouble = ""  #: what it said last of what keeps it from taking work
        self.free_disk_bytes = -1  #: what it said last that it has left for work; < 0 = nothing said yet
        self.last_request = 0  #: highest request_id of this incarnation
        self.last_grants: list[Any] = []  #: what last_request was given
        self.withdrawn: dict[WorkunitId, None] = {}  #: to be told `discard` at a heartbeat without a list
        self.eligible: list[Demand] = []  #: cache, see demands.py
        self.eligible_seen = 0
        self.eligible_epoch = -1

    def describe(self, profile: Document) -> None:
        """Take over what the client says of itself: a checked profile, or its own document."""
        self.name = str(profile.get("name") or "")
        self.group = str(profile.get("group") or "")
        self.apps = tuple(profile.get("apps") or ())
        self.containers = tuple(profile.get("containers") or ())
        self.file_roots = tuple(profile.get("file_roots") or ())
        self.cores = int(profile.get("cores") or 0)
        self.memory_bytes = int(profile.get("memory_bytes") or 0)
        self.disk_bytes = int(profile.get("disk_bytes") or 0)
        self.gpus = int(profile.get("gpus") or 0)
        self.native = bool(profile.get("native"))
        self.profile = {key: profile[key] for key in PROFILE_KEYS if key in profile}

    @property
    def status(self) -> ClientStatus:
        """What it is doing."""
        if self.offline:
            return ClientStatus.OFFLINE
        if self.suspended:
            return ClientStatus.SUSPEND
        return ClientStatus.BUSY if self.holds else ClientStatus.IDLE

    @property
    def is_live(self) -> bool:
        """Up and allowed to take work."""
        return not (self.offline or self.suspended or self.draining)

    def __repr__(self) -> str:
        return f"<Client {self.id} {self.status}>"
