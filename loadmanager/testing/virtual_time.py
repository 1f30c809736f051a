"""An event loop whose time jumps: tests wait for minutes without taking any."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """While a task can run, time stands still; then it jumps to the next timer.

    Only for tests whose tasks wait for each other and for time: a thread or a socket would be
    overtaken by the timers.
    """

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Virtual seconds."""
        return self.now_s


class _JumpingSelector(selectors.SelectSelector):
    """Lets the time pass at once that it is told to wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The events that are ready now. Raises `AssertionError` if the test would wait
        for ever.
        """
        assert timeout is not None, (
            "every task waits, and no timer is set: for each other, or for a thread or a socket, "
            "which virtual time does not wait for"
        )
        self._loop.now_s += timeout
        return super().select(0)


def on_virtual_time() -> Mapping[str, type[VirtualLoop]]:
    """The loop of every test in a folder: nothing there waits for a socket or a thread. A conftest
    imports this as `pytest_asyncio_loop_factories`.
    """
    return {"virtual": VirtualLoop}


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a synchronous test of an asynchronous one, which runs on a loop of its own whose time
    jumps.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **fields: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*arguments, **fields))

    return run
