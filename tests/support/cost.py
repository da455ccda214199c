"""What a piece of work costs, however busy the machine is."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_below(limit_s: float) -> Iterator[None]:
    """The block takes less than this of the processor's time; waiting for the processor does not count.

    Under a tracer (coverage) everything takes several times as long: then it is not judged.
    """
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < limit_s or sys.gettrace(), f"{spent:.2f} s of processor time"
