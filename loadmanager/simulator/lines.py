"""`decide`'s lines: what one cycle's snapshot looks like as JSON, and what was decided."""

from __future__ import annotations

from typing import Any

import msgspec

from loadmanager.core.errors import BadInputError
from loadmanager.core.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    TimeAverageBrokerData,
    TopBundlesLoadData,
    decode_broker_load_data,
    decode_local_broker_data,
)
from loadmanager.core.strategies.decision import Placement, Plan, Skip, Split, Unload


class NamespaceLine(msgspec.Struct, rename="camel"):
    """What is known of a namespace."""

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
    now: int | float = 0
    config: dict[str, str | int | float | bool | None] = {}
    bundle_data: dict[str, BundleData] | None = None
    top_bundles: dict[str, TopBundlesLoadData] = {}
    broker_time_averages: dict[str, TimeAverageBrokerData] = {}
    recently_unloaded: dict[str, int | float] = {}
    recently_unloaded_brokers: dict[str, int | float] = {}
    owners: dict[str, str] = {}
    namespaces: dict[str, NamespaceLine] = {}
    failure_domains: dict[str, list[str]] = {}
    isolation_policies: msgspec.Raw = msgspec.Raw(b"{}")
    topics: dict[str, dict[str, TopicLine]] = {}
    do: list[str] = msgspec.field(default_factory=lambda: ["shed"])
    place: list[str] = []
    split: list[SplitLine] = []


ACTIONS = ("shed", "split", "place")
_LINE = msgspec.json.Decoder(Line)
_EXTENSIBLE_FIELDS = (b'"weightedMaxEMA"', b'"msgThroughputEMA"', b'"reportedAt"', b'"updatedAt"', b'"bundleCount"')


def decode_line(raw: bytes) -> Line:
    """One line. Raises `BadInputError` naming the field."""
    try:
        line = _LINE.decode(raw)
    except msgspec.DecodeError as error:
        raise BadInputError(str(error)) from None
    unknown = [action for action in line.do if action not in ACTIONS]
    if unknown:
        raise BadInputError(f"do: {unknown[0]!r} is not one of {', '.join(ACTIONS)}")
    return line


def decode_reports(brokers: dict[str, msgspec.Raw]) -> tuple[dict[str, LocalBrokerData], dict[str, BrokerLoadData]]:
    """The reports of both managers, each broker's by what its fields say. Raises `BadInputError` naming broker and field."""
    local: dict[str, LocalBrokerData] = {}
    load: dict[str, BrokerLoadData] = {}
    for broker, raw in brokers.items():
        data = bytes(raw)
        extensible = b'"lastStats"' not in data and b'"bundles"' not in data and any(field in data for field in _EXTENSIBLE_FIELDS)
        try:
            if extensible:
                load[broker] = decode_broker_load_data(data)
            else:
                local[broker] = decode_local_broker_data(data)
        except BadInputError as error:
            raise BadInputError(f"brokers[{broker!r}]: {error}") from None
    return local, load


def encode_output(now: float, plan: Plan) -> bytes:
    """The decision's line, without the line end."""
    return msgspec.json.encode(
        {
            "now": now,
            "strategy": plan.strategy,
            "unloads": [_unload(item) for item in plan.unloads],
            "placements": [_placement(item) for item in plan.placements],
            "splits": [_split(item) for item in plan.splits],
            "skipped": [_skip(item) for item in plan.skipped],
        }
    )


def _unload(item: Unload) -> dict[str, Any]:
    return {"bundle": item.bundle, "source": item.source, "destination": item.destination, "reason": item.reason, "why": dict(item.why)}


def _placement(item: Placement) -> dict[str, Any]:
    return {
        "bundle": item.bundle,
        "broker": item.broker,
        "candidates": list(item.candidates),
        "rejected": dict(sorted(item.rejected.items())),
    }


def _split(item: Split) -> dict[str, Any]:
    return {"bundle": item.bundle, "boundaries": [f"0x{cut:08x}" for cut in item.boundaries], "reason": item.reason}


def _skip(item: Skip) -> dict[str, Any]:
    return {"what": item.what, "reason": item.reason}
