"""What a command sees: its environment, built and not inherited, and its words.

The daemon's own environment holds tokens and whatever its user exported. Of it, only a short list of names
that say where and in what language we are goes on; then come the job's variables, then the facts of the
attempt.
"""

import os
from collections.abc import Mapping

from awe_client.daemon.attempt import SCRIPT_NAME, Attempt
from shared_models.arguments import split_arguments
from shared_models.errors import InvalidDocument

INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the daemon's environment that commands may see."""
    base = {name: environ[name] for name in INHERITED if name in environ}
    base.setdefault("PATH", DEFAULT_PATH)
    return base


def command_environment(base: Mapping[str, str], attempt: Attempt, server: str) -> dict[str, str]:
    """The whole environment of one attempt."""
    message = attempt.task.message
    env = dict(base)
    # Temporary files go where they are removed with everything else, and where no other attempt sees them.
    env["TMPDIR"] = str(attempt.directory)
    public = (message["cmd"].get("environ") or {}).get("public") or {}
    env.update(public)
    env.update(message.get("private_env") or {})
    env["AWE_SERVER"] = server
    env["AWE_JOB_ID"] = message["jobid"]
    env["AWE_TASK_ID"] = message["id"]
    env["AWE_WORK_ID"] = attempt.id
    env["AWE_RANK"] = str(attempt.rank)
    env["AWE_TOTALWORK"] = str(message["totalwork"])
    env["AWE_ATTEMPT"] = str(attempt.number)
    env["AWE_CORES"] = str(attempt.task.needs.cores)
    first = public.get("AWE_ARRAY_FIRST", "")
    if first.lstrip("-").isdigit():
        env["AWE_ARRAY_INDEX"] = str(int(first) + max(attempt.rank, 1) - 1)
    return env


def command_words(attempt: Attempt, env: Mapping[str, str]) -> list[str]:
    """The words the command is started with, its name first. Raises InvalidDocument."""
    message = attempt.task.message
    cmd = message["cmd"]
    inputs = {
        entry["filename"]: str(attempt.directory / entry["filename"])
        for entry in message["inputs"]
        if not entry.get("nofile")
    }
    words = split_arguments(cmd.get("args") or "", cmd.get("args_array") or [], inputs, env)
    if cmd.get("cmd_script"):
        return ["bash", SCRIPT_NAME, *words]
    name = cmd.get("name") or ""
    if not name:
        raise InvalidDocument("cmd.name: is empty, and there is no cmd_script")
    return [name, *words]


def encode(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """As the kernel takes it."""
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
