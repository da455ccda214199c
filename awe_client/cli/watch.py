"""Follow a job until it has ended: a progress bar for people, lines when piped."""

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from awe_client.api import AweClient
from awe_client.cli.kept import kept_of, tell_kept
from awe_client.cli.output import (
    EXIT_FAILED,
    console,
    exit_code_of,
    note,
    notes_of,
    print_error,
    print_json,
    state_in_words,
)
from awe_client.sdk.jobs import ENDED_JOB_STATES
from shared_models.errors import AweError, JobNotFound
from shared_models.faces import JobProgress, TaskProgress
from shared_models.states import JobState, TaskState
from shared_models.views import JobError, JobView

#: Tasks that get a bar of their own; a job with more of them gets one bar in all.
MAX_BARS = 12
#: A job of which nothing was finished for so long may wait for something: it is said where to ask.
QUIET_S = 30.0
#: A job that has not ended so soon is worth a look whether there is anybody to run it.
SOON_S = 3.0
#: Why a task stopped is told at the end, with what may be done.
STOPPED = (TaskState.SUSPEND, TaskState.FAILED_PERMANENT)
#: A task that ended without an output which another one needs.
UNMADE = re.compile(r"task '([^']+)' was completed without making it")
#: What the server says of jobs that stay wrong however often they go on.
UNMENDABLE = (
    " does not exist",
    "paired inputs differ",
    ", no multiple of ",
    " both made '",
    " was completed without making it",
)


class Counted(Protocol):
    """A task, in whichever detail."""

    totalwork: int
    remainwork: int


def done_and_total(tasks: Iterable[Counted]) -> tuple[int, int]:
    """Finished workunits and all workunits."""
    counts = [(task.totalwork, task.remainwork) for task in tasks]
    total = sum(work for work, _ in counts)
    return total - sum(left for _, left in counts), total


class Bars:
    """Bars on a terminal's stderr; elsewhere a line for each change of state."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._bars: dict[str, TaskID] = {}
        self._last = ""
        self._told: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def show(self, job: JobProgress) -> None:
        """Show how far the job is now."""
        tasks = job.tasks or []
        self._tell_notes(tasks)
        if not self._console.is_terminal:
            done, total = done_and_total(tasks)
            line = f"job {job.jid} {job.state}: {done} of {total} workunits done"
            if line != self._last:
                note(line)
            self._last = line
        elif len(tasks) <= MAX_BARS:
            for task in tasks:
                self._bar(task.task_name, task.state, [task])
        else:
            self._bar(f"job {job.jid}", job.state, tasks)

    def _tell_notes(self, tasks: Iterable[TaskProgress]) -> None:
        """Print what is noted about tasks that go on, such as why one was not split: each once."""
        for task in tasks:
            told = task.task_name, notes_of(task.notes)
            if told[1] and task.state not in STOPPED and told not in self._told:
                self._told.add(told)
                self.say(f"task {told[0]}: {told[1]}")

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(Text(text))

    def _bar(self, name: str, state: str, tasks: Sequence[TaskProgress]) -> None:
        done, total = done_and_total(tasks)
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total, state=state)
        self._progress.update(self._bars[name], completed=done, total=total, state=state)


def watch_job(awe: AweClient, job_id: str, *, as_json: bool) -> int:
    """Wait until the job has ended, showing how far it is; return the exit code.

    0 completed; 1 suspended, failed, deleted or removed, with the reason on stderr.
    """
    try:
        job = awe.wait_job(job_id) if as_json else _watched(awe, job_id)
    except JobNotFound:  # it was there when we began
        print_error(JobNotFound(f"job {job_id} was removed while it was watched"), as_json)
        return EXIT_FAILED
    except KeyboardInterrupt:
        note(f"job {job_id} goes on: awe watch {job_id}, awe rm {job_id}")
        raise
    code = exit_code_of(job)
    if as_json:
        print_json(job)
    elif code:
        explain(job)
        if any(task.keep_failed for task in job.tasks):
            tell_kept(kept_of(awe, job.id))
    return code


def _watched(awe: AweClient, job_id: str) -> JobView:
    with Bars() as bars:
        return _wait(awe, job_id, bars)


def _wait(awe: AweClient, job_id: str, bars: Bars) -> JobView:
    """Wait until the job has ended; say once that nobody is there to run it, and when nothing moves for a
    while, once where to ask.
    """
    seen, wait_s = 0, SOON_S
    is_told = is_asked = False
    while True:
        job = awe.wait_job(job_id, timeout_s=wait_s, on_change=bars.show)
        if job.state in ENDED_JOB_STATES:
            return job
        if not is_told and _nobody_works(awe):
            is_told = True
            bars.say(
                "no client is online: the job goes on once one is (awe clients lists those that are known)"
            )
        done, _ = done_and_total(job.tasks)
        if done == seen and wait_s == QUIET_S and not is_asked:
            is_asked = True
            bars.say(f"nothing was finished for {QUIET_S:.0f} s: awe why {job.id} says what it waits for")
        seen, wait_s = done, QUIET_S


def _nobody_works(awe: AweClient) -> bool:
    """Whether the server hears of no client; False as well if it does not answer now."""
    try:
        return awe.queue_counts().clients.get("total", 0) == 0
    except AweError:
        return False


def explain(job: JobView) -> None:
    """Say why a job did not complete and what may be done."""
    note(f"job {job.jid} ({job.id}) is {state_in_words(job.state)}: {job.notes or 'no reason given'}")
    error = job.error or JobError()
    if error.apperror:
        note("the end of its standard error:")
        note(error.apperror.rstrip("\n"))
    if job.state == JobState.SUSPEND:
        for line in ways_out(job):
            note(line)
    elif job.state == JobState.FAILED_PERMANENT:
        note("exit code 42 ends a job for good: submit it anew once the cause is mended")


def ways_out(job: JobView) -> list[str]:
    """What helps a suspended job, the likeliest first."""
    error = job.error or JobError()
    reason = error.servernotes or job.notes
    # A workunit that failed may have met a cause outside of the job; what the server found wrong has the job.
    if error.workfailed or not any(sign in reason for sign in UNMENDABLE):
        return [
            f"to go on where it stopped, once the cause is mended: awe resume {job.id}",
            f"if the job itself is wrong: awe rm {job.id}, and submit it mended",
        ]
    ways = [f"resuming it would not help: awe rm {job.id}, and submit it mended"]
    if found := UNMADE.search(reason):
        task = found.group(1)
        ways.append(f"or, if task {task} makes it when it runs again: awe recompute {job.id} {task}")
    return ways
