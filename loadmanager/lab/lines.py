"""The input lines of `decide`: one cycle's cluster as JSON."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange, parse_boundaries, split_bundle_name
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    TimeAverageBrokerData,
    TopBundlesLoadData,
    decode_broker_load_data,
    decode_local_broker_data,
    decode_tolerant,
)
from loadmanager.engine.strategies.splitting.algorithms import ALGORITHMS
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason


class NamespaceLine(msgspec.Struct, rename="camel"):
    """One namespace: its boundaries and its anti-affinity group."""

    boundaries: list[str] = []
    anti_affinity_group: str | None = None


class TopicLine(msgspec.Struct, rename="camel"):
    """One topic's load; the hash is computed from the name when it is absent."""

    msg_rate: float = 0.0
    msg_throughput: float = 0.0
    hash: int | None = None


class SplitLine(msgspec.Struct, rename="camel"):
    """An explicit split."""

    bundle: str
    algorithm: str | None = None
    positions: list[int] = []


class Line(msgspec.Struct, rename="camel"):
    """One cycle."""

    brokers: dict[str, msgspec.Raw]
    """brokerId → its load report, as Pulsar's brokers publish it: `LocalBrokerData` of the modular
    load manager, or `BrokerLoadData` of the extensible one. A broker that is not named is gone.
    """
    now: int | float = 0
    """The time in ms since the epoch. 0: no report is late, and nothing ages."""
    config: dict[str, str | int | float | bool | None] = {}
    """Keys of broker.conf with their values, in force from this line on; `--set` goes before."""
    bundle_data: dict[str, BundleData] | None = None
    """Bundle → its averages, instead of those of the lines before."""
    top_bundles: dict[str, TopBundlesLoadData] = {}
    """brokerId → the busiest bundles that it published (extensible load manager)."""
    broker_time_averages: dict[str, TimeAverageBrokerData] = {}
    """brokerId → its averages, instead of the sums over its bundles."""
    recently_unloaded: dict[str, int | float] = {}
    """Bundle → when it was moved (ms): it stays for the grace period."""
    recently_unloaded_brokers: dict[str, int | float] = {}
    """brokerId → when bundles left it (ms): TransferShedder waits for its next figures."""
    owners: dict[str, str] = {}
    """Bundle → the brokerId of its owner, where the reports say otherwise."""
    namespaces: dict[str, NamespaceLine] = {}
    """Namespace → `boundaries` of its bundles (hexadecimal, with both ends of the ring), and
    `antiAffinityGroup`.
    """
    failure_domains: dict[str, list[str]] = {}
    """Failure domain → its brokerIds."""
    versions: dict[str, str] = {}
    """brokerId → its version (extensible load manager; modular reports have it)."""
    isolation_policies: msgspec.Raw = msgspec.Raw(b"{}")
    """Name → isolation policy, as `pulsar-admin ns-isolation-policy` has them."""
    topics: dict[str, dict[str, TopicLine]] = {}
    """Bundle → topic → `msgRate`, `msgThroughput` and `hash`, for splits by topic."""
    do: list[str] = msgspec.field(default_factory=lambda: ["shed"])
    """What to decide: `shed`, `split`, `place`."""
    pause_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """How long a client waits for a move (s), as it was measured; without it: not measured."""
    place: list[str] = []
    """Bundles without an owner. Needs `place` in `do`."""
    split: list[SplitLine] = []
    """Splits as an operator orders them: `bundle`, `algorithm`, `positions`. Needs `split` in `do`,
    which without this list decides which bundles are too big.
    """


ACTIONS = ("shed", "split", "place")
_LINE = msgspec.json.Decoder(Line)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])
LINE_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(Line))
_EXTENSIBLE_FIELDS = (
    b'"weightedMaxEMA"',
    b'"msgThroughputEMA"',
    b'"reportedAt"',
    b'"updatedAt"',
    b'"bundleCount"',
)
_BUNDLES = re.compile(rb'"bundles"\s*:\s*\[')
_MODULAR_FIELDS = (
    b'"lastStats"',
    b'"bundles"',
    b'"lastUpdate"',
    b'"numBundles"',
    b'"numTopics"',
    b'"loadReportType"',
)


@dataclass(frozen=True, slots=True)
class LineReports:
    """The brokers' reports, all of one manager, and why other reports cannot be used."""

    local: dict[str, LocalBrokerData]
    load: dict[str, BrokerLoadData]
    unusable: dict[str, Reason]


def decode_line(raw: bytes) -> Line:
    """One line. Raises `BadInputError` naming the field."""
    try:
        line = decode_tolerant(_LINE, raw)
    except msgspec.DecodeError as error:
        raise BadInputError(_with_key(raw, str(error))) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(str(error)) from None
    unknown = [action for action in line.do if action not in ACTIONS]
    if unknown:
        raise BadInputError(f"do: {unknown[0]!r} is not one of {', '.join(ACTIONS)}")
    _check_names(line)
    for action, given in (("place", line.place), ("split", line.split)):
        if given and action not in line.do:
            raise BadInputError(f"{action}: it counts only if `do` names {action!r}, too")
    return line


def unknown_keys(raw: bytes) -> list[str]:
    """The keys of a line, decoded before, that mean nothing."""
    return sorted(_KEYS.decode(raw).keys() - set(LINE_KEYS))


def _check_names(line: Line) -> None:
    """Raise `BadInputError` for invalid names of bundles, boundaries and algorithms."""
    for index, bundle in enumerate(line.place):
        _check_bundle(bundle, f"place[{index}]")
    for index, split in enumerate(line.split):
        _check_bundle(split.bundle, f"split[{index}].bundle")
        if split.algorithm is not None and split.algorithm not in ALGORITHMS:
            raise BadInputError(
                f"split[{index}].algorithm: {split.algorithm!r} is not one of "
                f"{', '.join(ALGORITHMS)}"
            )
    for bundle in line.owners:
        _check_bundle(bundle, "owners")
    for name, namespace in line.namespaces.items():
        if namespace.boundaries:
            try:
                parse_boundaries(namespace.boundaries)
            except BadInputError as error:
                raise BadInputError(f"namespaces[{name!r}].boundaries: {error}") from None
    for broker, top in line.top_bundles.items():
        for published in top.top_bundles_load_data:
            _check_bundle(published.bundle_name, f"topBundles[{broker!r}]")


def _check_bundle(bundle: str, where: str) -> None:
    try:
        BundleRange.parse(split_bundle_name(bundle)[1])
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from None


def _with_key(raw: bytes, message: str) -> str:
    """The decoder's message with the key or index in place of `[...]` (`$.config[...]`)."""
    field = next((name for name in LINE_KEYS if f"$.{name}[...]" in message), None)
    if field is None:
        return message
    try:
        values = msgspec.json.decode(raw)[field]
    except msgspec.DecodeError:
        return message
    if not isinstance(values, dict | list):
        return message
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        alone = {"brokers": {}, field: {key: value} if isinstance(values, dict) else [value]}
        try:
            decode_tolerant(_LINE, msgspec.json.encode(alone))
        except msgspec.DecodeError as error:
            return str(error).replace(f"$.{field}[...]", f"$.{field}[{key!r}]", 1)
    return message


def decode_reports(brokers: dict[str, msgspec.Raw]) -> LineReports:
    """Each broker's report. If reports of both managers occur, only those of the modular one count.

    A report whose fields fit both managers belongs to the manager of the other reports. Raises
    `BadInputError` naming broker and field.
    """
    extensible = {broker: _is_extensible(bytes(raw)) for broker, raw in brokers.items()}
    modular = False in extensible.values() or True not in extensible.values()
    reports = LineReports({}, {}, {})
    for broker, raw in brokers.items():
        try:
            if modular and extensible[broker]:
                reports.unusable[broker] = Reason(
                    "OtherLoadManager",
                    "its report is the extensible manager's, others are the modular one's",
                )
            elif modular:
                reports.local[broker] = _complete(decode_local_broker_data(bytes(raw)), bytes(raw))
            else:
                reports.load[broker] = decode_broker_load_data(bytes(raw))
        except BadInputError as error:
            raise BadInputError(f"brokers[{broker!r}]: {error}") from None
    return reports


def _is_extensible(data: bytes) -> bool | None:
    """True if a report is the extensible manager's; None if no field says so."""
    if any(field in data for field in _MODULAR_FIELDS):
        return False
    return True if any(field in data for field in _EXTENSIBLE_FIELDS) else None


def _complete(report: LocalBrokerData, data: bytes) -> LocalBrokerData:
    """The report with missing bundles and sums filled in from its bundles' statistics.

    Raises `BadInputError` for an invalid bundle name.
    """
    for bundle in (*report.bundles, *report.last_stats):
        _check_bundle(bundle, "bundles")
    if not _BUNDLES.search(data):
        report.bundles = sorted(report.last_stats)
    stats = report.last_stats.values()
    if report.throughput == 0:
        report.msg_throughput_in = math.fsum(bundle.msg_throughput_in for bundle in stats)
        report.msg_throughput_out = math.fsum(bundle.msg_throughput_out for bundle in stats)
    if report.rate == 0:
        report.msg_rate_in = math.fsum(bundle.msg_rate_in for bundle in stats)
        report.msg_rate_out = math.fsum(bundle.msg_rate_out for bundle in stats)
    return report
