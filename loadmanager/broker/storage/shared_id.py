"""The id of a storage directory that brokers share: a file in it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from loadmanager.kit.files.worker import Worker
from loadmanager.kit.private_files import open_private

T = TypeVar("T")

NAME = "shared.id"
BYTES_MAX = 100
_ID = re.compile(rb"[0-9a-f]{16}")
_FOLDER_OF_LOG = re.compile(r"[0-9a-f]{16}")
MISSING = (
    "topics whose folders are not there cannot be opened: is it the directory that all brokers "
    "share, and is it mounted? If a topic's messages are gone for good, delete the topic"
)
TAKEN = (
    "the metadata store is older than loadManagerStorageDirectory, or another cluster's: give each "
    "cluster a directory of its own, and restore both from the same time"
)
OTHER_DIRECTORY = (
    f"new topics cannot be stored while loadManagerStorageDirectory does not have the {NAME} "
    "that it had: is it the directory that all brokers share, and is it mounted? If somebody has "
    "emptied it: "
)


def id_in(data: bytes) -> str | None:
    """The id in a file or a node; None if something else is in it."""
    text = data.strip()
    return text.decode() if _ID.fullmatch(text) else None


class SharedId:
    """The id of one directory. All methods block, and raise `OSError`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory.absolute() / NAME

    def read(self) -> str | None:
        """The id; None without a file."""
        try:
            with self.path.open("rb") as file:
                id_ = id_in(file.read(BYTES_MAX))
        except FileNotFoundError:
            return None
        if id_ is None:
            raise OSError(errno.EINVAL, f"there is no id in {self.path}")
        return id_

    def give(self, new: str | None) -> str:
        """Give the directory this id (None: one that no other directory has), durably, unless it
        has one; returns the one that it has.
        """
        new = new or secrets.token_hex(8)
        draft = self.path.with_name(f"{NAME}.{secrets.token_hex(8)}.draft")
        try:
            with open_private(draft, "x") as file:
                file.write(f"{new}\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self.read() or new

    def has_topics(self) -> bool:
        """True if topics are stored in the directory."""
        return any(_FOLDER_OF_LOG.fullmatch(path.name) for path in self.path.parent.iterdir())


class SharedDirectory:
    """As `SharedId`, for the event loop: a `broker.topics.shared_directory.DirectoryWithId`.

    A call that takes longer than `timeout_s` raises `TimeoutError`. As a context manager, it ends
    its thread.
    """

    def __init__(self, shared: SharedId, timeout_s: float) -> None:
        self._shared = shared
        self._timeout_s = timeout_s
        self._worker = Worker("shared-id")
        self.path = shared.path

    def __enter__(self) -> SharedDirectory:
        """The thread begins with the first call."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread."""
        self._worker.close()

    def id_in(self, data: bytes) -> str | None:
        """See the function."""
        return id_in(data)

    async def read(self) -> str | None:
        """See `SharedId`; so for the others."""
        return await self._run(self._shared.read)

    async def give(self, new: str | None) -> str:
        return await self._run(partial(self._shared.give, new))

    async def has_topics(self) -> bool:
        return await self._run(self._shared.has_topics)

    async def _run(self, call: Callable[[], T]) -> T:
        async with asyncio.timeout(self._timeout_s):
            return await self._worker.run(call)
