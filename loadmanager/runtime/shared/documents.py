"""JSON objects in the metadata store. Others write them, too, so every reading may meet nonsense.

A reader that has somebody to answer lets `CorruptDataError` pass: it names the path and the
problem.

    document = read_object(node.value, path)
    with stored(path):
        report = decode_local_broker_data(node.value)

A reader that keeps a cache leaves the corrupt thing out and goes on. `Corrupt` logs and counts it.

    with corrupt.left_out("report", path):
        report = decode_local_broker_data(node.value)
        self.reports[broker_id] = report      # not reached when the report is corrupt
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import structlog

from loadmanager.core.errors import BadInputError, ConflictError, CorruptDataError
from loadmanager.core.nesting import STORED_LEVELS_MAX, nests_deeper
from loadmanager.ports.store import Node, Store, VersionConflictError

ATTEMPTS_MAX = 7
CORRUPT_PATHS_MAX = 1_000
"""So many corrupt paths are remembered; those beyond are counted at each reading, not logged."""

Document = dict[str, Any]

log = structlog.get_logger("documents")


@contextmanager
def stored(path: str) -> Iterator[None]:
    """Turn what decoders raise inside the block into `CorruptDataError`, naming the path.

    These are `BadInputError`, `RecursionError` (deep nesting), and `ValueError`, which msgspec's
    errors and `UnicodeDecodeError` are. Only decode inside the block:
    a write's `ConflictError` is a `BadInputError`, too.
    """
    try:
        yield
    except (BadInputError, ValueError, RecursionError) as error:
        raise CorruptDataError(f"{path} is corrupt: {error}; repair or delete the node") from None


class Corrupt:
    """What of the metadata store cannot be used, logged once each until it is mended, and counted.

    The kinds are report, lock, policy, boundaries, dynamic, averages, leader and topic.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Kind → how many corrupt things were met so far."""
        self._paths: set[str] = set()

    @property
    def paths(self) -> list[str]:
        """What is corrupt now, as far as it was read."""
        return sorted(self._paths)

    @contextmanager
    def left_out(self, kind: str, path: str) -> Iterator[None]:
        """As `counted`, but the error goes no further: the block ends, and the caller goes on."""
        with suppress(CorruptDataError), self.counted(kind, path):
            yield

    @contextmanager
    def counted(self, kind: str, path: str) -> Iterator[None]:
        """As `stored`; the first error at a path is logged and counted.

        A block that passes says that what is stored there is mended.
        """
        try:
            with stored(path):
                yield
        except CorruptDataError as error:
            self.found(kind, path, error)
            raise
        self.mended(path)

    def found(self, kind: str, path: str, error: CorruptDataError) -> None:
        """Log and count what is corrupt at `path`, once until it is mended."""
        if path in self._paths:
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self._paths) < CORRUPT_PATHS_MAX:
            self._paths.add(path)
            log.error(
                "stored data is corrupt and is left out", kind=kind, path=path, error=str(error)
            )

    def mended(self, path: str) -> None:
        """What is stored at `path` can be used, or is gone."""
        if path in self._paths:
            self._paths.discard(path)
            log.info("stored data is no longer corrupt", path=path)

    def object_of(self, node: Node | None, kind: str, path: str) -> dict[str, Any]:
        """The object in a node; an empty one for a node that is missing or corrupt."""
        with self.left_out(kind, path):
            return {} if node is None else read_object(node.value, path)
        return {}


def read_object(value: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a node; an empty value is an empty object. Raises `CorruptDataError`."""
    if not value:
        return {}
    with stored(path):
        document = msgspec.json.decode(value)
        if nests_deeper(document, value, STORED_LEVELS_MAX):
            raise BadInputError(f"it nests deeper than {STORED_LEVELS_MAX} levels")
        if not isinstance(document, dict):
            raise BadInputError("it holds no JSON object")
        return document


def write_object(document: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object."""
    return msgspec.json.encode(document)


async def update(
    store: Store, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """Read, change and write an object by compare-and-set; a missing node is an empty object.

    Raises `ConflictError` when others keep writing it, `CorruptDataError` when it cannot be read.
    """
    for _ in range(ATTEMPTS_MAX):
        node = await store.get(path)
        if node is None:
            if await store.create(path, write_object(change({}))):
                return
            continue
        changed = change(read_object(node.value, path))
        with stored(path):  # what is nested as deeply as can be read may be too deep to be written
            value = write_object(changed)
        try:
            await store.put(path, value, version=node.version)
        except VersionConflictError:
            continue
        return
    raise ConflictError(f"Concurrent modification of {path}")
