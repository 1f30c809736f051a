"""When a broker says that its storage is not well."""

from __future__ import annotations

from typing import Any

from limits.driven import DrivenClock

from loadmanager.broker.ports.log import UnansweredError
from loadmanager.broker.protocol.storage_health import FAILURES_MAX, FULL_S, StorageHealth
from loadmanager.kit.errors import LoadManagerError, OperationalError

BAD = OperationalError("the disk has an error")
HUNG = UnansweredError("the storage did not answer within 60 s")


class Probed:
    """A storage that can be tried only."""

    def __init__(self) -> None:
        self.error: LoadManagerError | None = None
        self.tried = 0

    async def probe(self) -> None:
        """Raises what the test says."""
        self.tried += 1
        if self.error is not None:
            raise self.error


def a_health() -> tuple[StorageHealth, Any, DrivenClock]:
    """With its storage and its clock."""
    storage, clock = Probed(), DrivenClock()
    untyped: Any = storage
    return StorageHealth(untyped, clock), storage, clock


async def test_one_commit_that_hangs_is_trouble() -> None:
    """Until the storage answers again: it is tried once producers are no longer refused."""
    health, storage, clock = a_health()
    health.failed("t", HUNG)
    assert str(HUNG) in await health.trouble(tries=False)
    assert storage.tried == 0
    storage.error = HUNG
    clock.forward_ms(FULL_S * 1000)
    assert await health.trouble(tries=False)
    assert storage.tried == 1
    storage.error = None
    clock.forward_ms(FULL_S * 1000)
    assert not await health.trouble(tries=False)
    assert not await health.trouble(tries=False)
    assert storage.tried == 2, "nobody tries what is well"


async def test_some_failures_in_a_row_are_trouble() -> None:
    """Those of one moment count once; a commit that goes well ends them."""
    health, storage, clock = a_health()
    storage.error = BAD
    for number in range(1, FAILURES_MAX + 1):
        clock.forward_ms(1)
        health.failed("a", BAD)
        health.failed("b", BAD)
        assert bool(await health.trouble(tries=False)) == (number == FAILURES_MAX)
    health.went_well()
    assert not await health.trouble(tries=False)


async def test_what_others_suffer_is_tried() -> None:
    """One failure counts then."""
    health, storage, _ = a_health()
    assert not await health.trouble(tries=True)
    storage.error = BAD
    assert not await health.trouble(tries=False)
    assert str(BAD) in await health.trouble(tries=True)
    assert storage.tried == 2
