"""JSON objects in the metadata store, which may be corrupt, because others write them, too.

Code that answers a request lets `CorruptDataError` pass to the caller; it names the path and the
problem:

    document = read_object(node.value, path)
    with stored(path):
        report = decode_local_broker_data(node.value)

Code that keeps a cache leaves out the corrupt object and goes on; `Corrupt` logs and counts it:

    with corrupt.left_out("report", path):
        report = decode_local_broker_data(node.value)
        self.reports[broker_id] = report      # skipped when the report is corrupt
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from loadmanager.kit.errors import BadInputError, ConflictError, CorruptDataError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Node, Operation, Put, Store, VersionConflictError
from loadmanager.kit.nesting import STORED_LEVELS_MAX, nests_deeper

ATTEMPTS_MAX = 7
CORRUPT_PATHS_MAX = 1_000
"""Corrupt paths that are remembered. Further ones are not logged, and counted at each read."""
KINDS = (
    "averages",
    "boundaries",
    "dynamic",
    "leader",
    "lock",
    "members",
    "memory",
    "policy",
    "refused",
    "report",
    "schema",
    "state",
    "topic",
    "wish",
)
"""What `Corrupt` counts apart."""

Document = dict[str, Any]

log = get_logger("documents")


@contextmanager
def stored(path: str) -> Iterator[None]:
    """Turn the errors of decoders inside the block into a `CorruptDataError` that names the path.

    These errors are `BadInputError`, `RecursionError` (deep nesting) and `ValueError` (msgspec's
    errors and `UnicodeDecodeError`). Do not write to the store inside the block: the
    `ConflictError` of a write is a `BadInputError`, too.
    """
    try:
        yield
    except (BadInputError, ValueError, RecursionError) as error:
        raise CorruptDataError(f"{path} is corrupt: {error}; repair or delete the node") from None


class Corrupt:
    """The corrupt objects of the metadata store, counted, and logged once until they are mended.

    The kinds are those of `KINDS`.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Kind (of `KINDS`) → number of corrupt objects so far."""
        self._paths: set[str] = set()

    @property
    def paths(self) -> list[str]:
        """The paths that were corrupt when they were last read."""
        return sorted(self._paths)

    @contextmanager
    def left_out(self, kind: str, path: str) -> Iterator[None]:
        """Like `counted`, but suppress the error: the block ends, and the caller goes on."""
        with suppress(CorruptDataError), self.counted(kind, path):
            yield

    @contextmanager
    def counted(self, kind: str, path: str) -> Iterator[None]:
        """Like `stored`, and log and count the first error at a path.

        A block without an error marks the path as mended.
        """
        try:
            with stored(path):
                yield
        except CorruptDataError as error:
            self.add(kind, path, error)
            raise
        self.mended(path)

    def add(self, kind: str, path: str, error: CorruptDataError) -> None:
        """Log and count a corrupt object, once until it is mended."""
        if path in self._paths:
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self._paths) < CORRUPT_PATHS_MAX:
            self._paths.add(path)
            log.error(
                "stored data is corrupt and is left out", kind=kind, path=path, error=str(error)
            )

    def mended(self, path: str) -> None:
        """Mark the object at `path` as readable, or deleted."""
        if path in self._paths:
            self._paths.discard(path)
            log.info("stored data is no longer corrupt", path=path)

    def object_of(self, node: Node | None, kind: str, path: str) -> dict[str, Any]:
        """The object in a node; an empty object if the node is missing or corrupt."""
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
    return msgspec.json.encode(document)


async def update(
    store: Store,
    path: str,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    also: Callable[[], Awaitable[Operation]] | None = None,
) -> None:
    """Change an object by compare-and-set; a missing node counts as an empty object.

    `change` may be called several times, and `also`, which makes an operation of the same
    transaction on another node. Raises `ConflictError` after `ATTEMPTS_MAX` conflicts with other
    writers, and `CorruptDataError` for a corrupt object.
    """
    for _ in range(ATTEMPTS_MAX):
        node = await store.get(path)
        if node is None:
            if await store.create(path, write_object(change({}))):
                return
            continue
        changed = change(read_object(node.value, path))
        with stored(path):  # an object that is not too deep to read may be too deep to write
            value = write_object(changed)
        try:
            if also is None:
                await store.put(path, value, version=node.version)
            else:
                await store.commit([Put(path, value, node.version), await also()])
        except VersionConflictError:
            continue
        return
    raise ConflictError(f"Concurrent modification of {path}")


def with_field(document: Document, path: tuple[str, ...], value: Any) -> Document:
    """A copy of a document with one nested field set; None removes it, and the parents that are
    empty then.
    """
    name, *rest = path
    nested = document.get(name)
    if rest:
        value = with_field(nested if isinstance(nested, dict) else {}, tuple(rest), value) or None
    changed = {key: other for key, other in document.items() if key != name}
    return changed if value is None else {**changed, name: value}


def field_of(document: Document, path: tuple[str, ...]) -> Any:
    """A nested field; None if there is none."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
