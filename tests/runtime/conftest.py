"""Tests of the runtime run on virtual time: nothing of it waits for a socket or a thread."""

from __future__ import annotations

from collections.abc import Mapping

from virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, type[VirtualLoop]]:
    """The loop of every test in this folder."""
    return {"virtual": VirtualLoop}
