"""Pairs of neighbouring bundles to merge: those that have stayed idle together (not in Pulsar).

A bundle that is too big is split within a few checks. Two neighbours are merged only after a long
idle time, which begins anew when either of them is made, and whenever they carry too much together:
more than a fraction, half at most, of the load at which a bundle is split. So a merged bundle is
split again only after its load has at least doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.conf import conf
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.names import is_system_namespace
from loadmanager.kit.units import MIB

IDLE = "idle_neighbours"
MERGE_RULES: dict[str, MergeRule | None] = {IDLE: None}
"""Name → the function of a third party; None: ours, `idle`."""


def register_merge_rule(name: str, rule: MergeRule) -> None:
    """Make a rule of a third party known. Raises `ConfigError` if another one has the name, or it
    is no name.
    """
    if not name.isidentifier():
        raise ConfigError(f"{name!r} is no name of a merge rule: letters, digits and _ are")
    if MERGE_RULES.setdefault(name, rule) is not rule:
        raise ConfigError(f"there is already another merge rule with the name {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Automatic merges of neighbouring bundles that stay idle."""

    enabled: bool = conf(
        "loadManagerBundleMergeEnabled",
        False,
        "Merge neighbouring bundles that stay idle",
        dynamic=True,
    )
    rule: str = conf(
        "loadManagerBundleMergeRule",
        IDLE,
        "The rule that says which two neighbours carry so little that one bundle could",
        choices=MERGE_RULES,
        dynamic=True,
    )
    idle_minutes: float = conf(
        "loadManagerBundleMergeIdleMinutes",
        60.0,
        "How long two neighbours must have been idle together, since the younger one exists",
        minimum=0.01,
        dynamic=True,
    )
    fraction: float = conf(
        "loadManagerBundleMergeLoadFraction",
        0.1,
        "idle_neighbours: two are idle while they carry less than this fraction of every limit "
        "beyond which a bundle is split",
        minimum=0,
        maximum=0.5,
        dynamic=True,
    )
    bundles_min: int = conf(
        "loadManagerBundleMergeMinimumBundles",
        4,
        "A namespace keeps at least so many bundles",
        minimum=1,
        dynamic=True,
    )


MergeRule = Callable[
    [NamespaceBundleStats, NamespaceBundleStats, SplitSettings, MergeSettings], bool
]
"""The traffic of two neighbours, the lower one first, and the limits → whether both together are
idle now.
"""


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge two neighbours."""

    left: str
    right: str
    reason: str


@dataclass(frozen=True, slots=True)
class MergeMemory:
    """Since when pairs of neighbours have been idle (ms since the epoch)."""

    idle_since_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)


def idle(
    left: NamespaceBundleStats,
    right: NamespaceBundleStats,
    splits: SplitSettings,
    settings: MergeSettings,
) -> bool:
    """True if two bundles together carry so little that one bundle could."""
    fraction = settings.fraction
    sessions = sum(stats.producer_count + stats.consumer_count for stats in (left, right))
    return (
        left.topics + right.topics <= fraction * splits.topics_max
        and (splits.sessions_max < 0 or sessions <= fraction * splits.sessions_max)
        and left.rate + right.rate <= fraction * splits.msg_rate_max
        and left.throughput + right.throughput <= fraction * splits.bandwidth_mib_max * MIB
    )


def choose(
    stats: Mapping[str, NamespaceBundleStats],
    counts: Mapping[str, int],
    now_ms: int,
    limits: tuple[SplitSettings, MergeSettings],
    memory: MergeMemory,
) -> tuple[list[Merge], MergeMemory]:
    """The merges of now, at most one for each namespace, and what to remember.

    `stats`: bundle → its traffic, of bundles that have an owner; `counts`: namespace → its bundles.
    """
    splits, settings = limits
    rule = MERGE_RULES.get(settings.rule) or idle
    before, since_ms = memory.idle_since_ms, dict[tuple[str, str], int]()
    best: dict[str, tuple[float, str, str]] = {}
    for left, right in neighbours(stats):
        if not rule(stats[left], stats[right], splits, settings):
            continue
        pair = left, right
        since_ms[pair] = min(before.get(pair, now_ms), now_ms)
        namespace = split_bundle_name(left)[0]
        if (
            now_ms - since_ms[pair] >= settings.idle_minutes * 60_000
            and counts.get(namespace, 0) > settings.bundles_min
        ):
            together = stats[left].throughput + stats[right].throughput
            candidate = together, left, right
            best[namespace] = min(best.get(namespace, candidate), candidate)
    reason = f"Idle: for {settings.idle_minutes:g} minutes"
    merges = [Merge(left, right, reason) for _, (_, left, right) in sorted(best.items())]
    return merges, MergeMemory(since_ms)


def neighbours(bundles: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs of bundles of one namespace that lie next to each other, in order."""
    spans: dict[str, list[BundleRange]] = {}
    for bundle in bundles:
        namespace, span = split_bundle_name(bundle)
        if not is_system_namespace(namespace):
            spans.setdefault(namespace, []).append(BundleRange.parse(span))
    pairs = []
    for namespace in sorted(spans):
        ordered = sorted(spans[namespace], key=lambda span: span.lower)
        for left, right in zip(ordered, ordered[1:], strict=False):
            if left.upper == right.lower:
                pairs.append((f"{namespace}/{left}", f"{namespace}/{right}"))
    return pairs
