"""What a user may submit, as typed models: attributes have the JSON names of AWE's documents.

`shared_models.parse` builds these from the text a user sends: it evens out the many legal spellings first, so
a model always has list-form IO, canonical keys and no server-set fields.
Source: AWE lib/core/{job,info,task,io,command,partinfo}.go; differs: `partinfo`, `skip` and `optional` are
read from JSON as AWE's documents promise; `resources`, `time_limit_s`, `max_failures`, `retry_delay_s`,
`keep_failed`, `header_lines`, `stdin`, `stdout` and `stderr` are new.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared_models.fields import MAX_INT
from shared_models.limits import (
    MAX_DURATION_S,
    MAX_ENVIRON,
    MAX_HEADER_LINES,
    MAX_IO,
    MAX_MAX_FAILURES,
    MAX_PRIORITY,
    MAX_TASKS,
    MAX_TEXT_CHARS,
    MAX_TOTALWORK,
    MAX_WORK_CORES,
    MAX_WORK_DISK_BYTES,
    MAX_WORK_GPUS,
    MAX_WORK_MEMORY_BYTES,
)
from shared_models.times import ZERO_TIME

Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARS)]
Amount = Annotated[int, Field(ge=0, le=MAX_INT)]
Duration = Annotated[float, Field(ge=0, le=MAX_DURATION_S)]
Environment = Annotated[dict[str, str], Field(max_length=MAX_ENVIRON)]
FileIndex = Literal["", "size", "line", "record", "chunkrecord"]
PartIndex = Literal["", "size", "line", "record", "chunkrecord", "none"]


class Model(BaseModel):
    """Strict: no value is turned into another type, no unknown key is let through.

    Mutable defaults are given by factories: pydantic would copy them, deeply and slowly, for every task.
    """

    model_config = ConfigDict(strict=True, extra="forbid")


class Info(Model):
    """What a job says about itself."""

    name: Text = ""
    xref: Text = ""
    service: Text = ""
    project: Text = ""
    user: Text = ""  #: a label; ownership is in the ACL
    pipeline: Text = ""
    clientgroups: Text = ""  #: comma list; empty = any client
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = (
        1  #: higher first; at least 1 once parsed
    )
    noretry: bool = False  #: a workunit may fail only once
    userattr: dict[str, Any] = Field(default_factory=dict)
    description: Text = ""
    tracking: bool = False
    start_at: str = ZERO_TIME  #: RFC 3339; no task becomes ready before


class IO(Model):
    """One input, output or predata file. Key order is AWE's."""

    filename: str  #: relative to the work directory, checked
    name: Text = ""
    directory: str = ""  #: output: sub-directory where the command leaves it
    host: Text = ""  #: base URL of a foreign Shock; empty = this server
    node: str = ""  #: node id; empty = not known yet
    url: Text = ""  #: empty if host and node say it all
    size: Amount = 0  #: bytes; set by the server
    cache: bool = False
    origin: str = ""  #: input: name of the task whose output it is
    nonzero: bool = False  #: output: an empty file is a failure
    temporary: bool = False
    shockfilename: str = ""  #: output: renamed to this before upload
    shockindex: FileIndex = ""  #: built on the node: before the task starts, or when the output is whole
    attrfile: str = ""  #: input: node attributes are written here; output: read from here
    nofile: bool = False  #: input: attributes only; output: a missing file is fine
    delete: bool = False  #: input, output: remove the node when the job completes
    type: Literal["", "basic", "copy", "subset", "update"] = ""
    nodeattr: dict[str, Any] = Field(default_factory=dict)
    formoptions: dict[str, str] = Field(default_factory=dict)
    uncompress: Literal["", "gzip"] = ""  #: input, predata: unpacked while it is downloaded
    optional: bool = False  #: output: a missing file is fine
    header_lines: Annotated[int, Field(ge=0, le=MAX_HEADER_LINES)] = (
        0  #: output of a split: kept of part 1 only
    )
    md5: Text = ""  #: input, predata: what its content must have, before it is unpacked


#: Every IO key with its default, in AWE's order. Copy it; never change a value in place.
IO_DEFAULTS: dict[str, Any] = {
    key: "" if field.is_required() else field.get_default(call_default_factory=True)
    for key, field in IO.model_fields.items()
}


class Environ(Model):
    """Environment of a command."""

    public: Environment = Field(default_factory=dict)
    private: Environment = Field(default_factory=dict)  #: only the holder of a live attempt sees it


class Command(Model):
    """What is run."""

    name: str = ""  #: executable; also what a client's `apps` are compared with
    args: str = ""  #: words as a shell would split them, `@input` and `${NAME}` replaced
    args_array: list[str] = Field(default_factory=list)  #: words given one by one, instead of `args`
    cmd_script: list[str] = Field(default_factory=list)  #: lines of a bash script
    Dockerimage: Text = ""
    dockerPull: Text = ""
    environ: Environ = Field(default_factory=Environ)
    description: Text = ""
    stdin: str = ""  #: filename of the input that is fed to the command
    stdout: str = ""  #: file for standard output; empty = awe_stdout.txt
    stderr: str = ""  #: file for standard error; empty = awe_stderr.txt


class PartInfo(Model):
    """How inputs are cut. `input` may also be written as a list: paired files."""

    input: str = ""  #: filename of the input that is cut, or of the first of those
    #: all of them if they are several: they are cut at the same records
    inputs: Annotated[list[str], Field(max_length=MAX_IO)] = Field(default_factory=list)
    index: PartIndex = ""  #: what may not be cut through; `none` = many workunits, nothing cut
    options: Text = ""  #: records=K: so many records belong together (AWE passed its options on to Shock)


class Resources(Model):
    """What one workunit takes of a client while it runs."""

    cores: Annotated[int, Field(ge=1, le=MAX_WORK_CORES)] = 1
    #: also a limit: above it the command is killed; 0 = none
    memory_bytes: Annotated[int, Field(ge=0, le=MAX_WORK_MEMORY_BYTES)] = 0
    disk_bytes: Annotated[int, Field(ge=0, le=MAX_WORK_DISK_BYTES)] = 0
    gpus: Annotated[int, Field(ge=0, le=MAX_WORK_GPUS)] = 0


class TaskDocument(Model):
    """One task of a submitted job."""

    taskid: str  #: short name, as given
    cmd: Command
    dependsOn: list[str] = Field(default_factory=list)  #: short names, as given
    inputs: Annotated[list[IO], Field(max_length=MAX_IO, default_factory=list)]
    outputs: Annotated[list[IO], Field(max_length=MAX_IO, default_factory=list)]
    predata: Annotated[list[IO], Field(max_length=MAX_IO, default_factory=list)]
    partinfo: PartInfo | None = None
    maxworksize: Annotated[int, Field(ge=0, le=MAX_INT)] = (
        0  #: MB (2²⁰ bytes) of input per workunit; 0 = no bound
    )
    totalwork: Annotated[int, Field(ge=1, le=MAX_TOTALWORK)] = 1  #: wanted number of workunits
    userattr: dict[str, Any] = Field(default_factory=dict)
    clientgroups: Text = ""
    resources: Resources = Field(default_factory=Resources)
    time_limit_s: Duration = 0.0  #: of one attempt; 0 = none
    max_failures: Annotated[int, Field(ge=1, le=MAX_MAX_FAILURES)] | None = (
        None  #: None = the server's setting
    )
    retry_delay_s: Duration | None = (
        None  #: before the first retry, then doubled; None = the server's setting
    )
    skip: bool = False
    keep_failed: bool = False  #: what is there of the outputs of a failed attempt is kept, until the job goes


class JobDocument(Model):
    """A submitted job."""

    info: Info = Field(default_factory=Info)
    tasks: Annotated[list[TaskDocument], Field(min_length=1, max_length=MAX_TASKS)]
    shockhost: Text = ""
