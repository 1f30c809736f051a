"""Virtual time for several machines in one process, all of it fixed by one seed.

Each machine is an asyncio event loop of its own, whose clock is the world's. The world runs one
machine at a time for one turn of its loop; the seed chooses among the machines that are ready. When
none is ready, time jumps to the next timer or message. So every interleaving of brokers at every
`await` can happen, runs take no real time, and the same seed repeats a run. A paused machine does
not run (SIGSTOP); a crashed machine never runs again (kill -9).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import itertools
import random
import zlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

LOG_LINES_KEPT = 4_000
NEVER = float("inf")
RESOLUTION_S = 1e-9
EPOCH_MS = 1_700_000_000_000
STEPS_AT_ONE_MOMENT_MAX = 100_000


class SimulationError(AssertionError):
    """An invariant is broken. The text contains which, and when."""


class Machine(asyncio.BaseEventLoop):
    """One machine: an event loop on the world's time."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.world, self.name = world, name
        self.paused = self.crashed = False
        self.observe: Callable[[], None] | None = None
        """Called after every turn of the loop."""
        self.set_exception_handler(self._on_exception)

    def time(self) -> float:
        """The world's time."""
        return self.world.now_s

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """See asyncio; without its checks for a closed loop."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.crashed:
            self.world.fail(
                f"{self.name}: {context.get('message')}: {context.get('exception')!r} "
                f"{context.get('task') or context.get('handle') or ''}"
            )

    @property
    def timer_s(self) -> float:
        """The time of the next timer; infinite without one."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return scheduled[0]._when if scheduled else NEVER

    def step(self) -> None:
        """One turn of the loop: what asyncio's does, without files to wait for."""
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._when < self.world.now_s + RESOLUTION_S:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            asyncio.events._set_running_loop(None)

    def go(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task from outside."""
        asyncio.events._set_running_loop(self)
        try:
            return self.create_task(coroutine, name=name)
        finally:
            asyncio.events._set_running_loop(None)

    def run(self, call: Callable[[], Any]) -> Any:
        """Call a function at once, as if from a task of this machine."""
        asyncio.events._set_running_loop(self)
        try:
            return call()
        finally:
            asyncio.events._set_running_loop(None)


class MachineClock:
    """The `kit.clock.Clock` of one machine. Tests can set its wall clock (`skew_ms`)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return EPOCH_MS + int(self._world.now_s * 1000) + self.skew_ms

    def monotonic_s(self) -> float:
        """The world's time."""
        return self._world.now_s

    def monotonic_ns(self) -> int:
        """The world's time."""
        return int(self._world.now_s * 1e9)


class World:
    """Time, chance, machines, and the log of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_s = 1.0
        self.machines: list[Machine] = []
        self.steps = 0
        self.digest = 0
        """Checksum of all notes; equal for equal seeds."""
        self.log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._failures: list[str] = []
        self._graveyard: list[Machine] = []

    # Machines

    def machine(self, name: str) -> Machine:
        """A new machine."""
        made = Machine(self, name)
        self.machines.append(made)
        return made

    def crash(self, machine: Machine) -> None:
        """Never run the machine again (kill -9)."""
        machine.crashed = True
        self.machines.remove(machine)
        self._graveyard.append(machine)

    # Events

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Call a function at a moment."""
        heapq.heappush(self._events, (max(when_s, self.now_s), next(self._numbers), call))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self.at(self.now_s + delay_s, call)

    def delay_s(self, longest_s: float = 0.05) -> float:
        """Duration of a message: mostly about a millisecond, sometimes up to `longest_s`."""
        rng = self.rng.random
        return 0.0005 + (rng() ** 8) * longest_s

    def note(self, text: str) -> None:
        """Add a line to the log."""
        line = f"{self.now_s:9.4f} {text}"
        self.digest = zlib.crc32(line.encode(errors="replace"), self.digest)
        self.log.append(line)

    def fail(self, text: str) -> None:
        """Report a broken invariant; the run ends after the present step."""
        self.note(f"FAILED: {text}")
        self._failures.append(f"at {self.now_s:.4f} s: {text}")

    def run_until(self, end_s: float, done: Callable[[], bool] | None = None) -> bool:
        """Run until a moment, or until `done()`; returns whether it was done.

        Raises `SimulationError` when an invariant is broken.
        """
        at_this_moment = 0
        while True:
            if self._failures:
                raise SimulationError(self._failures[0])
            if done is not None and done():
                return True
            ready = [machine for machine in self.machines if machine._ready and not machine.paused]
            if ready:
                at_this_moment += 1
                if at_this_moment > STEPS_AT_ONE_MOMENT_MAX:
                    raise SimulationError(
                        f"at {self.now_s:.4f} s: {ready[0].name} spins without letting time pass"
                    )
                self._step(ready[0] if len(ready) == 1 else ready[self.rng.randrange(len(ready))])
                continue
            timer_s, due = NEVER, None
            for machine in self.machines:
                if not machine.paused and (due_s := machine.timer_s) < timer_s:
                    timer_s, due = due_s, machine
            event_s = self._events[0][0] if self._events else NEVER
            next_s = min(timer_s, event_s)
            if next_s > end_s:
                self.now_s = max(self.now_s, end_s)
                return False
            if next_s > self.now_s:
                self.now_s, at_this_moment = next_s, 0
            if due is None or event_s <= timer_s:
                heapq.heappop(self._events)[2]()
            else:
                self._step(due)

    def _step(self, machine: Machine) -> None:
        self.steps += 1
        machine.step()
        if machine.observe is not None and not machine.crashed:
            machine.observe()

    def close(self) -> None:
        """Discard all machines, without warnings about their unfinished tasks."""
        for machine in (*self.machines, *self._graveyard):
            machine.crashed = True
            for task in asyncio.all_tasks(machine):
                task._log_destroy_pending = False
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            machine._ready.clear()
            machine._scheduled.clear()
            machine.close()
        self.machines.clear()
        self._graveyard.clear()
        self._events.clear()


@contextlib.contextmanager
def logs_into(world: Callable[[], World | None]) -> Any:
    """Send the log lines of the code under test to the world that runs."""
    before = structlog.get_config()

    def sink(_logger: Any, method: str, event: dict[str, Any]) -> Any:
        current = world()
        if current is not None:
            running = asyncio._get_running_loop()
            name = running.name if isinstance(running, Machine) else "-"
            trace = event.pop("exc_info", None)
            story = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            current.note(
                f"{name} [{method}] {event.get('event')} {story}{f' {trace!r}' if trace else ''}"
            )
        raise structlog.DropEvent

    structlog.configure(
        processors=[sink],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        structlog.configure(**before)
        if collecting:
            gc.enable()
