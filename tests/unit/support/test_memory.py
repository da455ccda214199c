"""Memory of processes is seen where it was used."""

import subprocess
import sys

from tests.support.memory import TreeMemory, peak_rss_bytes, reset_peak, rss_bytes, tree

MIB = 1048576
_TAKE = "b = bytearray(64 * 1048576); b[::4096] = b'x' * len(b[::4096])"
_WAIT = "print('ready', flush=True); sys.stdin.read()"


def _start(script: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", f"import subprocess, sys; {script}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_the_peak_of_a_process_stays_until_it_is_reset() -> None:
    process = _start(f"{_TAKE}; del b; {_WAIT}")
    assert peak_rss_bytes(process.pid) > 64 * MIB > rss_bytes(process.pid)
    reset_peak(process.pid)
    assert peak_rss_bytes(process.pid) < 64 * MIB
    process.communicate()
    assert rss_bytes(process.pid) == 0


def test_a_tree_is_sampled_with_its_children() -> None:
    child = f"{_TAKE}; import time; time.sleep(0.5)"
    process = _start(f'{_WAIT}; subprocess.run([sys.executable, "-c", """{child}"""])')
    with process, TreeMemory(process.pid) as memory:
        before = memory.peak_bytes
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
    assert before < 64 * MIB < memory.peak_bytes
    assert memory.samples > 2


def test_descendants_are_found() -> None:
    process = _start(f"c = subprocess.Popen(['sleep', '60']); {_WAIT}; c.kill(); c.wait()")
    assert len(tree(process.pid)) == 2
    process.communicate()
    assert tree(process.pid) == [process.pid]
