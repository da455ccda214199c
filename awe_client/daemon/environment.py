"""What a command sees: its environment, built and not inherited, and its words.

The daemon's own environment holds tokens and whatever its user exported. Of it, only a short list of names
that say where and in what language we are goes on; then come the job's variables, then the facts of the
attempt.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared_models.arguments import split_arguments
from shared_models.errors import InvalidDocument
from shared_models.messages import TaskForClient
from shared_models.variables import ARRAY_FIRST, ARRAY_INDEX, INHERITED, TEMPORARY

if TYPE_CHECKING:
    from awe_client.daemon.attempt import Attempt

SCRIPT_NAME = "awe_script.sh"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the daemon's environment that commands may see."""
    base = {name: environ[name] for name in INHERITED if name in environ}
    base.setdefault("PATH", DEFAULT_PATH)
    return base


def common_environment(
    base: Mapping[str, str], message: TaskForClient, cores: int, server_url: str
) -> dict[str, str]:
    """What the environments of a task's attempts share."""
    return {
        **base,
        **_public(message),
        **(message.get("private_env") or {}),
        "AWE_SERVER": server_url,
        "AWE_JOB_ID": message["jobid"],
        "AWE_TASK_ID": message["id"],
        "AWE_TOTALWORK": str(message["totalwork"]),
        "AWE_CORES": str(cores),
    }


def own_environment(attempt: "Attempt") -> dict[str, str]:
    """What one attempt's environment adds."""
    own = {
        "AWE_WORK_ID": attempt.id,
        "AWE_RANK": str(attempt.rank),
        "AWE_ATTEMPT": str(attempt.number),
    }
    if TEMPORARY not in attempt.task.common_env:
        # Temporary files go where they are removed with everything else, and where no other attempt sees
        # them.
        own[TEMPORARY] = attempt.inside
    first = attempt.task.array_first
    if first is not None:
        own[ARRAY_INDEX] = str(first + max(attempt.rank, 1) - 1)
    return own


def array_first(message: TaskForClient) -> int | None:
    """The index of an array's first workunit; None if the task is none."""
    first = _public(message).get(ARRAY_FIRST, "")
    return int(first) if first.lstrip("-").isdigit() else None


def command_words(attempt: "Attempt", own: Mapping[str, str]) -> list[bytes]:
    """The words the command is started with, its name first. Raises InvalidDocument.

    Without `@` and `${` they are the same for all attempts of a task, and are made once.
    """
    task = attempt.task
    if task.words is not None:
        return task.words
    cmd = task.message["cmd"]
    args, args_array = cmd.get("args") or "", cmd.get("args_array") or []
    inputs = {
        entry["filename"]: f"{attempt.inside}/{entry['filename']}"
        for entry in task.message["inputs"]
        if not entry.get("nofile")
    }
    words = split_arguments(args, args_array, inputs, {**task.common_env, **own})
    if cmd.get("cmd_script"):
        words = ["bash", SCRIPT_NAME, *words]
    elif cmd.get("name"):
        words = [cmd["name"], *words]
    else:
        raise InvalidDocument("cmd.name: is empty, and there is no cmd_script")
    encoded = [as_bytes(word) for word in words]
    if not any("@" in text or "${" in text for text in (args, *args_array)):
        task.words = encoded
    return encoded


def encode(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """As the kernel takes it."""
    # As `as_bytes`, without a call for each: this is done for every start.
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in env.items()
    }


def as_bytes(text: str) -> bytes:
    """What documents say is UTF-8, in whatever locale we were started; our environment may be any bytes."""
    return text.encode("utf-8", "surrogateescape")


def _public(message: TaskForClient) -> dict[str, str]:
    return (message["cmd"].get("environ") or {}).get("public") or {}
