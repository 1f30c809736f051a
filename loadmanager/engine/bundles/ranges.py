"""Ranges of the 32-bit hash space, boundaries of a namespace, and which bundle a topic falls into.

Every bundle is the half-open range [lower, upper), except the last of a namespace, which includes
0xffffffff (Pulsar `NamespaceBundle`, `NamespaceBundleFactory`). A topic's hash is CRC-32 (IEEE, as
zlib's) of the UTF-8 bytes of its full name.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import lru_cache

from loadmanager.kit.errors import BadInputError, StaleError
from loadmanager.kit.names import NamespaceName

FULL_LOWER = 0x00000000
FULL_UPPER = 0xFFFFFFFF
BUNDLES_MAX = 1 << 32


def topic_hash(topic: str) -> int:
    """CRC-32 of the full topic name, 0 ≤ hash < 2³² (Pulsar
    `ConsistentHashingTopicBundleAssigner`).
    """
    try:
        return zlib.crc32(topic.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, as in names of files
        return zlib.crc32(topic.encode(errors="surrogatepass"))


def bundles_text(count: float) -> str:
    """A number of bundles in words."""
    return "1 bundle" if count == 1 else f"{count:g} bundles"


class NoSuchBundleError(StaleError):
    """A namespace does not have this bundle, or no longer has it because it was split."""


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """A range of the hash space; `upper` is exclusive unless it is 0xffffffff."""

    lower: int
    upper: int

    @staticmethod
    @lru_cache(maxsize=100_000)
    def parse(text: str) -> BundleRange:
        """Parse `0xhhhhhhhh_0xhhhhhhhh`; hexadecimal with 0x or decimal, as Java's decode reads it.

        Raises `BadInputError`.
        """
        try:
            lower, upper = (int(part, 0) for part in text.split("_"))
        except ValueError:
            raise BadInputError(
                f"invalid bundle range {text!r}: 0x00000000_0xffffffff is expected"
            ) from None
        if not FULL_LOWER <= lower < upper <= FULL_UPPER:
            raise BadInputError(
                f"invalid bundle range {text!r}: 0 <= lower < upper <= 0xffffffff must hold"
            )
        return BundleRange(lower, upper)

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    def __contains__(self, value: int) -> bool:
        return self.lower <= value < self.upper or value == self.upper == FULL_UPPER

    @property
    def splittable(self) -> bool:
        """True if a boundary fits strictly inside (Pulsar
        `NamespaceBundleFactory.canSplitBundle`).
        """
        return self.upper - self.lower > 1


def bundle_name(namespace: str, bundle_range: str) -> str:
    """`tenant/namespace/range`."""
    return f"{namespace}/{bundle_range}"


@lru_cache(maxsize=100_000)
def split_bundle_name(bundle: str) -> tuple[str, str]:
    """`(tenant/namespace, range)` of a bundle's name; raises `BadInputError`.

    A namespace may have three parts, as those of heartbeats do.
    """
    namespace, _, bundle_range = bundle.rpartition("/")
    parts = namespace.split("/")
    if not all(parts) or len(parts) not in (2, 3):
        raise BadInputError(
            f"invalid bundle {bundle!r}: tenant/namespace/0x00000000_0xffffffff is expected"
        )
    return namespace, bundle_range


def equal_boundaries(count: int) -> tuple[int, ...]:
    """Boundaries that divide the hash space into `count` bundles as Pulsar does: multiples of
    2³² // count, then 0xffffffff.

    Raises `BadInputError` unless 1 ≤ count ≤ 2³².
    """
    if not 1 <= count <= BUNDLES_MAX:
        raise BadInputError(f"invalid number of bundles {count}: 1 to {BUNDLES_MAX} is allowed")
    width = (1 << 32) // count
    return (*(index * width for index in range(count)), FULL_UPPER)


def parse_boundaries(texts: list[str] | tuple[str, ...]) -> tuple[int, ...]:
    """Boundaries from their texts (`0x40000000` or decimal).

    Raises `BadInputError` unless they ascend from 0 to 0xffffffff.
    """
    try:
        values = tuple(int(text, 0) for text in texts)
    except (TypeError, ValueError):
        raise BadInputError(
            f"invalid boundaries {str(texts)[:200]}: hexadecimal texts such as 0x40000000 are "
            "expected"
        ) from None
    ascending = all(low < high for low, high in zip(values, values[1:], strict=False))
    if len(values) < 2 or values[0] != FULL_LOWER or values[-1] != FULL_UPPER or not ascending:
        raise BadInputError(
            f"invalid boundaries {', '.join(map(str, texts[:SHOWN_MAX]))[:200]}"
            f"{', …' if len(texts) > SHOWN_MAX else ''}: they must ascend strictly from 0x00000000 "
            "to 0xffffffff"
        )
    return values


def format_boundaries(boundaries: tuple[int, ...]) -> list[str]:
    """Boundaries as Pulsar stores them: `0x%08x` each."""
    return [f"0x{value:08x}" for value in boundaries]


def bundles_data(boundaries: tuple[int, ...]) -> dict[str, object]:
    """The bundles of a namespace as policies and the admin API show them (Pulsar's
    `BundlesData`).
    """
    return {"boundaries": format_boundaries(boundaries), "numBundles": len(boundaries) - 1}


SHOWN_MAX = 4
"""How many ranges or boundaries an error names."""


@dataclass(frozen=True, slots=True)
class NamespaceBundles:
    """The bundles of one namespace.

    `version` is that of the stored policies, the optimistic lock of a split (−1: not stored).
    """

    namespace: NamespaceName
    boundaries: tuple[int, ...]
    version: int = -1
    _names: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Bundles that were asked for: each lookup asks for one. Index of the upper boundary → name."""

    @property
    def ranges(self) -> list[BundleRange]:
        """All ranges in ascending order."""
        return [
            BundleRange(low, high)
            for low, high in zip(self.boundaries, self.boundaries[1:], strict=False)
        ]

    @property
    def names(self) -> list[str]:
        """All bundle names in ascending order of range."""
        return [f"{self.namespace}/{span}" for span in self.ranges]

    def bundle_of_topic(self, topic: str) -> str:
        """Name of the bundle of a full topic name."""
        return self.bundle_of_hash(topic_hash(topic))

    def bundle_of_hash(self, value: int) -> str:
        """Name of the bundle that contains `value`; 0xffffffff belongs to the last bundle."""
        at = min(bisect_right(self.boundaries, value), len(self.boundaries) - 1)
        name = self._names.get(at)
        if name is None:
            span = BundleRange(self.boundaries[at - 1], self.boundaries[at])
            name = self._names[at] = f"{self.namespace}/{span}"
        return name

    def require(self, bundle_range: str) -> BundleRange:
        """Parse a range and check that it is a bundle of this namespace now (Pulsar
        `validateBundle`).

        Raises `BadInputError` for a malformed text and `NoSuchBundleError` when no such bundle
        exists.
        """
        parsed = BundleRange.parse(bundle_range)
        there = self.overlapping(parsed)
        if there != [parsed]:
            more = ", …" if len(there) > SHOWN_MAX else ""
            raise NoSuchBundleError(
                f"{self.namespace} has no bundle {parsed}; there it has "
                f"{', '.join(map(str, there[:SHOWN_MAX]))}{more}"
            )
        return parsed

    def overlapping(self, span: BundleRange) -> list[BundleRange]:
        """The bundles that have a part of a range, in ascending order: itself if it is a bundle."""
        first = bisect_right(self.boundaries, span.lower) - 1
        end = bisect_left(self.boundaries, span.upper)
        edges = self.boundaries[first : end + 1]
        return [BundleRange(low, high) for low, high in zip(edges, edges[1:], strict=False)]

    def merge(self, left: BundleRange, right: BundleRange) -> NamespaceBundles:
        """The bundles after a merge of two neighbours, the lower one first.

        Raises `ConflictError` unless both are bundles of this namespace, `BadInputError` if they
        are not neighbours.
        """
        for part in (left, right):
            self.require(str(part))
        if left.upper != right.lower:
            raise BadInputError(f"{left} and {right} do not lie next to each other, in this order")
        boundaries = tuple(value for value in self.boundaries if value != left.upper)
        return NamespaceBundles(self.namespace, boundaries, self.version)

    def split(self, parent: BundleRange, boundaries: list[int]) -> NamespaceBundles:
        """The bundles after a split of `parent` at new boundaries.

        Raises `BadInputError` unless each is strictly inside `parent`, `ConflictError` if `parent`
        is not a bundle of this namespace.
        """
        ordered = sorted(set(boundaries))
        if not ordered or not parent.lower < ordered[0] or not ordered[-1] < parent.upper:
            raise BadInputError(
                f"invalid split of {parent} at {[f'0x{value:08x}' for value in ordered]}: "
                "boundaries must be strictly inside"
            )
        self.require(str(parent))
        return NamespaceBundles(
            self.namespace, tuple(sorted({*self.boundaries, *ordered})), self.version
        )
