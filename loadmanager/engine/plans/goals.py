"""What a plan is for, and within which limits. Both are stored with an order to reach a goal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.text import count_of

NAMES_MAX = 1_000
"""Names that a goal, or its limits, may have."""
NAMES_SHOWN = 10
WINDOWS_MAX = 20
MOVES_MAX = 10_000
NUMBER_MAX = 1e18
TIME_MAX_MS = 253_402_300_799_999
"""The end of the year 9999."""


class _Value(msgspec.Struct, frozen=True, rename="camel", tag_field="kind"):
    pass


class Even(_Value, frozen=True, tag="even"):
    """Every broker's usage is within so many percentage points of the mean of all."""

    within_points: float


class Filled(_Value, frozen=True, tag="filled"):
    """A broker, a new one say, has this part of the mean usage."""

    broker: str
    part: float = 0.95


class Emptied(_Value, frozen=True, tag="emptied"):
    """A broker has no bundle that may leave it."""

    broker: str


class Spare(_Value, frozen=True, tag="spare"):
    """Any one broker may be lost: the others can take its bundles, and none is overloaded then."""


class Apart(_Value, frozen=True, tag="apart"):
    """No broker has bundles of two of these tenants or namespaces."""

    names: tuple[str, ...]


Goal = Even | Filled | Emptied | Spare | Apart


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a plan may cost at most, when its moves may be made, and what it leaves alone."""

    moves: int = MOVES_MAX
    traffic: float | None = None
    """Bytes/s in and out of all bundles that move, averaged over some reports; None: any."""
    clients: float | None = None
    """Producers and consumers that are paused; one that is paused twice counts twice."""
    client_seconds: float | None = None
    """The sum of their pauses."""
    stay: tuple[str, ...] = ()
    """Bundles, namespaces and tenants that stay where they are."""
    from_ms: int = 0
    """No move before this time (ms since the epoch)."""
    until_ms: int | None = None
    """No move after it."""
    windows: tuple[str, ...] = ()
    """Moves are made in these hours alone (`leader.windows`); none: at any time."""


NO_LIMITS = PlanLimits()


def hours_of(limits: PlanLimits, clock: Callable[[int], str]) -> list[str]:
    """When the moves of a plan may be made, for people; `clock`: a time for them."""
    lines = [f"no move before {clock(limits.from_ms)}"] if limits.from_ms else []
    if limits.until_ms is not None:
        lines.append(f"to be done by {clock(limits.until_ms)}")
    return [*lines, *windows_of(limits)]


def windows_of(limits: PlanLimits) -> list[str]:
    """In which hours alone its moves are made."""
    return [f"moves only in {'; '.join(limits.windows)}"] if limits.windows else []


def bounds_of(limits: PlanLimits) -> list[str]:
    """What a plan may cost at most, and what stays, for people; its hours are not here."""
    bounds = [f"at most {count_of(limits.moves, 'move')}"] if limits.moves < MOVES_MAX else []
    if limits.traffic is not None:
        bounds.append(f"at most {limits.traffic / 1e6:.4g} MB/s of traffic that moves (in and out)")
    if limits.clients is not None:
        bounds.append(f"at most {limits.clients:.4g} clients that are paused")
    if limits.client_seconds is not None:
        bounds.append(f"at most {limits.client_seconds:.4g} s of pauses of clients in all")
    if limits.stay:
        more = len(limits.stay) - NAMES_SHOWN
        names = ", ".join(limits.stay[:NAMES_SHOWN])
        bounds.append(f"stay: {names}" + (f" and {more} more" if more > 0 else ""))
    return bounds


class Staying:
    """What is to stay where it is. `names`: tenants, namespaces, and bundles with what they were
    split into or merged with since; `refused`: bundles of exactly this range.
    """

    __slots__ = ("_names", "_ranges")

    def __init__(self, names: Iterable[str], refused: Iterable[str] = ()) -> None:
        self._names = frozenset((*names, *refused))
        self._ranges: dict[str, list[BundleRange]] = {}
        for name in names:
            namespace, _, span = name.rpartition("/")
            with suppress(BadInputError):
                self._ranges.setdefault(namespace, []).append(BundleRange.parse(span))

    def __bool__(self) -> bool:
        return bool(self._names)

    def has(self, bundle: str) -> bool:
        """Whether a bundle is to stay: by itself, with its namespace or with its tenant, or because
        a part of it is.
        """
        namespace, span = split_bundle_name(bundle)
        if not self._names.isdisjoint((bundle, namespace, namespace.partition("/")[0])):
            return True
        ranges = self._ranges.get(namespace)
        if ranges is None:
            return False
        its = BundleRange.parse(span)
        return any(its.lower < each.upper and each.lower < its.upper for each in ranges)


def name_of(bundle: str, names: Collection[str]) -> str | None:
    """The tenant or namespace among these that a bundle is of."""
    if not names:
        return None
    namespace, _, _ = bundle.rpartition("/")
    if namespace in names:
        return namespace
    tenant, _, _ = namespace.partition("/")
    return tenant if tenant in names else None


def check(goal: Goal, limits: PlanLimits) -> None:
    """Raise `BadInputError` for what no plan can be made of; windows are not looked at."""
    match goal:
        case Even(within_points=points):
            _require(0 < points <= 100, f"even within {points:g} points: 0 to 100 is allowed")
        case Filled(part=part):
            _require(0 < part <= 1, f"a part of {part:g} of the mean: 0 to 1 is allowed")
        case Apart(names=names):
            _check_names(names)
            _require(len(set(names)) > 1, "name two tenants or namespaces to keep apart, at least")
            inside = [name for name in names if name.partition("/")[0] in set(names) - {name}]
            _require(not inside, f"{', '.join(inside)}: the tenant is named, too")
    _check_names(limits.stay)
    _require(1 <= limits.moves <= MOVES_MAX, f"1 to {MOVES_MAX} moves are allowed")
    for limit in (limits.traffic, limits.clients, limits.client_seconds):
        _require(
            limit is None or 0 <= limit < NUMBER_MAX,
            f"a limit is 0 or more, and less than {NUMBER_MAX:g}",
        )
    for time_ms in (limits.from_ms, limits.until_ms):
        fits = time_ms is None or 0 <= time_ms <= TIME_MAX_MS
        _require(fits, "times are milliseconds since 1970, up to the year 9999")
    ends = limits.until_ms is None or limits.until_ms > limits.from_ms
    _require(ends, "it is to be done before it may begin")
    _require(len(limits.windows) <= WINDOWS_MAX, f"at most {WINDOWS_MAX} windows are allowed")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise BadInputError(text)


def _check_names(names: tuple[str, ...]) -> None:
    if len(names) > NAMES_MAX or any(not 0 < len(name) <= 1024 for name in names):
        raise BadInputError(f"at most {NAMES_MAX} names of 1 to 1024 characters are allowed")
