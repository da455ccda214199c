"""Who holds a lease, and whether that process is still there."""

import os
import subprocess

import pytest

from awe_server.store import owner
from awe_server.store.owner import describe, is_gone, this_process


def test_this_process_is_there() -> None:
    me = this_process()
    assert is_gone(me) is False
    assert describe(me) == f"{me['host']} (pid {os.getpid()})"
    assert this_process() != me


def test_an_ended_process_is_gone_and_its_pid_does_not_stand_for_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        there = {**this_process(), "pid": child.pid, "started": owner._started(child.pid)}
        assert is_gone(there) is False
        assert is_gone({**there, "started": "1"}) is True
        child.kill()
    assert is_gone(there) is True


def test_who_is_elsewhere_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_gone({**this_process(), "place": "other"}) is None
    assert is_gone({}) is None
    monkeypatch.setattr(os, "readlink", _no_proc)
    assert this_process()["place"] == ""
    assert is_gone(this_process()) is None


def _no_proc(path: str) -> str:
    raise FileNotFoundError(path)
