"""The broker of the tests without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.protocol.driven_broker import BUNDLE, Broker


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker that owns every topic."""
    made = Broker()
    await made.server.open_bundle(BUNDLE, 1)
    yield made
    await made.server.stop()
