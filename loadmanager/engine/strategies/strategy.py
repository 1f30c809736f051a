"""A strategy: an object with its name, its needs and its functions.

A strategy keeps its own memory: a value that its functions get and return. No other strategy sees
it. A leader stores it for the next one, if the strategy says how.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadmanager.engine.load.reports import BrokerLoadData, BundleData, LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.never_sheds import NeverSheds
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings

Observe = Callable[[str, LocalBrokerData | BrokerLoadData, StrategySettings, Any], Any]
"""brokerId, its report, settings and memory in; memory out."""


def no_memory() -> None:
    """The memory of a strategy that remembers nothing."""


@dataclass(frozen=True, slots=True)
class Shed:
    """A shedder's answer: moves, which the guards have yet to allow, a reason for everything that
    stays, and its memory.
    """

    unloads: tuple[Unload, ...]
    skipped: tuple[Skip, ...]
    memory: Any


@dataclass(frozen=True, slots=True)
class Tries:
    """The values of a key that a tournament tries."""

    key: str
    grid: tuple[float, ...]
    low: float
    high: float
    """A random search draws between `low` and `high`, both above 0 unless the values are whole."""
    whole: bool = False
    """Whether only whole numbers are values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedder:
    """Decides which bundles leave their brokers."""

    name: str
    """Its name in broker.conf: the last part of a class name."""
    shed: Callable[[ClusterSnapshot, StrategySettings, Any], Shed]
    """One cycle: snapshot, settings and memory in.

    `to_place` of the snapshot holds the bundles that are about to be placed.
    """
    memory: Callable[[], Any] = no_memory
    stored: Any = None
    """The type (msgspec's) as which its memory is stored for the next leader; None: it is not, and
    a term of leadership begins with what `memory` makes.
    """
    settings: type | None = None
    """The dataclass of its own broker.conf keys (`kit.conf.conf`), which `StrategySettings.of`
    gives it.
    """
    observe: Observe | None = None
    """Called with every report, also between cycles, while this shedder is the one that acts."""
    keep: Callable[[Any, Collection[str]], Any] | None = None
    """Memory and live brokers in; the memory without all other brokers out. Called at the beginning
    of each cycle, also of one that sheds nothing (Pulsar `onActiveBrokersChange`).
    """
    extensible: bool = True
    """Whether it can read the reports of the extensible manager."""
    for_followers: bool = False
    """Whether its destinations count only with a placement rule that follows it."""
    goes_with: str | None = None
    """The placement rule that scores brokers as it does; None: every rule fits it."""
    never_sheds: Callable[[StrategySettings], Iterable[NeverSheds]] = lambda _settings: ()
    """Settings with which it never sheds anything; the doctor calls each a problem."""
    checks_destinations: bool = False
    """Whether it applies the extensible manager's filters to every destination itself."""
    names_destinations: bool = False
    """Whether it says where a bundle goes, rather than leave that to a placement rule."""
    tries: tuple[Tries, ...] = ()
    """Its most important keys, and what a tournament tries of them."""
    fewer_moves: str = ""
    """A sentence: what saves moves that gain nothing; empty: nothing particular."""
    more_even: str = ""
    """What makes it act sooner, ending in "Try it" or "Try both"; empty: nothing particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRule:
    """Decides which brokers are best for a bundle that has no owner, in the modular manager."""

    name: str
    candidates: Callable[
        [ClusterSnapshot, Sequence[str], StrategySettings, Any], tuple[Sequence[str], Any]
    ]
    """The best of the brokers that the filters left, all equally good, and its memory.

    `placing` of the snapshot names the bundle; `to_place` holds what it and the bundles that wait
    with it carry.
    """
    why: (
        Callable[[ClusterSnapshot, str, StrategySettings, Any], Mapping[str, float | str]] | None
    ) = None
    """The numbers behind the choice of a broker, given its name; they are recorded."""
    order: Callable[[Mapping[str, BundleData]], Sequence[str]] | None = None
    """The order in which to place the bundles of one request, given their averages; None: the order
    of the request.
    """
    memory: Callable[[], Any] = no_memory
    stored: Any = None
    """See `Shedder`."""
    settings: type | None = None
    """See `Shedder`."""
    observe: Observe | None = None
    """See `Shedder`; called with every report while this rule is the one that acts."""
    advance: Callable[[ClusterSnapshot, StrategySettings, Any], Any] | None = None
    """Snapshot, settings and memory in, memory out; called once for each request."""
    follows: str | None = None
    """The only shedder that this rule works with: it follows that shedder's planned destinations.
    None: any shedder."""
    tries: tuple[Tries, ...] = ()
    """See `Shedder`: tried together with a shedder's, which goes with this rule or with any."""
    reads: Shedder | None = None
    """The shedder whose memory `candidates` gets instead of one of its own; it returns the same."""


Strategy = Shedder | PlacementRule
