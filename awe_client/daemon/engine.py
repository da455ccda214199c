"""The container engine of this machine: which one works, its images, and the end of its containers."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awe_client.daemon.container import (
    NAMES,
    Boxed,
    Engine,
    Start,
    engine_environment,
    judge,
    launch,
    state_of,
)
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from awe_client.daemon.proc import oom_kills
from shared_models.errors import AweError

log = logging.getLogger(__name__)

#: An engine that does not answer within so long does not work.
ANSWER_S = 10.0
#: A call to look at a container or to remove it.
CALL_S = 60.0


class EngineMissing(AweError):
    """The container engine that was asked for does not work here."""

    code = "engine_missing"


@dataclass(slots=True, frozen=True)
class Called:
    """What a call of the engine's command line came to."""

    exit_code: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line it wrote."""
        lines = (self.errors.strip() or self.output.strip() or f"exit code {self.exit_code}").splitlines()
        return lines[-1][-500:]


# --- which one -----------------------------------------------------------------------------------


def detect(choice: str, environ: Mapping[str, str]) -> Engine | None:
    """Find a working engine: `none`, `auto` (the first that works), or one by name.

    Raises EngineMissing for a named one that does not work.
    """
    names = {"none": (), "auto": NAMES, "apptainer": ("apptainer", "singularity")}.get(choice, (choice,))
    reasons = []
    for name in names:
        found = _probe(name, environ)
        if isinstance(found, Engine):
            return found
        reasons.append(found)
    if choice in ("auto", "none"):
        log.debug("no_container_engine", extra={"reasons": reasons})
        return None
    raise EngineMissing(f"--containers {choice}: {'; '.join(reasons)}")


def _probe(name: str, environ: Mapping[str, str]) -> Engine | str:
    """The engine, or why it cannot be used."""
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        return f"there is no program {name}"
    words = {"docker": ["info", "--format", "{{json .}}"], "podman": ["info", "--format", "json"]}
    try:
        answer = subprocess.run(
            [program, *words.get(name, ["--version"])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            env=engine_environment(environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{name} does not answer within {ANSWER_S:g} s"
    except OSError as exc:
        return f"cannot run {program}: {exc.strerror}"
    output, errors = (text.decode("utf-8", "replace").strip() for text in (answer.stdout, answer.stderr))
    if answer.returncode != 0:
        return f"{name} does not work: {(errors or output or 'no reason given').splitlines()[-1]}"
    return read_answer(name, program, output)


def read_answer(name: str, program: str, output: str) -> Engine | str:
    """The engine that an answer to a probe tells of, or why it is none."""
    if name not in ("docker", "podman"):
        return Engine(name, program, version=output.rpartition(" ")[2])
    try:
        info = json.loads(output)
        return _docker(program, info) if name == "docker" else _podman(program, info)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        return f"cannot make out what {name} says of itself: {exc!r}"


def _docker(program: str, info: Mapping[str, Any]) -> Engine | str:
    if not info.get("ServerVersion"):
        return "docker has no daemon: " + "; ".join(info.get("ServerErrors") or ["no server version"])
    options = info.get("SecurityOptions") or ()
    return Engine(
        "docker",
        program,
        version=info["ServerVersion"],
        root_is_us="name=rootless" in options,
        maps_users="name=userns" in options,
        limits_cpu=bool(info.get("CpuCfsQuota", True)),
        limits_memory=bool(info.get("MemoryLimit", True)),
    )


def _podman(program: str, info: Mapping[str, Any]) -> Engine | str:
    controllers = info["host"].get("cgroupControllers") or ()
    return Engine(
        "podman",
        program,
        version=info["version"]["Version"],
        root_is_us=bool(info["host"]["security"]["rootless"]),
        limits_cpu="cpu" in controllers,
        limits_memory="memory" in controllers,
    )


# --- at work -------------------------------------------------------------------------------------


class Containers:
    """The engine at work for one daemon. Without one, `engine` is None and nothing else may be called."""

    def __init__(self, work_root: Path) -> None:
        self.engine: Engine | None = None
        self._work_root = str(work_root)
        self._setup = engine_environment(os.environ)
        self._setup_to_fetch = engine_environment(os.environ, proxies=True)
        self._unsure: set[str] = set()  # containers that may still be there
        self._oom_kills: dict[str, int] = {}  # the kernel's count when a container was started

    async def open(self, choice: str) -> None:
        """Find the engine, and remove what an earlier daemon of this work directory left.

        Raises EngineMissing.
        """
        self.engine = await asyncio.to_thread(detect, choice, os.environ)
        if self.engine is not None:
            facts = {"engine": self.engine.name, "version": self.engine.version}
            log.info("containers_offered", extra=facts)
            await self._remove_all()

    async def close(self) -> None:
        """Remove every container of ours, also those of which we were told that they are gone."""
        await self._remove_all()

    @property
    def offered(self) -> list[str]:
        """As a profile says it."""
        return [self.engine.name] if self.engine is not None else []

    def launch(self, box: Boxed, image: str) -> Start:
        """How to start a command in a container. Raises InvalidDocument."""
        assert self.engine is not None
        self._oom_kills[box.name] = oom_kills()
        return launch(self.engine, box, image, self._setup, os.cpu_count() or 1)

    async def finish(self, name: str, what: CommandEnd | SpawnRefusal) -> CommandEnd | SpawnRefusal:
        """Remove a container whose command line has ended, however; say what really happened."""
        engine = self.engine
        assert engine is not None
        oom_seen = oom_kills() > self._oom_kills.pop(name, 0)
        state = None
        if engine.keeps_containers:
            looked = await self.call(engine.look(name))
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                state = state_of(json.loads(looked.output)) if looked.exit_code == 0 else None
            if state is None:
                # Killed before it was there: a daemon may still be making it.
                self._unsure.add(name)
            await self._remove([name])
        return judge(engine, what, state, oom_seen=oom_seen) if isinstance(what, CommandEnd) else what

    async def sweep(self) -> None:
        """Try again to remove what may still be there."""
        if self._unsure:
            names, self._unsure = sorted(self._unsure), set()
            await self._remove(names)

    async def _remove_all(self) -> None:
        if self.engine is None or not self.engine.keeps_containers:
            return
        listed = await self.call(self.engine.listing(self._work_root))
        if listed.exit_code != 0:
            log.warning("containers_not_listed", extra={"reason": listed.last_words})
        elif names := listed.output.split():
            log.warning("containers_removed", extra={"names": names})
            await self._remove(names)

    async def _remove(self, names: Sequence[str]) -> None:
        assert self.engine is not None
        removed = await self.call(self.engine.removal(*names))
        if removed.exit_code != 0 and "no such container" not in removed.errors.lower():
            self._unsure.update(names)
            log.warning("container_not_removed", extra={"names": names, "reason": removed.last_words})

    async def call(self, words: Sequence[str], *, timeout_s: float = CALL_S, fetches: bool = False) -> Called:
        """Run the engine's command line; what it says. One that takes too long is killed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._setup_to_fetch if fetches else self._setup,
                start_new_session=True,  # the terminal's Ctrl-C is not for it
            )
        except OSError as exc:
            return Called(-1, "", f"cannot run {words[0]}: {exc.strerror}")
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await process.communicate()
        except TimeoutError:
            return Called(-1, "", f"{words[0]} {words[1]} did not end within {timeout_s:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Called(
            process.returncode or 0, *(text.decode("utf-8", "replace") for text in (output, errors))
        )
