"""These tests run on virtual time."""

from __future__ import annotations

from loadmanager.testing.virtual_time import on_virtual_time as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
