"""Files below the directories that are open to jobs are used, on server and client, and none beside them."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from awe_client.daemon import main
from awe_client.daemon import roots as of_client
from awe_server import app
from awe_server.cli import cli
from awe_server.data import roots as of_server
from awe_server.runtime.clock import Clock
from awe_server.runtime.data_dir import CannotStart, keep_apart
from awe_server.settings import Settings
from shared_models.errors import Forbidden
from shared_models.limits import MAX_FILE_ROOTS
from shared_models.roots import covers, is_below, normal_root, root_of
from tests.support.descriptors import open_below

both = pytest.mark.parametrize("room", [of_server, of_client])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two roots, `data` and `more`, beside what is nobody's business; links of every kind."""
    for name in ("data/sub", "more", "secret"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/reads.fna", "data/sub/ä b.fna", "more/x", "secret/key", "data-2"):
        (tmp_path / name).write_text(name)
    links = {
        "data/inside": "sub",
        "data/to-more": "../more/x",
        "data/away": "../secret/key",
        "data/out": "../secret",
        "data/absolute": str(tmp_path / "secret" / "key"),
        "data/chain": "sub/../away",
        "data/dangling": "../secret/not-yet",
        "data/new": "sub/not-yet",
        "data/loop": "loop",
        "data/self": "../data",
        "data/root": "/",
        "linked": "data",
    }
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def roots_of(site: Path) -> tuple[str, ...]:
    return (str(site / "data"), str(site / "more"), str(site / "linked"))


@both
@pytest.mark.parametrize(
    ("name", "leads_to"),
    [
        ("data/reads.fna", "data/reads.fna"),
        ("data/sub/ä b.fna", "data/sub/ä b.fna"),
        ("data/inside/ä b.fna", "data/sub/ä b.fna"),
        ("data/to-more", "more/x"),
        ("linked/reads.fna", "data/reads.fna"),
        ("data/self/reads.fna", "data/reads.fna"),
        ("data/not-yet/there", "data/not-yet/there"),
        ("data/new", "data/sub/not-yet"),
    ],
)
def test_F_08_a_file_below_a_root_is_used(room: ModuleType, site: Path, name: str, leads_to: str) -> None:
    path = site / name
    assert room.allowed(str(path), roots_of(site)) == site / leads_to
    if path.exists():
        descriptor = room.open_allowed(str(path), roots_of(site))
        assert os.read(descriptor, 100).decode() == leads_to
        os.close(descriptor)


@both
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("secret/key", "'{path}' is not below"),
        ("data-2", "'{path}' is not below"),
        ("data", "'{path}' is not below"),
        ("data/away", "a link leads away: '{path}' is not below"),
        ("data/absolute", "a link leads away: '{path}' is not below"),
        ("data/out/key", "a link leads away: '{path}' is not below"),
        ("data/out/new", "a link leads away: '{path}' is not below"),
        ("data/chain", "a link leads away: '{path}' is not below"),
        ("data/dangling", "a link leads away: '{path}' is not below"),
        ("data/self", "a link leads away: '{path}' is not below"),
        ("data/root/etc/passwd", "a link leads away: '{path}' is not below"),
        ("data/loop", "a link leads away: '{path}' is not below"),
    ],
)
def test_F_08_a_file_elsewhere_is_not(room: ModuleType, site: Path, name: str, problem: str) -> None:
    path = str(site / name)
    for use in (room.allowed, room.open_allowed):
        with pytest.raises(Forbidden) as refusal:
            use(path, roots_of(site))
        assert refusal.value.message.startswith(problem.format(path=path))
        assert refusal.value.message.endswith(f"directory that is open to jobs ({', '.join(roots_of(site))})")


@both
def test_F_08_a_link_that_is_changed_while_it_is_followed_opens_nothing(
    room: ModuleType, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_below(site) == []

    def changed(path: str, roots: object) -> Path:
        (site / "data" / "sub").rename(site / "data" / "gone")
        (site / "data" / "sub").symlink_to(site / "secret")
        return site / "data" / "sub" / "key"

    monkeypatch.setattr(room, "allowed", changed)
    with pytest.raises(Forbidden, match="a link leads away"):
        room.open_allowed(str(site / "data" / "sub" / "key"), roots_of(site))
    assert open_below(site) == []


@both
def test_without_roots_nothing_is_used_and_the_way_to_open_one_is_named(room: ModuleType) -> None:
    with pytest.raises(Forbidden, match="--file-root"):
        room.allowed("/data/x", ())


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/x", "/data"),
        ("/data/sub/x", "/data/sub"),
        ("/data/sub", "/data"),
        ("/data", None),
        ("/database/x", None),
    ],
)
def test_the_innermost_root_counts(path: str, root: str | None) -> None:
    assert root_of(path, ["/data", "/data/sub", "/other"]) == root


def test_roots_in_text() -> None:
    assert [normal_root(text) for text in ("/a//b/./c/", "//a", "/")] == ["/a/b/c", "/a", "/"]
    assert is_below("/x", "/")
    assert not is_below("/", "/")
    assert covers(["/a"], ["/a", "/a/b"])
    assert not covers(["/a/b"], ["/a"])
    assert not covers(["/ab"], ["/a"])
    assert covers([], [])
    assert not covers(["/"], [""])


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("", ()),
        ("/data", ("/data",)),
        ("/data/:/shared/my files", ("/data", "/shared/my files")),
        (["/a", "//a/", "/b:c"], ("/a", "/b:c")),
    ],
)
def test_the_setting(given: object, read: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load(None, {"file_roots": given}).file_roots == read
    if isinstance(given, str):
        monkeypatch.setenv("AWE_FILE_ROOTS", given)
        assert Settings.load(None, {}).file_roots == read


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("data", "'data' is not an absolute path"),
        (["/data/../x"], "'/data/../x' has a '..' part"),
        (["/a\0"], r"'/a\x00' has a control character"),
        (["/" + "a" * 1024], "is longer than 1024 bytes"),
        ([5], "must be text"),
        (5, "must be a list of directories"),
        ([f"/{i}" for i in range(MAX_FILE_ROOTS + 1)], f"has more than {MAX_FILE_ROOTS} directories"),
    ],
)
def test_a_setting_that_is_none(given: object, problem: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        Settings.load(None, {"file_roots": given})
    assert problem in str(refusal.value)


Nested = Callable[[Path], tuple[Path, Path]]
NESTED = pytest.mark.parametrize(
    "nested",
    [
        lambda site: (site / "data", site / "data"),
        lambda site: (site / "data", site / "data" / "awe"),
        lambda site: (site / "data" / "sub", site / "data"),
        lambda site: (site / "linked", site / "data" / "awe"),
        lambda site: (site, site / "secret"),
    ],
)


@NESTED
def test_the_servers_own_files_are_not_open_to_jobs(nested: Nested, site: Path) -> None:
    root, data = nested(site)
    with pytest.raises(CannotStart, match="must lie outside of each other"):
        keep_apart(data, [str(root)])


def test_a_missing_root_is_found_at_the_start(site: Path) -> None:
    keep_apart(site / "secret", roots_of(site))
    for name in ("nothing", "data/reads.fna"):
        with pytest.raises(CannotStart, match="there is no such directory"):
            keep_apart(site / "secret", [str(site / name)])
    settings = Settings(data_dir=site / "awe", store_url="memory:", file_roots=(str(site / "nothing"),))
    with pytest.raises(CannotStart, match=r"\(--file-root\): there is no such directory"):
        app.build_services(settings, clock=Clock(), fatal=lambda _: None)


def test_the_flag(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(app, "run", run)
    monkeypatch.chdir(site)
    for flags in ([], ["--file-root", "data", "--file-root", f"{site}/more/"]):
        assert CliRunner().invoke(cli, ["serve", *flags]).exit_code == 0
    assert [settings.file_roots for settings in seen] == [(), (str(site / "data"), str(site / "more"))]


def client_roots(*options: str) -> tuple[str, ...]:
    return main.settings_of(main.build_parser().parse_args(["run", *options])).file_roots


def test_a_client_is_given_roots(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site)
    assert client_roots() == ()
    given = client_roots("--file-root", "data", "--file-root", f"{site}/linked/", "--file-root", "./data")
    assert given == (str(site / "data"), str(site / "linked"))
    for name in ("nothing", "data/reads.fna"):
        with pytest.raises(ValueError, match=f"--file-root: {name}: there is no such directory"):
            client_roots("--file-root", name)


@NESTED
def test_a_clients_own_files_are_not_open_to_jobs(nested: Nested, site: Path) -> None:
    root, work = nested(site)
    with pytest.raises(ValueError, match="must lie outside of each other"):
        client_roots("--work", str(work), "--file-root", str(root))
