"""Directories of commands: what the next one finds of the last one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from awe_client.daemon.frames import CommandSpec
from awe_client.daemon.homes import Homes
from awe_client.daemon.spawn import Refused, Spawner


class Place:
    """One executor's directories; commands run here one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fresh").mkdir()
        self.homes = Homes(os.fsencode(folder / "fresh"))
        self.spawner = Spawner()
        self.inodes: list[int] = []

    def spec(self, name: str, script: str = "", stdout: bytes = b"o") -> CommandSpec:
        env = {b"PATH": os.environb[b"PATH"]}
        cwd = os.fsencode(self.folder / name[0] / name)
        words = [b"sh", b"-c", script.encode()]
        return CommandSpec(words, env, cwd, True, None, stdout, b"e", 0.0, 0.2, 100, True)

    def run(self, spec: CommandSpec, following: CommandSpec | None = None) -> bool:
        """Whether its directory was taken back after it."""
        self.homes.enter(spec)
        assert os.path.samefile(spec.cwd, b".")
        self.inodes.append(os.stat(spec.cwd).st_ino)
        _, status = os.waitpid(self.spawner.spawn(spec), 0)
        assert status == 0, "the command sees what it must not"
        _, are_as_made = self.homes.look(spec)
        return self.homes.take_back(spec, are_as_made, following)


SEES_NOTHING = 'set -- $(ls -A); [ "$*" = "e o" ] && [ ! -s o ] && [ ! -s e ]'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here, umask = os.getcwd(), os.umask(0o022)
    yield Place(tmp_path)
    os.chdir(here)
    os.umask(umask)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_directory_and_logs_without_a_word_are_used_again(place: Place, is_known: bool) -> None:
    first, second = place.spec("a1"), place.spec("b1", SEES_NOTHING)
    assert place.run(first, second if is_known else None)
    assert not os.path.exists(first.cwd)
    assert place.run(second)
    assert place.inodes[0] == place.inodes[1]
    assert not os.path.exists(second.cwd)


@pytest.mark.parametrize(
    ("script", "is_taken_back"),
    [
        ("echo text", True),
        ("echo text >&2", True),
        ("rm o", True),
        ("chmod 666 o", True),
        ("chmod 777 .", True),
        ("rm e && ln -s o e", True),
        ("ln o ../o", True),
        ("rm e && mkfifo e", True),
        ("rm e && mkdir e", False),
        ("touch .hidden", False),
        ("mkdir -p d", False),
        ('rm o e && mv "$PWD" ../x && mkdir "$PWD"', False),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_nothing_of_a_command_is_there_for_the_next(
    place: Place, script: str, is_taken_back: bool, is_known: bool
) -> None:
    second = place.spec("a2", SEES_NOTHING)
    assert place.run(place.spec("a1", script), second if is_known else None) == is_taken_back
    assert place.run(second)
    assert [os.stat(entry).st_mode & 0o777 for entry in (place.folder / "fresh").iterdir()] == [0o700]


@pytest.mark.parametrize("name", ["o", "."])
def test_attributes_do_not_cling(place: Place, name: str) -> None:
    first, second = place.spec("a1"), place.spec("a2")
    place.homes.enter(first)
    try:
        Path("o").touch()
        Path("e").touch()
        os.setxattr(name, "user.mark", b"x")
    except OSError:
        pytest.skip("this file system knows no attributes")
    assert place.homes.take_back(first, True, second)
    place.homes.enter(second)
    assert not os.path.exists("o") or not os.listxattr("o")
    assert not os.listxattr(".")


def test_logs_that_somebody_may_have_open_are_not_used_again(place: Place) -> None:
    second = place.spec("a2", SEES_NOTHING)
    place.homes.enter(place.spec("a0"))
    place.homes.give_up(place.spec("a0"))
    with_log = place.spec("a1", "")
    place.homes.enter(with_log)
    with open(with_log.cwd + b"/o", "wb") as held, open(with_log.cwd + b"/e", "wb"):
        assert place.homes.take_back(with_log, False, second)
        place.homes.enter(second)
        held.write(b"late")
    assert os.listdir(".") == []


def test_logs_of_other_names_are_not_there(place: Place) -> None:
    second = place.spec("a2", 'set -- $(ls -A); [ "$*" = "e other" ]', stdout=b"other")
    assert place.run(place.spec("a1"))
    assert place.run(second)
    assert place.run(place.spec("a3", SEES_NOTHING), place.spec("a4", stdout=b"other"))
    assert place.inodes[0] == place.inodes[2]


@pytest.mark.parametrize("stage", ["taken", "nothing there"])
def test_a_directory_that_is_not_used_is_put_aside(place: Place, stage: str) -> None:
    second = place.spec("a2")
    if stage == "taken":
        assert place.run(place.spec("a1"), second)
        assert os.path.exists(second.cwd)
    else:
        place.homes.enter(second)
    place.homes.give_up(second)
    assert not os.path.exists(second.cwd)
    assert len(list((place.folder / "fresh").iterdir())) == 1


def test_a_directory_of_another_attempt_is_never_entered(place: Place) -> None:
    second = place.spec("a2")
    os.makedirs(second.cwd + b"/of another")
    assert place.run(place.spec("a1"), second)
    with pytest.raises(Refused):
        place.homes.enter(second)


def test_a_program_that_was_moved_is_found_again(place: Place, tmp_path: Path) -> None:
    programs: list[Callable[[], object]] = []
    for name in ("first", "second"):
        program = tmp_path / name / "tool"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        programs.append(program.unlink)
    spec = place.spec("a1")._replace(
        argv=[b"tool"], env={b"PATH": os.fsencode(f"{tmp_path}/first:{tmp_path}/second:/bin:/usr/bin")}
    )
    place.homes.enter(spec)
    for remove in programs:
        assert os.waitpid(place.spawner.spawn(spec), 0)[1] == 0
        remove()
    with pytest.raises(Refused, match="program"):
        place.spawner.spawn(spec)
