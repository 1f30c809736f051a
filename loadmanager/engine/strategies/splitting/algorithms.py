"""Boundaries for splits, in Pulsar's integer arithmetic
(`org.apache.pulsar.common.naming.*BundleSplitAlgorithm`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.columns import plain_sum
from loadmanager.kit.errors import BadInputError, ConfigError

RANGE = "range_equally_divide"
TOPIC_COUNT = "topic_count_equally_divide"
POSITIONS = "specified_positions_divide"
FLOW_OR_QPS = "flow_or_qps_equally_divide"


@dataclass(frozen=True, slots=True)
class HashedTopic:
    """One topic of a bundle: its hash, and its messages/s and bytes/s in and out."""

    hash: int
    rate: float = 0.0
    throughput: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits of a bundle (`flow_or_qps_equally_divide`), in messages/s and bytes/s.

    `difference` is the tolerated excess, a fraction.
    """

    rate: float
    throughput: float
    difference: float


Algorithm = Callable[[BundleRange, Mapping[str, HashedTopic], FlowLimits], Sequence[int]]
"""A bundle's range and topics by name, and the limits → boundaries inside the range, ascending;
none: it is not split.
"""
ALGORITHMS: dict[str, Algorithm | None] = dict.fromkeys(
    (RANGE, TOPIC_COUNT, POSITIONS, FLOW_OR_QPS)
)
"""Name → the function of a third party; None: ours."""


def register_algorithm(name: str, algorithm: Algorithm) -> None:
    """Make an algorithm of a third party known. Raises `ConfigError` if another one has the name,
    or it is no name.
    """
    if not name.isidentifier():
        raise ConfigError(f"{name!r} is no name of a split algorithm: letters, digits and _ are")
    if ALGORITHMS.setdefault(name, algorithm) is not algorithm:
        raise ConfigError(f"there is already another split algorithm with the name {name}")


def boundaries(
    algorithm: str,
    span: BundleRange,
    topics: Mapping[str, HashedTopic],
    *,
    limits: FlowLimits,
    positions: Sequence[int] = (),
) -> tuple[int, ...]:
    """The boundaries at which an algorithm splits a bundle, ascending; empty if it does not.

    Raises `BadInputError` for an unknown algorithm or missing positions.
    """
    if algorithm == RANGE:
        return (span.lower + (span.upper - span.lower) // 2,)
    if algorithm == TOPIC_COUNT:
        return _by_topic_count(sorted(topic.hash for topic in topics.values()))
    if algorithm == POSITIONS:
        if not positions:
            raise BadInputError(f"{POSITIONS} needs positions")
        inside = tuple(
            sorted(position for position in set(positions) if span.lower < position < span.upper)
        )
        return inside if len(topics) > 1 else ()
    if algorithm == FLOW_OR_QPS:
        return _by_flow(list(topics.values()), limits)
    theirs = ALGORITHMS.get(algorithm)
    if theirs is not None:
        return tuple(theirs(span, topics, limits))
    raise BadInputError(
        f"Unsupported namespace bundle split algorithm {algorithm!r}: {', '.join(ALGORITHMS)} "
        "are supported"
    )


def useful_boundaries(
    algorithm: str,
    span: BundleRange,
    topics: Mapping[str, HashedTopic],
    *,
    limits: FlowLimits,
    positions: Sequence[int] = (),
) -> tuple[tuple[int, ...], str]:
    """The boundaries, or none and why a split would not help. Raises as `boundaries` does."""
    places = boundaries(algorithm, span, topics, limits=limits, positions=positions)
    hashes = sorted({topic.hash for topic in topics.values()})
    if not span.splittable:
        return (), "it is one hash wide"
    if len(hashes) == 1:
        carriers = "topics of one hash carry" if len(topics) > 1 else "one topic carries"
        return (), f"{carriers} it; partition the topic"
    if not places:
        return (), f"{algorithm} finds no useful boundary among its {len(topics)} known topics"
    if places[0] <= span.lower or places[-1] >= span.upper:
        return (), f"{algorithm} splits at its edge"
    # With all topics on one side, repeated range splits still narrow down to them, and an operator
    # chose the positions. Any other algorithm would repeat such a split for ever.
    divides = any(hashes[0] < boundary <= hashes[-1] for boundary in places) if hashes else True
    if algorithm not in (RANGE, POSITIONS) and not divides:
        return (), f"{algorithm} leaves all topics on one side"
    return places, ""


def _by_topic_count(hashes: list[int]) -> tuple[int, ...]:
    """Between the two topics in the middle."""
    count = len(hashes)
    if count <= 1:
        return ()
    start, end = hashes[max(count // 2 - 1, 0)], hashes[count // 2]
    return (start + (end - start) // 2,)


def _by_flow(topics: list[HashedTopic], limits: FlowLimits) -> tuple[int, ...]:
    """A boundary before each topic that would carry a part over the limits.

    Deviation: topics of one hash count as one topic with the sum of their loads. Pulsar counts the
    last one's load for each of them, and may split twice at one place.
    """
    if len(topics) <= 1:
        return ()
    by_hash: dict[int, HashedTopic] = {}
    for topic in topics:
        if topic.rate > 0 or topic.throughput > 0:
            same = by_hash.get(topic.hash, HashedTopic(topic.hash))
            by_hash[topic.hash] = HashedTopic(
                topic.hash, same.rate + topic.rate, same.throughput + topic.throughput
            )
    loaded = [by_hash[value] for value in sorted(by_hash)]
    rate = plain_sum(np.array([topic.rate for topic in loaded]))
    throughput = plain_sum(np.array([topic.throughput for topic in loaded]))
    excess = 1 + limits.difference
    if len(loaded) < 2 or (rate < limits.rate * excess and throughput < limits.throughput * excess):
        return ()
    places: list[int] = []
    rate, throughput = loaded[0].rate, loaded[0].throughput
    for before, topic in zip(loaded, loaded[1:], strict=False):
        if rate + topic.rate > limits.rate or throughput + topic.throughput > limits.throughput:
            places.append(before.hash + (topic.hash - before.hash) // 2 + 1)
            rate, throughput = topic.rate, topic.throughput
        else:
            rate, throughput = rate + topic.rate, throughput + topic.throughput
    return tuple(places)
