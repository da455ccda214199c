"""`awe-client run`: the daemon's command line.

Exit codes: 0 ended as told (drained, idle, stopped by the server), 1 the server refuses this client, 2
usage. A token comes from AWE_CLIENT_TOKEN or from a file, never from the command line, where everybody could
read it.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import uvloop

from awe_client.daemon import logs
from awe_client.daemon.daemon import Daemon, package_version
from awe_client.daemon.engine import EngineMissing
from awe_client.daemon.identity import WorkRootUnusable
from awe_client.daemon.resources import detect_cores
from awe_client.daemon.settings import Settings
from awe_client.daemon.units import parse_bytes, parse_seconds
from awe_client.sdk.address import DEFAULT_SERVER, server_address
from shared_models.errors import AweError, InvalidDocument
from shared_models.profile import parse_profile
from shared_models.roots import normal_root

Value = TypeVar("Value")

MAX_TRANSFERS = 256

_PR_SET_DUMPABLE = 4

#: Options that take a time or a size: name, default, which of the two, what for.
_BOUNDS = (
    ("--wall-time", "0", "TIME", "the allocation ends after this: drain before (default: never)"),
    ("--idle-exit", "0", "TIME", "end after so long without work (default: never)"),
    ("--grace", "10", "TIME", "between TERM and KILL of a command (default: %(default)s)"),
    ("--keep-failed", "30m", "TIME", "keep directories of failed attempts (default: %(default)s)"),
    ("--free-floor", "256M", "SIZE", "with less free disk, ask for no work (default: %(default)s)"),
    ("--cache-bytes", "20G", "SIZE", "bound of files kept for later work, 0 = none (default: %(default)s)"),
    ("--transfer-timeout", "60", "TIME", "a silent transfer has failed after this (default: %(default)s)"),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, run the daemon, exit."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        # Names of files in documents are UTF-8, whatever the locale says in which we were started.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """As `main`, but returns the exit code."""
    options = build_parser().parse_args(argv)
    try:
        settings = settings_of(options)
    except ValueError as exc:
        print(f"awe-client: {exc}", file=sys.stderr)
        return 2
    logs.configure(as_json=options.json_logs, verbose=options.verbose)
    # What is made for an attempt is hardly ever part of a cycle.
    gc.set_threshold(50_000, 20, 50)
    _hide_secrets()
    _fill_standard_files()
    try:
        return uvloop.run(_run(settings))
    except (WorkRootUnusable, EngineMissing, OSError) as exc:
        print(f"awe-client: {exc}", file=sys.stderr)
        return 2
    except AweError as exc:
        print(f"awe-client: the server refuses this client: {exc}", file=sys.stderr)
        return 1


async def _run(settings: Settings) -> int:
    daemon = Daemon(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.interrupt, signal.Signals(number).name)
    return await daemon.run()


def settings_of(options: argparse.Namespace) -> Settings:
    """Check and convert the options. Raises ValueError with a text for the user."""
    servers = options.server or os.environ.get("AWE_SERVER", "").split() or [DEFAULT_SERVER]
    if options.slots is not None and options.slots < 1:
        raise ValueError("--slots: must be at least 1")
    if options.executors < 1:
        raise ValueError("--executors: must be at least 1")
    if not 1 <= options.transfers <= MAX_TRANSFERS:
        raise ValueError(f"--transfers: must be 1 to {MAX_TRANSFERS}")
    apps = tuple(app.strip() for app in options.apps.split(",") if app.strip())
    if not apps:
        raise ValueError("--apps: names no app; '*' offers all")
    settings = Settings(
        servers=tuple(_option("--server", server_address, url) for url in servers),
        work=_option("--work", _path, options.work),
        group=options.group,
        apps=apps,
        slots=options.slots or detect_cores(),
        name=options.name,
        user=options.user,
        domain=options.domain,
        instance_id=options.instance_id,
        instance_type=options.instance_type,
        memory_bytes=_option("--memory", parse_bytes, options.memory),
        gpus=options.gpus,
        containers=options.containers,
        wall_time_s=_option("--wall-time", parse_seconds, options.wall_time),
        idle_exit_s=_option("--idle-exit", parse_seconds, options.idle_exit),
        grace_s=_option("--grace", parse_seconds, options.grace),
        keep_failed_s=_option("--keep-failed", parse_seconds, options.keep_failed),
        free_floor_bytes=_option("--free-floor", parse_bytes, options.free_floor),
        cache_bytes=_option("--cache-bytes", parse_bytes, options.cache_bytes),
        transfer_timeout_s=_option("--transfer-timeout", parse_seconds, options.transfer_timeout),
        file_roots=_roots(options.file_root, _option("--work", _path, options.work)),
        transfers=options.transfers,
        executors=options.executors,
        authorization=_authorization(options.token_file),
    )
    if not settings.transfer_timeout_s:
        raise ValueError("--transfer-timeout: must be more than 0")
    _check_profile(settings)
    return settings


def _check_profile(settings: Settings) -> None:
    """What a server would refuse is refused here, before one is asked. Raises ValueError."""
    if not settings.group:
        raise ValueError("--group: names no group; leave it out for 'default'")
    keys = ("group", "name", "user", "domain", "instance_id", "instance_type", "memory_bytes", "gpus")
    profile = {key: getattr(settings, key) for key in keys}
    profile["file_roots"] = list(settings.file_roots)
    try:
        parse_profile({**profile, "apps": list(settings.apps), "cores": settings.slots})
    except InvalidDocument as exc:
        key, _, problem = exc.message.partition(": ")
        flags = {"cores": "slots", "memory_bytes": "memory", "file_roots": "file-root"}
        key = key.partition("[")[0]
        flag = flags.get(key, key.replace("_", "-"))
        raise ValueError(f"--{flag}: {problem}") from exc


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"awe-client: {message}; `awe-client run --help` shows all options\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(prog="awe-client", description="Run commands for an AWE server.")
    parser.add_argument("--version", action="version", version=f"awe-client {package_version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    run_ = commands.add_parser(
        "run",
        help="register and work until told to stop",
        description="Register with a server, fetch workunits, run their commands, report. TERM or Ctrl-C: "
        "finish what runs, take nothing new; a second one gives the running work back.",
        epilog="TIME is seconds, or a number with s, m, h or d, or [D-]H:MM:SS. SIZE is bytes, or a number "
        "with K, M, G or T (powers of 1024). Exit codes: 0 ended as told, 1 the server refuses this client, "
        "2 wrong usage.",
        allow_abbrev=False,  # --token would be taken for --token-file, and the token shown in its error
    )
    _add_offer(run_.add_argument)
    _add_names(run_.add_argument)
    _add_resources(run_.add_argument)
    for flag, default, kind, text in _BOUNDS:
        run_.add_argument(flag, default=default, metavar=kind, help=text)
    _add_running(run_.add_argument)
    return parser


def _add_offer(add: Callable[..., object]) -> None:
    standbys = f"repeat for a standby (default: AWE_SERVER, else {DEFAULT_SERVER}); "
    standbys += "a name and password in it are seen by everybody who lists processes: put those in AWE_SERVER"
    add("--server", action="append", metavar="URL", help=standbys)
    add("--group", default="default", help="client group (default: %(default)s)")
    add("--apps", default="*", help="comma list of the commands offered; '*' = any (the default)")
    slots = "cores to offer; a command takes one unless its job says more (default: all)"
    add("--slots", type=int, metavar="N", help=slots)
    work = "work directory, one per daemon (default: %(default)s)"
    add("--work", default="awe-work", metavar="DIR", help=work)
    roots = "open a directory of shared files to jobs (file:// URLs); repeatable (default: none)"
    add("--file-root", action="append", default=[], metavar="DIR", help=roots)


def _add_names(add: Callable[..., object]) -> None:
    add("--name", default="", help="name to show (default: host name)")
    add("--user", default="", help="owner to show")
    add("--domain", default="default", help="domain to show: where its resources are")
    add("--instance-id", default="", metavar="ID", help="virtual machine to show")
    add("--instance-type", default="", metavar="TYPE", help="kind of virtual machine to show")


def _add_resources(add: Callable[..., object]) -> None:
    add("--memory", default="0", metavar="SIZE", help="memory to offer (default: all)")
    add("--gpus", type=int, default=0, metavar="N", help="GPUs to offer (default: those in sight)")
    engines = ("auto", "none", "docker", "podman", "apptainer")
    containers = "engine for commands that name an image; auto = the first that works (default: %(default)s)"
    add("--containers", default="auto", choices=engines, help=containers)


def _add_running(add: Callable[..., object]) -> None:
    executors = "processes that start commands (default: %(default)s)"
    add("--executors", type=int, default=2, metavar="N", help=executors)
    transfers = "workunits whose files move at once, in each direction (default: %(default)s)"
    add("--transfers", type=int, default=8, metavar="N", help=transfers)
    add("--token-file", metavar="FILE", help="client group token (or AWE_CLIENT_TOKEN); only you may read it")
    add("--json-logs", action="store_true", help="log lines as JSON")
    add("--verbose", action="store_true", help="log more")


def _option(name: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except (ValueError, AweError) as exc:
        raise ValueError(f"{name}: {exc}") from exc


def _roots(names: Sequence[str], work: Path) -> tuple[str, ...]:
    """The directories that are open to jobs. Raises ValueError if jobs could name our own files."""
    work = work.resolve()
    for name in names:
        root = _option("--file-root", _path, name).resolve()
        if not root.is_dir():
            raise ValueError(f"--file-root: {name}: there is no such directory")
        if work == root or root in work.parents or work in root.parents:
            raise ValueError(f"--file-root: {name}: it and the work directory must lie outside of each other")
    return tuple(dict.fromkeys(normal_root(os.path.abspath(Path(name).expanduser())) for name in names))


def _path(text: str) -> Path:
    if not text.strip():
        raise ValueError("names nothing")
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:  # ~somebody
        raise ValueError(f"{text}: there is no such user") from exc


def _authorization(token_file: str | None) -> str:
    """The header of worker calls. A file that others may read is refused: the token in it is no secret."""
    token = os.environ.pop("AWE_CLIENT_TOKEN", "")
    if token_file:
        path = _option("--token-file", _path, token_file)
        try:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise ValueError(f"--token-file {path}: others may read it; chmod 600 {path}")
            token = path.read_text(encoding="utf-8").strip()
        except OSError as exc:
            raise ValueError(f"--token-file {path}: {exc.strerror}") from exc
        except UnicodeDecodeError:
            token = ""
        if not (token.isascii() and token.isprintable() and token):
            raise ValueError(f"--token-file {path}: holds no token, which is one line of ASCII")
    return f"CG_TOKEN {token}" if token else ""


def _fill_standard_files() -> None:
    """Some are closed if we were started so: uvloop ends a process whose socket gets such a number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _hide_secrets() -> None:
    """Keep commands of the same user from reading our environment and memory (/proc/<pid>/environ, mem).

    root, and the same user on a kernel that does not know this, still can.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    logging.captureWarnings(True)


if __name__ == "__main__":
    main()
