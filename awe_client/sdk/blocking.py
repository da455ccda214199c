"""The blocking face of an async object, without writing a method twice.

`AweClient.get_job = Blocking(AsyncAweClient.get_job)` is a descriptor with the types of the original; the
call runs on an event loop in a thread of its own.
"""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")


class Facade(Protocol):
    """What a blocking object has: the async one, and the loop's thread."""

    portal: BlockingPortal
    wrapped: Any


def begin(stack: ExitStack) -> BlockingPortal:
    """Start the loop's thread, and have `stack` end it.

    A signal ends our waiting for it, and the thread once it is there: inside of anyio it would be waited for
    for ever.
    """
    starting: Future[BlockingPortal] = Future()

    def start() -> None:
        try:
            starting.set_result(stack.enter_context(start_blocking_portal()))
        except BaseException as exc:  # noqa: BLE001 - the caller's
            starting.set_exception(exc)

    threading.Thread(target=start, name="begin", daemon=True).start()
    try:
        return starting.result()
    except BaseException:
        starting.add_done_callback(lambda _: stack.close())
        raise


class Blocking(Generic[P, R]):
    """A method that awaits the same method of the wrapped object."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Facade, _: type | None = None) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return _call(owner.portal, partial(self.method, owner.wrapped, *args, **kwargs))

        return update_wrapper(call, self.method)


class BlockingIterator(Generic[P, Item]):
    """A method that iterates over the same method of the wrapped object."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[Item]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Facade, _: type | None = None) -> Callable[P, Iterator[Item]]:
        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[Item]:
            items = self.method(owner.wrapped, *args, **kwargs)
            while True:
                try:
                    yield _call(owner.portal, partial(_next, items))
                except StopAsyncIteration:
                    return

        return update_wrapper(call, self.method)


def _call(portal: BlockingPortal, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run it over there; a Ctrl-C while we wait ends it there as well."""
    future = portal.start_task_soon(function)
    try:
        result: R = future.result()
        return result
    except BaseException:
        future.cancel()
        raise


async def _next(items: AsyncIterator[Item]) -> Item:
    return await anext(items)
