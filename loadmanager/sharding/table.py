"""Which member serves which keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange, parse_boundaries, topic_hash
from loadmanager.kit.errors import BadInputError


class _Document(msgspec.Struct, frozen=True):
    boundaries: list[str]
    members: list[str]
    owners: list[int]
    """For each range the number of its member; -1: nobody serves it."""


class Table:
    """Who serves which keys, at one moment, as one member or client knew it. Does not change."""

    __slots__ = ("_boundaries", "_lowers", "_owners")

    def __init__(self, boundaries: Sequence[int], owners: Sequence[str]) -> None:
        """`owners`: the address for each range between two boundaries; empty: nobody."""
        self._boundaries, self._owners = tuple(boundaries), list(owners)
        self._lowers = self._boundaries[:-1]

    def owner(self, key: str) -> str:
        """The address of the member that serves a key; empty while nobody does."""
        return self._owners[bisect_right(self._lowers, topic_hash(key)) - 1]

    @property
    def ranges(self) -> list[tuple[BundleRange, str]]:
        """Every range of hashes with the address of its member."""
        spans = zip(self._boundaries, self._boundaries[1:], strict=False)
        return [
            (BundleRange(*span), owner) for span, owner in zip(spans, self._owners, strict=True)
        ]

    def to_json(self) -> bytes:
        """All of it, for one answer."""
        members = sorted(set(self._owners) - {""})
        numbers = {"": -1} | {member: number for number, member in enumerate(members)}
        return msgspec.json.encode(
            _Document(
                [f"0x{value:08x}" for value in self._boundaries],
                members,
                [numbers[owner] for owner in self._owners],
            )
        )

    @staticmethod
    def from_json(value: bytes) -> Table:
        """The inverse. Raises `BadInputError`."""
        try:
            document = msgspec.json.decode(value, type=_Document)
            owners = ["" if at < 0 else document.members[at] for at in document.owners]
        except (msgspec.MsgspecError, IndexError) as error:
            raise BadInputError(f"this is no table of owners: {error}") from None
        boundaries = parse_boundaries(document.boundaries)
        if len(owners) != len(boundaries) - 1:
            raise BadInputError("this is no table of owners: one owner a range is expected")
        return Table(boundaries, owners)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.ranges == other.ranges

    __hash__ = None  # type: ignore[assignment]
