"""Everything that comes from outside is bounded. One name for each bound, tested at its edge."""

MIB = 1024 * 1024

MAX_DOCUMENT_BYTES = 64 * MIB  #: a submitted job document
MAX_DEPTH = 64  #: nesting of a submitted document
MAX_VALUES = 4_000_000  #: values in a submitted document, of any kind
MAX_TASKS = 100_000  #: tasks of one job
MAX_TOTALWORK = 10_000_000  #: workunits of one task
MAX_IO = 1_000  #: inputs, outputs or predata of one task
MAX_NAME_CHARS = 255  #: a task name; a file name is bounded in bytes by the same number
MAX_PATH_BYTES = 1_024  #: a relative file path
MAX_MEMBERS = 1_000_000  #: files, folders and links of one archive
MAX_MEMBER_DEPTH = 100  #: folders that a member of an archive lies in
MAX_PATTERNS = 32  #: outputs of one task that are patterns: each is compared with all others
MAX_WORD_BYTES = (
    131_071  #: one word of a command line, or one variable: Linux starts no process with a longer one
)
MAX_ENVIRON_CHARS = 524_288  #: public, and private, environment of one command
MAX_ENVIRON = 1_000  #: environment variables of one command
MAX_DURATION_S = 366 * 86_400  #: a time limit or a retry delay
MAX_MAX_FAILURES = 1_000  #: failures a task may allow its workunits
MAX_ATTRIBUTES_BYTES = MIB  #: attributes of a node, as JSON
MAX_HEADER_LINES = 1_000_000  #: header lines of a split output
MAX_TEXT_CHARS = 16_384  #: any free text of a document (description, ...)
MAX_ARGS_CHARS = 1_048_576  #: a command's arguments
MAX_TOKEN_CHARS = 8_192  #: a data token; it travels in a header
MAX_WORK_CORES = 65_536  #: cores that one workunit may ask for: beyond any machine
MAX_WORK_GPUS = 1_024  #: the same for GPUs
MAX_WORK_MEMORY_BYTES = 2**50  #: the same for memory
MAX_WORK_DISK_BYTES = 2**60  #: the same for disk
MAX_PRIORITY = 1_000_000  #: priority lies between -MAX_PRIORITY and MAX_PRIORITY
MAX_TASK_DOCUMENT_BYTES = 4 * MIB  #: one task as submitted
MAX_INFO_BYTES = MIB // 4  #: a job's info; it is shown with each task and each workunit
MAX_REPEATED_INFO_BYTES = 256 * MIB  #: a job's info, times its tasks
MAX_STORED_BYTES = 12 * MIB  #: a document of the store; MongoDB's bound is 16 MiB
MAX_NEW_STORED_BYTES = 8 * MIB  #: the same for a new job or task: what it becomes must fit in as well
MAX_TASK_NAMES_BYTES = 4 * MIB  #: all task ids of a job together; they are listed in its document
MAX_REFERENCE_STEPS = 5_000_000  #: work spent on the `@name`s of one document
MAX_NOTES_CHARS = 4_096  #: notes of a job or a report
MAX_TAIL_BYTES = 65_536  #: tail of stdout or stderr in a report
MAX_APPERROR_CHARS = 5_000  #: stderr tail kept in a job's error object (AWE §3.3)
MAX_PERF_KEYS = 100  #: measured values in a report
MAX_LOG_BYTES = 16 * MIB  #: a full log kept on the server
MAX_PROFILE_BYTES = MIB  #: a client's registration
MAX_APPS = 1_000  #: apps a client offers
MAX_FILE_ROOTS = 100  #: directories that a server or a client opens to jobs
MAX_CORES = 1_000_000  #: cores, gpus or subclients of a client
MAX_STOPPED = 1_000  #: removed clients that are still told so, the last ones
MAX_SKIP_LIST = 1_000  #: workunits on a client's skip list
MAX_PAGE = 1_000  #: rows of one list reply
DEFAULT_PAGE = 25
MAX_WANT = 1_024  #: workunits asked for in one exchange
MAX_REPORTS = 1_024  #: reports in one exchange
MAX_HOLDS = 4_096  #: attempts a client may hold
MAX_WAIT_S = 60.0  #: long-poll
