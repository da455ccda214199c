"""What the API shows, as models: what the SDK returns, and what the OpenAPI document says.

The server does not build its replies through these. Every key has a default, null means the default, and
further keys are let through, so that replies of an older, newer or original server can be read too. Attribute
names are the JSON names.
"""

from typing import Any

from pydantic import ConfigDict, Field

from shared_models.shown import Shown
from shared_models.times import ZERO_TIME


class JobError(Shown):
    """Why a job stands still."""

    clientfailed: str = ""
    workfailed: str = ""
    taskfailed: str = ""
    servernotes: str = ""
    worknotes: str = ""
    apperror: str = ""  #: the end of stderr
    status: str = ""  #: the state that it caused


class InfoView(Shown):
    """What a job says about itself, and its times."""

    name: str = ""
    xref: str = ""
    service: str = ""
    project: str = ""
    user: str = ""
    pipeline: str = ""
    clientgroups: str = ""
    submittime: str = ZERO_TIME
    startedtime: str = ZERO_TIME
    completedtime: str = ZERO_TIME
    priority: int = 1
    auth: bool = False  #: a data token is stored
    noretry: bool = False
    userattr: dict[str, Any] = Field(default_factory=dict)
    description: str = ""
    tracking: bool = False
    start_at: str = ZERO_TIME


class IOView(Shown):
    """A file of a task, with the address from which it can be fetched."""

    filename: str = ""
    name: str = ""
    directory: str = ""
    host: str = ""
    node: str = "-"  #: `-` = not known yet
    url: str = ""
    size: int = 0
    cache: bool = False
    origin: str = ""
    nonzero: bool = False
    temporary: bool = False
    shockfilename: str = ""
    shockindex: str = ""
    attrfile: str = ""
    nofile: bool = False
    delete: bool = False
    type: str = ""
    nodeattr: dict[str, Any] = Field(default_factory=dict)
    formoptions: dict[str, Any] = Field(default_factory=dict)
    uncompress: str = ""
    optional: bool = False
    not_made: bool = False  #: its task was completed without this output
    header_lines: int = 0
    md5: str = ""  #: as the document states it


class EnvironView(Shown):
    """The public environment of a command."""

    public: dict[str, str] = Field(default_factory=dict)


class CommandView(Shown):
    """A command; of its private environment only that there is one."""

    name: str = ""
    args: str = ""
    args_array: list[str] = Field(default_factory=list)
    cmd_script: list[str] = Field(default_factory=list)
    Dockerimage: str = ""
    dockerPull: str = ""
    environ: EnvironView = Field(default_factory=EnvironView)
    has_private_env: bool = False
    description: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""


class PartView(Shown):
    """How inputs are cut."""

    input: str = ""
    inputs: list[str] = Field(default_factory=list)  #: all that are cut, if they are several
    index: str = ""
    totalindex: int = 0  #: units found; with options records=K, groups of K
    totalrecords: int | None = None  #: records of the input, if the index counted them
    doneindex: int | None = None  #: units that were processed, once the task is completed
    donerecords: int | None = None  #: records that were processed
    maxpartsize_mb: int = 0
    options: str = ""


class ResourcesView(Shown):
    """What one workunit takes of a client while it runs."""

    cores: int = 1
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpus: int = 0


class _Work(Shown):
    """What a task and its workunits have in common."""

    id: str = ""
    jobid: str = ""
    taskid: str = ""
    task_name: str = ""
    state: str = ""
    info: InfoView = Field(default_factory=InfoView)
    inputs: list[IOView] = Field(default_factory=list)
    outputs: list[IOView] = Field(default_factory=list)
    predata: list[IOView] = Field(default_factory=list)
    cmd: CommandView = Field(default_factory=CommandView)
    partinfo: PartView | None = None
    maxworksize: int = 0
    totalwork: int = 1
    computetime: int = 0  #: seconds
    notes: str | list[str] = ""
    userattr: dict[str, Any] = Field(default_factory=dict)
    resources: ResourcesView = Field(default_factory=ResourcesView)
    time_limit_s: float = 0.0


class TaskView(_Work):
    """A task of a job."""

    dependsOn: list[str] = Field(default_factory=list)  #: full task ids
    remainwork: int = 0
    createddate: str = ZERO_TIME
    starteddate: str = ZERO_TIME
    completeddate: str = ZERO_TIME
    clientgroups: str = ""
    max_failures: int | None = None
    retry_delay_s: float | None = None
    skip: bool = False
    keep_failed: bool = False


class JobView(Shown):
    """A job with its tasks."""

    id: str = ""
    jid: str = ""
    info: InfoView = Field(default_factory=InfoView)
    tasks: list[TaskView] = Field(default_factory=list)
    tasks_omitted: int = 0  #: of a list: its tasks, which are too many to be shown in it
    state: str = ""
    registered: bool = False  #: the scheduler has it in memory
    remaintasks: int = 0
    expiration: str = ZERO_TIME
    updatetime: str = ZERO_TIME
    notes: str = ""
    lastfailed: str = ""
    error: JobError | None = None
    resumed: int = 0
    shockhost: str = ""
    revision: int = 0  #: grows with every change


class TransferView(Shown):
    """How far the files of a workunit are that its client fetches or uploads at the moment."""

    stage: str = ""  #: fetching, pushing
    bytes: int = 0
    total_bytes: int = -1  #: -1 = not known
    at: str = ZERO_TIME  #: when the client said so
    waits: str = ""  #: why nothing moves; only while it waits


class WorkunitView(_Work):
    """A workunit with what it inherits from its task and job."""

    wuid: str = ""
    rank: int = 0  #: 0 = the only one, 1..N = one of a split
    part: PartView | None = None
    failed: int = 0
    lost: int = 0
    attempt: int = 0
    client: str = ""
    checkout_time: str = ZERO_TIME
    done_time: str = ZERO_TIME
    exitstatus: int = -1
    kept: str = ""  #: node of what its last failed attempt left, if its task wants that kept
    progress: TransferView | None = None  #: only while a transfer takes a while


class WorkList(Shown):
    """Ids of workunits; older servers write each as a key of its own."""

    data: list[str] = Field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The ids, whichever way they were sent."""
        return self.data or list(self.model_extra or ())


class ClientView(Shown):
    """A client."""

    id: str = ""
    name: str = ""
    group: str = ""
    user: str = ""
    domain: str = ""
    instance_id: str = ""
    instance_type: str = ""
    host: str = ""
    hostname: str = ""
    host_ip: str = ""
    cores: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpus: int = 0
    apps: list[str] = Field(default_factory=list)
    containers: list[str] = Field(default_factory=list)
    file_roots: list[str] = Field(default_factory=list)  #: directories that it opens to jobs
    regtime: str = ZERO_TIME  #: when it registered first
    serve_time: str = ""  #: since it registered, such as `50h16m`
    idle_time: int = 0  #: seconds since it held work last
    idle_since: str = ZERO_TIME
    Status: str = ""
    suspended: bool = False
    suspend_reason: str = ""
    trouble: str = ""  #: what keeps it from taking work, as it said last
    total_checkout: int = 0
    total_completed: int = 0
    total_failed: int = 0
    lastcompleted: str = ZERO_TIME
    consecutive_failures: int = 0
    current_work: WorkList = Field(default_factory=WorkList)
    skip_work: list[str] = Field(default_factory=list)
    remaintasks: int = 0
    proxy: bool = False
    subclients: int = 0
    version: str = ""
    git_commit_hash: str = ""
    native: bool = False  #: speaks exchange


class NodeFile(Shown):
    """The bytes of a node."""

    name: str = ""
    size: int = 0
    checksum: dict[str, str] = Field(default_factory=dict)


class NodeView(Shown):
    """A data node."""

    id: str = ""
    file: NodeFile | None = None
    attributes: Any = None
    indexes: dict[str, Any] = Field(default_factory=dict)
    created_on: str = ZERO_TIME
    last_modified: str = ZERO_TIME
    expiration: str = Field(ZERO_TIME, description="when it goes, unless an unfinished job uses it")
    owner: str = ""
    job: str | None = None
    task: str | None = None
    tags: list[str] = Field(default_factory=list)
    header_lines: int = 0


class Registered(ClientView):
    """A client that has just registered."""

    server_uuid: str = ""
    lease_s: float = Field(0.0, description="how long the server waits for a sign of life")


class _Whole(Shown):
    """Our server sends every key."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class QueueCounts(_Whole):
    """How much there is of everything, by state."""

    jobs: dict[str, int] = Field(default_factory=dict)
    tasks: dict[str, int] = Field(default_factory=dict)
    workunits: dict[str, int] = Field(default_factory=dict)
    clients: dict[str, int] = Field(default_factory=dict)


class Stored(_Whole):
    """What the server counted of an upload."""

    size: int = 0
    md5: str = ""
    sha256: str = ""


class Unfinished(_Whole):
    """How many bytes the server has of an upload, of a node or of an attempt's output."""

    offset: int = 0


class IndexView(Shown):
    """An index of a node's file."""

    kind: str = ""
    total_units: int = 0
    format: str = ""  #: what a unit is: size, line, fasta, ...
    records: int | None = None  #: in the whole file, if they were counted


class EventView(_Whole):
    """Something that happened. What it happened to is in further keys, such as `job`."""

    seq: int = 0
    time: str = ZERO_TIME
    code: str = Field("", examples=["WD"])


class NodeStoreUsage(_Whole):
    """How full the node store is."""

    used_bytes: int = Field(0, description="of files in nodes and on their way; shared bytes count once")
    quota_bytes: int = Field(0, description="what it may use; 0 = no limit")
    free_bytes: int = Field(0, description="of its file system")


class StoreLease(_Whole):
    """The claim to be the only one of several servers that writes."""

    epoch: int = Field(0, description="grows with every change of owner")
    until: str = ZERO_TIME


class Health(_Whole):
    """Whether this server works."""

    live: bool = False
    ready: bool = False
    store: str = Field("", examples=["sqlite:/var/lib/awe/awe.db"])
    store_trouble: str = Field("", description="what the store answered last; empty when it works")
    lease: StoreLease | None = Field(None, description="null for a store whose lock cannot run out")
    version: str = ""
    server_uuid: str = ""
    node_store: NodeStoreUsage | None = Field(None, description="null until it is ready")


class ServerInfo(Shown):
    """What a server is."""

    id: str = ""
    type: str = ""
    title: str = ""
    version: str = ""
    uuid: str = ""  #: the same after a restart
    url: str = ""
    documentation: str = ""
    resources: list[str] = Field(default_factory=list)
    queue_status: str = ""  #: running or suspended
    server_time: str = ZERO_TIME
    uptime: str = ""
