"""A mounted tmpfs is full when it should be, and gone at the end."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tmpfs import fill, tmpfs

MIB = 1048576


def test_it_is_full_after_its_size_and_gone_afterwards(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 2 * MIB) as folder:
        assert folder.is_mount()
        (folder / "one").write_bytes(bytes(MIB))
        with pytest.raises(OSError, match="No space") as caught:
            (folder / "two").write_bytes(bytes(2 * MIB))
        assert caught.value.errno == errno.ENOSPC
    assert not folder.is_mount()
    assert list(folder.iterdir()) == []


def test_ballast_fills_it_and_makes_room_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 2 * MIB) as folder:
        ballast = fill(folder, leave_bytes=8192)
        (folder / "fits").write_bytes(bytes(4096))
        with pytest.raises(OSError, match="No space"):
            (folder / "too-much").write_bytes(bytes(MIB))
        ballast.unlink()
        (folder / "too-much").write_bytes(bytes(MIB))


def test_it_is_unmounted_after_a_failure_even_from_below_a_dying_process(tmp_path: Path) -> None:
    script = "import sys, time; f = open(sys.argv[1], 'w'); print('open', flush=True); time.sleep(60)"
    with pytest.raises(ZeroDivisionError), tmpfs(tmp_path / "small", MIB) as folder:  # noqa: PT012
        holder = subprocess.Popen([sys.executable, "-c", script, str(folder / "f")], stdout=subprocess.PIPE)
        assert holder.stdout is not None
        with holder.stdout:
            holder.stdout.readline()
        holder.kill()
        _ = 1 / 0
    holder.wait()
    assert not folder.is_mount()


def test_where_it_cannot_be_mounted_a_test_is_skipped_or_fails_if_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.tmpfs.os.geteuid", lambda: 1000)
    monkeypatch.delenv("AWE_TEST_TMPFS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="takes root"), tmpfs(tmp_path / "small", MIB):
        pass
    monkeypatch.setenv("AWE_TEST_TMPFS", "required")
    with pytest.raises(pytest.fail.Exception, match="takes root"), tmpfs(tmp_path / "small", MIB):
        pass
