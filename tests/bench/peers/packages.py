"""Installs peers: PyPI packages into a virtual environment, Debian packages only unpacked into a folder.

All of it is below one cache folder (limit.cache_folder); nothing of the machine is changed.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.bench.harness.limit import cache_folder

PYTHON = (
    "hyperqueue==0.27.0",
    "distributed==2026.8.0",
    "celery[redis]==5.7.0",
    "dramatiq[redis]==2.2.1",
    "redis==8.1.0",
    "hiredis==3.5.0",
)


@cache
def python() -> Path:
    """The interpreter of an environment that has all peers from PyPI."""
    folder = cache_folder() / "venv"
    interpreter, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists() or stamp.read_text() != "\n".join(PYTHON):
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PYTHON])
        stamp.write_text("\n".join(PYTHON))
    return interpreter


def versions(*names: str) -> str:
    """What of them is installed."""
    line = "import sys, importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in sys.argv[1:]))"
    return _run([str(python()), "-c", line, *names]).strip()


@cache
def debian(*packages: str) -> Path:
    """The folder that holds the files of Debian packages, with what they need beyond what is installed."""
    archives, root = cache_folder() / "debs", cache_folder() / "root"
    stamp = root / ("unpacked-" + "-".join(packages))
    if not stamp.exists():
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        root.mkdir(exist_ok=True)
        apt = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "--download-only"]
        _run([*apt, "-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", *packages])
        for archive in sorted(archives.glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(root)])
        stamp.touch()
    return root


def libraries(root: Path) -> dict[str, str]:
    """The environment in which unpacked programs find their libraries."""
    found = [str(path) for path in (root / "usr/lib").glob("*-linux-gnu")]
    return {"LD_LIBRARY_PATH": ":".join(found)}


def _run(argv: Sequence[str]) -> str:
    """Raises RuntimeError with what it said."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr[-2000:]}")
    return done.stdout
