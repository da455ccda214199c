"""Who may import whom: the rooms of ARCHITECTURE.md, checked on the source text."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared_models", "awe_server", "awe_client")

#: Each room and the rooms it may import besides itself. Everything may import shared_models.
MAY_IMPORT: dict[str, set[str]] = {
    "shared_models": set(),
    "awe_server.faults": set(),
    "awe_server.scheduler": set(),
    "awe_server.store": {"awe_server.faults"},
    "awe_server.data": {"awe_server.store"},
    "awe_server.auth": {"awe_server.store", "awe_server.scheduler"},
    "awe_server.runtime": {
        "awe_server.store",
        "awe_server.scheduler",
        "awe_server.data",
        "awe_server.settings",
        "awe_server.faults",
    },
    "awe_server.web": set(),
    "awe_server.api": {
        "awe_server.runtime",
        "awe_server.data",
        "awe_server.auth",
        "awe_server.scheduler",
        "awe_server.store",
        "awe_server.settings",
    },
    "awe_server.settings": set(),
    "awe_server.app": {"awe_server"},
    "awe_server.cli": {"awe_server"},
    "awe_client": set(),
}

#: Drivers and frameworks that only the named files or rooms may import.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "motor": ("awe_server.store.mongo",),
    "pymongo": ("awe_server.store.mongo",),
    "bson": ("awe_server.store.mongo",),
    "sqlite3": ("awe_server.store",),
    "fastapi": ("awe_server.api", "awe_server.auth", "awe_server.app"),
    "starlette": ("awe_server.api", "awe_server.auth", "awe_server.app"),
    "uvicorn": (
        "awe_server.api.connection",
        "awe_server.api.one_packet",
        "awe_server.app",
        "awe_server.cli",
    ),
    "httpx": ("awe_client", "awe_server.data", "awe_server.runtime"),
    "obstore": ("awe_client.sdk.objects", "awe_server.data"),
    "typer": ("awe_client", "awe_server.cli"),
    "rich": ("awe_client", "awe_server.cli"),
}

#: The scheduler is pure: nothing that reads a clock, rolls dice, does IO or waits.
NOT_IN_SCHEDULER = {
    "asyncio", "anyio", "time", "random", "secrets", "uuid", "os", "pathlib", "logging", "socket",
    "threading", "pydantic", "orjson", "subprocess", "tempfile",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports at run time; names under `if TYPE_CHECKING` count as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def room_of(module: str) -> str:
    rooms = [room for room in MAY_IMPORT if within(module, room)]
    return max(rooms, key=len) if rooms else ""


MODULES = list(modules())


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    room = room_of(module)
    if not room:
        assert module == "awe_server", f"{module} belongs to no room"
        return
    for target in imports(path):
        if within(target, room) or within(target, "shared_models"):
            continue
        if target.split(".")[0] in PACKAGES:
            allowed = MAY_IMPORT[room]
            assert any(within(target, other) for other in allowed), f"{module} may not import {target}"
            continue
        keepers = ONLY_IN.get(target.split(".")[0])
        if keepers is not None:
            assert any(within(module, keeper) for keeper in keepers), f"{module} may not import {target}"
        if room == "awe_server.scheduler":
            assert target.split(".")[0] not in NOT_IN_SCHEDULER, f"the scheduler is pure: {target}"


def test_the_store_seam_is_all_that_other_rooms_see_of_the_store() -> None:
    for module, path in MODULES:
        if within(module, "awe_server.store") or module == "awe_server.app" or module == "awe_server.cli":
            continue
        for target in imports(path):
            if within(target, "awe_server.store"):
                assert target in {"awe_server.store.base", "awe_server.store.errors"}, (
                    f"{module} imports {target}"
                )


def test_nobody_waits_for_obstore_who_does_not_use_it() -> None:
    for names in (
        "awe_client.cli.main, awe_client.daemon.main",
        "awe_server.cli, awe_server.data.sources.reading",
    ):
        script = f"import sys, {names}; sys.exit('obstore' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0, names


def test_a_scan_of_our_own_files_starts_fast() -> None:
    script = "import sys, awe_server.data.worker; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
