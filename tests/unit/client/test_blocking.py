"""The thread of the blocking client, when a signal comes."""

import subprocess
import sys

#: Ctrl-C while the main thread waits for the first that it started.
INTERRUPTED = """
import os, signal, threading, time
from awe_client.api import AweClient

start = threading.Thread.start

def started_late(thread):
    run = thread.run
    if threading.current_thread() is threading.main_thread():
        thread.run = lambda: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGINT), time.sleep(0.2), run())
    start(thread)

threading.Thread.start = started_late
try:
    AweClient("http://127.0.0.1:1")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_while_the_client_starts_its_thread_is_raised_and_nobody_waits_for_ever() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")
