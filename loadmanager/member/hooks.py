"""Calls the host of the bundles, which is foreign code: each call has a time limit, and a failure
costs that bundle or that answer, never the member. The log and a metric name the hook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import within
from loadmanager.member.ports.hosting import Hosting, HostUsage, TopicTraffic

T = TypeVar("T")
P = ParamSpec("P")
NO_USAGE = HostUsage(0, 0, 0, 0)
HOOKS = (
    "open_bundle",
    "settle_bundle",
    "close_bundle",
    "split_bundle",
    "merge_bundles",
    "bundle_stats",
    "topics",
    "clients",
    "usage",
)

log = get_logger("hosting")


@dataclass(frozen=True, slots=True)
class HookLimits:
    """How long the hooks of a host may take, in seconds."""

    open_s: float = 60.0
    settle_s: float = 10.0
    close_s: float = 60.0
    """Beside the time that clients have to leave."""


class Hooks:
    """Implements `member.ports.hosting.Hosting` by calling the one of a service.

    `open_bundle` raises `OperationalError` when it fails or takes too long, `split_bundle` and
    `merge_bundles` when they fail: then what they replace is closed, and what replaces it opened.
    Those that fence raise what the host raises: a move is refused then, and the owner stays.
    """

    def __init__(self, hosting: Hosting, limits: HookLimits) -> None:
        self._hosting, self._limits = hosting, limits
        self.failures: Counter[str] = Counter()
        """Hook → how often it failed or took too long."""
        self._opening: dict[tuple[str, int], bool] = {}
        """Bundle and life that the host opens → whether it was fenced meanwhile."""
        self.split_bundle = self._replacing("split_bundle", hosting.split_bundle)
        self.merge_bundles = self._replacing("merge_bundles", hosting.merge_bundles)
        self.close_topic = hosting.close_topic

    async def open_bundle(self, bundle: str, life: int) -> None:
        limit_s = self._limits.open_s
        try:
            await within(limit_s, self._open(bundle, life), f"open {bundle}")
        except Exception as error:
            text = self._failed("open_bundle", bundle, error, limit_s)
            raise OperationalError(text) from error

    async def _open(self, bundle: str, life: int) -> None:
        """Fence what was fenced while the host opened it, in the same turn of the loop: its caller
        hears of it a turn later, in which the bundle would be served beside its next owner.
        """
        key = bundle, life
        self._opening[key] = False
        try:
            await self._hosting.open_bundle(bundle, life)
            if self._opening[key]:
                self._hosting.fence_bundle(bundle, life)
        finally:
            del self._opening[key]

    def fence_bundle(self, bundle: str, life: int) -> None:
        """See the port."""
        if (bundle, life) in self._opening:
            self._opening[bundle, life] = True
        self._hosting.fence_bundle(bundle, life)

    def fence_all(self) -> None:
        """See the port."""
        self.fence_openings()
        self._hosting.fence_all()

    def fence_openings(self) -> None:
        """What the host opens now is fenced as soon as it is open: its lives are over."""
        self._opening = dict.fromkeys(self._opening, True)

    def fencing(self, then: Callable[[], None]) -> Callable[[], None]:
        """A function that does so, and something else after it."""

        def both() -> None:
            self.fence_openings()
            then()

        return both

    def _replacing(self, hook: str, replace: Callable[P, None]) -> Callable[P, None]:
        def guarded(*arguments: P.args, **fields: P.kwargs) -> None:
            try:
                replace(*arguments, **fields)
            except Exception as error:
                bundles = arguments[0]
                names = [bundles] if isinstance(bundles, str) else bundles
                text = self._failed(hook, ", ".join(map(str, cast("Iterable[str]", names))), error)
                raise OperationalError(text) from error

        return guarded

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """See the port; fails never."""
        work = self._hosting.settle_bundle(bundle, life)
        await self._contained("settle_bundle", bundle, work, self._limits.settle_s, None)

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """See the port; fails never."""
        work = self._hosting.close_bundle(
            bundle, life, destination=destination, timeout_s=timeout_s
        )
        limit_s = timeout_s + self._limits.close_s
        return await self._contained("close_bundle", bundle, work, limit_s, 0)

    def bundle_stats(self) -> Mapping[str, NamespaceBundleStats]:
        """See the port; nothing if it fails."""
        return self._answer("bundle_stats", self._hosting.bundle_stats, {})

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """See the port; nothing if it fails."""
        return self._answer("topics", lambda: self._hosting.topics(bundle), {})

    def clients(self, bundle: str) -> int:
        """See the port; 0 if it fails."""
        return self._answer("clients", lambda: self._hosting.clients(bundle), 0)

    def usage(self) -> HostUsage:
        """See the port; nothing if it fails."""
        return self._answer("usage", self._hosting.usage, NO_USAGE)

    def contained(self, hook: str, ask: Callable[[], Iterable[T]]) -> Iterator[T]:
        """What the host answers, one by one; no more of it after a failure."""
        try:
            yield from ask()
        except Exception as error:  # noqa: BLE001 - foreign code
            self._failed(hook, "", error, 0.0)

    async def _contained(
        self, hook: str, bundle: str, work: Coroutine[Any, Any, T], limit_s: float, otherwise: T
    ) -> T:
        try:
            return await within(limit_s, work, f"{hook} {bundle}")
        except Exception as error:  # noqa: BLE001 - foreign code
            self._failed(hook, bundle, error, limit_s)
            return otherwise

    def _answer(self, hook: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - foreign code
            self._failed(hook, "", error, 0.0)
            return otherwise

    def _failed(self, hook: str, bundle: str, error: Exception, limit_s: float = 0.0) -> str:
        """Count and log a failure; returns what happened."""
        self.failures[hook] += 1
        if isinstance(error, TimeoutError):
            text = f"the service's {hook} took longer than {limit_s:g} s"
        else:
            text = f"the service's {hook} failed: {type(error).__name__}: {error}"
        trace = None if isinstance(error, OperationalError | TimeoutError) else error
        if self.failures[hook] == 1 or bundle:
            log.error(
                "a hook of the service failed",
                hook=hook,
                bundle=bundle or None,
                error=text,
                exc_info=trace,
            )
        return text
