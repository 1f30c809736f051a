"""A graceful stop of a broker: it releases all bundles, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from loadmanager.engine.ownership.states import LifeCause
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.tasks import for_each, sleep
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.reporter import Reporter
from loadmanager.member.settings import BrokerSettings

POLL_S = 0.05

log = get_logger("stopping")


async def stop(
    *,
    ownership: Ownership,
    reporter: Reporter,
    election: StoreElection,
    hang_up: Callable[[], Awaitable[None]],
    said_farewell: Callable[[], None],
    clock: Clock,
    settings: Live[BrokerSettings],
    unloads_per_s_max: int,
) -> None:
    """Accept no bundles, resign, release the bundles, close the connections (`hang_up`).

    What takes longer than `brokerShutdownTimeoutMs` is left to the end of the session.
    """
    try:
        async with asyncio.timeout(settings.value.shutdown_timeout_ms / 1000):
            ownership.accepting = False
            await reporter.unregister()
            said_farewell()
            await election.resign()
            await release_all(ownership, clock, settings, unloads_per_s_max=unloads_per_s_max)
            await hang_up()
    except (TimeoutError, LoadManagerError) as error:
        reason = str(error) or "brokerShutdownTimeoutMs is over"
        log.warning("the stop was cut short; locks go with the session", error=reason)


async def release_all(
    ownership: Ownership,
    clock: Clock,
    settings: Live[BrokerSettings],
    *,
    unloads_per_s_max: int = 0,
) -> None:
    """Acquire no more bundles, and release all, `brokerShutdownMaxConcurrentUnloads` at once.

    Begins at most `unloads_per_s_max` releases per second; 0 means no limit (Pulsar's parameter of
    the shutdown).
    """

    async def release(numbered: tuple[int, str]) -> None:
        index, bundle = numbered
        if unloads_per_s_max:
            due_s = round_began_s + index / unloads_per_s_max
            await sleep(max(0.0, due_s - clock.monotonic_s()))
        try:
            timeout_s = settings.value.bundle_unload_timeout_ms / 1000
            await ownership.release(
                bundle,
                reason="broker stops",
                cause=LifeCause.STOP,
                destination=None,
                timeout_s=timeout_s,
            )
        except ConflictError:
            return  # in transit: the next round tries again
        except OperationalError as error:
            log.warning(
                "a bundle was not released; its lock goes with the session",
                bundle=bundle,
                error=str(error),
            )

    ownership.accepting = False
    began_s, released = clock.monotonic_s(), 0
    while ownership.holds_any:  # also waits for bundles in transit
        bundles, round_began_s = ownership.owned(), clock.monotonic_s()
        at_once_max = settings.value.shutdown_unloads_max
        await for_each(list(enumerate(bundles)), release, at_once_max, "release")
        released += len(bundles)
        await sleep(POLL_S)
    took_s = round(clock.monotonic_s() - began_s, 2)
    log.info("bundles released", bundles=released, took_s=took_s)
