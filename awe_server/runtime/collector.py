"""When Python looks for garbage in cycles: seldom in a server, and never in the middle of what makes none."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

#: Objects made and not yet gone before Python looks for cycles: about what a commit for 100 clients makes.
YOUNG_OBJECTS = 100_000


def spare_collector() -> None:
    """Let Python look for cycles seldom, and never among what is there for good: modules, routes.

    Before the state is read, for what leaves that must be found if it is in a cycle.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For what makes no garbage: to look through all that is read, or imported, again and again takes a third
    of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def undisturbed(work: Callable[[], T]) -> T:
    """Do what makes very many objects and no garbage: looking through them takes longer than making them."""
    with no_garbage_collection():
        return work()
