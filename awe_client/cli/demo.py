"""`awe demo`: a server, two clients and a pipeline on real reads, here, and nothing left afterwards."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer

from awe_client.api import AweClient
from awe_client.cli.output import EXIT_FAILED, EXIT_OK, note, print_line
from awe_client.cli.submit import bind_inputs
from awe_client.cli.upload import upload
from awe_client.cli.watch import watch_job
from shared_models.errors import AweError, BadRequest
from shared_models.views import JobView

LISTENING = "awe-server listening on "
START_S = 30.0
STOP_S = 20.0


def demo(
    examples: Annotated[Path, typer.Option(help="The folder with pipeline.json and reads.fastq.")] = Path(
        "examples"
    ),
) -> None:
    """Start a server and two clients, run a three-task pipeline, check its result, stop everything."""
    pipeline, reads = examples / "pipeline.json", examples / "reads.fastq"
    for path in (pipeline, reads):
        if not path.is_file():
            raise BadRequest(f"{path}: there is no such file; name the examples folder with --examples")
    with _Signals() as signals, ExitStack() as stack:
        stack.callback(note, "server and clients are stopped")
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="awe-demo-")))
        url = stack.enter_context(_server(home, signals))
        for number in (1, 2):
            stack.enter_context(_client(home, url, number))
        awe = stack.enter_context(AweClient(url))
        with signals.end_it():
            code = _run(awe, pipeline, reads, home)
    raise typer.Exit(code)


class _Signals:
    """TERM, HUP and INT end the demo, but only where that leaves nothing behind; elsewhere they wait."""

    def __init__(self) -> None:
        self._got = 0
        self._may_end = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        self._got = self._got or number
        self._end()

    def _end(self) -> None:
        if self._got and self._may_end:
            self._may_end = False
            raise SystemExit(128 + self._got)

    @contextmanager
    def end_it(self) -> Iterator[None]:
        """Here they may end it at any moment."""
        self._may_end = True
        try:
            self._end()
            yield
        finally:
            self._may_end = False


def _program(name: str) -> str:
    """The program that was installed beside this one, else the one on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise AweError(f"{name} is not installed")
    return found


@contextmanager
def _process(argv: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        # In a group of its own: Ctrl-C is for us, and we stop the clients before the server.
        child = subprocess.Popen(
            argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def _server(home: Path, signals: _Signals) -> Iterator[str]:
    log = home / "server.log"
    argv = [
        _program("awe-server"),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--data",
        str(home / "data"),
    ]
    with _process(argv, log) as child:
        deadline = time.monotonic() + START_S
        with signals.end_it():
            while LISTENING not in (text := log.read_text(errors="replace")):
                if child.poll() is not None or time.monotonic() > deadline:
                    raise AweError(f"the server did not start:\n{text}")
                time.sleep(0.02)
        url = text.partition(LISTENING)[2].split()[0]
        note(f"server: {url}")
        yield url


@contextmanager
def _client(home: Path, url: str, number: int) -> Iterator[None]:
    argv = [_program("awe-client"), "run", "--server", url, "--group", "default", "--apps", "*"]
    argv += ["--slots", "2", "--name", f"demo-{number}", "--work", str(home / f"work-{number}")]
    with _process(argv, home / f"client-{number}.log"):
        note(f"client: demo-{number}, 2 slots")
        yield


def _run(awe: AweClient, pipeline: Path, reads: Path, home: Path) -> int:
    document = json.loads(pipeline.read_bytes())
    expected = unsplit(document, reads, home / "unsplit")
    note(f"$ awe submit {pipeline} --upload {reads.name}={reads} --watch")
    raw = bind_inputs(pipeline.read_bytes(), {reads.name: upload(awe, reads, reads.name)})
    job_id = awe.submit_job(raw).id
    code = watch_job(awe, job_id, as_json=False)
    if code:
        return code
    job = awe.get_job(job_id)
    outputs = {file.filename: awe.read_node(file.node) for task in job.tasks for file in task.outputs}
    return _report(job, outputs, expected)


def _report(job: JobView, outputs: dict[str, bytes], expected: dict[str, bytes]) -> int:
    last = next(reversed(outputs))
    split = max(job.tasks, key=lambda task: task.totalwork)
    note(f"task {split.task_name} ran as {split.totalwork} workunits; {last}:")
    print_line(outputs[last].decode().rstrip("\n"))
    wrong = [name for name in expected if outputs.get(name) != expected[name]]
    if wrong:
        note(f"NOT the unsplit answer: {', '.join(wrong)}")
        return EXIT_FAILED
    note(f"the same bytes as the unsplit answer: {', '.join(expected)}")
    return EXIT_OK


def unsplit(document: dict[str, Any], reads: Path, folder: Path) -> dict[str, bytes]:
    """Run the pipeline's commands here, one after the other, each on its whole input."""
    folder.mkdir()
    shutil.copy(reads, folder / reads.name)
    for task in document["tasks"]:
        inputs = {f"@{file['filename']}": file["filename"] for file in task["inputs"]}
        argv = [task["cmd"]["name"], *[inputs.get(word, word) for word in task["cmd"]["args_array"]]]
        with (folder / task["cmd"]["stdout"]).open("wb") as out:
            subprocess.run(
                argv, cwd=folder, stdout=out, check=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"}
            )
    return {
        task["cmd"]["stdout"]: (folder / task["cmd"]["stdout"]).read_bytes() for task in document["tasks"]
    }
