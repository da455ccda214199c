"""A wall clock that goes wrong, for one process and its children: `time.time` is what everything asks."""

from pathlib import Path

#: Loaded by every interpreter that has the folder on its PYTHONPATH. The file may change at any time.
_SITE = """
import time

def _skewed(plain, unit):
    def now():
        try:
            with open({offset!r}) as file:
                return plain() + type(plain())(float(file.read() or 0) * unit)
        except (OSError, ValueError):
            return plain()
    return now

time.time = _skewed(time.time, 1)
time.time_ns = _skewed(time.time_ns, 1_000_000_000)
"""


class Skew:
    """`env` is for the processes that shall be wrong; `set` says by how much, from now on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._offset = folder / "offset"
        (folder / "sitecustomize.py").write_text(_SITE.format(offset=str(self._offset)))
        self.env = {"PYTHONPATH": str(folder)}
        self.set(0.0)

    def set(self, seconds: float) -> None:
        temporary = self._offset.with_suffix(".new")
        temporary.write_text(str(seconds))
        temporary.rename(self._offset)
