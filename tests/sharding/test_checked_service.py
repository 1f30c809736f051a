"""What is no service is refused before it can lose anything."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import AsyncMock

import pytest

from loadmanager import BadInputError, Member, Service, Shard


class Fine:
    """A service that does nothing."""

    async def open(self, shard: Shard[Any]) -> None:
        """Nothing."""

    async def close(self, shard: Shard[Any], state: None) -> None:
        """Nothing."""


class Misspelled:
    """Nobody would call its `closed`."""

    async def open(self, shard: Shard[Any]) -> None:
        """Nothing."""

    async def closed(self, shard: Shard[Any], state: None) -> None:
        """Nothing."""


class Synchronous(Fine):
    """Its `close` would be called, and what it returns awaited."""

    def close(self, shard: Shard[Any], state: None) -> None:  # type: ignore[override]
        """Nothing."""


class SlowFigures(Fine):
    """Its `cost` would be taken for a number."""

    async def cost(self, shard: Shard[Any]) -> float:
        """Too late."""
        return 1.0


class NoHook(Fine):
    """Its `prepare` is nothing that can be called."""

    prepare = 3


def member(service: Any) -> Member[Any]:
    """A member with that service."""
    return Member("zk://nowhere/rooms", service, address="http://here:1")


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (None, "the service NoneType has no open"),
        (object(), "the service object has no open"),
        (Fine, "a service is an object, not the class Fine"),
        (Misspelled(), "the service Misspelled has no close"),
        (Synchronous(), "must be `async def close`"),
        (SlowFigures(), "must be `def cost, without async`"),
        (NoHook(), "the service NoHook has no prepare"),
    ],
)
def test_what_is_no_service_is_refused(service: object, text: str) -> None:
    """With a text that names the hook."""
    with pytest.raises(BadInputError, match=text):
        member(service)


class Callable:
    """A hook that is an object."""

    async def __call__(self, *of: object) -> None:
        """Nothing."""


def test_hooks_may_be_any_functions_that_are_awaited() -> None:
    """Objects, partial functions and mocks, too."""
    made: Service[Any] = Fine()
    for hook in (Callable(), AsyncMock(), functools.partial(Fine.open, made)):
        vars(made)["open"] = hook
        member(made)
