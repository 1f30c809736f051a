"""`loadmanager admin limits …` and `loadmanager admin isolation …`: what is asked, and how the
answer is shown.
"""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from loadmanager.cli.admin_commands import V2, Shown, cluster_of, namespace_path, topic_path
from loadmanager.cli.asking import Asking
from loadmanager.cli.tables import table
from loadmanager.core.errors import BadInputError

FIELDS = {
    "publishRate": ("publishThrottlingRateInMsg", "publishThrottlingRateInByte", None),
    "dispatchRate": (
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRateInByte",
        "ratePeriodInSecond",
    ),
    "subscriptionDispatchRate": (
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRateInByte",
        "ratePeriodInSecond",
    ),
    "subscribeRate": ("subscribeThrottlingRatePerConsumer", None, "ratePeriodInSecond"),
}
"""Which limit → its fields for messages (requests), bytes and period."""


def _of(text: str) -> str:
    """The path of a namespace or a topic."""
    return (
        f"{V2}/{topic_path(text)}"
        if "://" in text or text.count("/") == 2
        else namespace_path(text)
    )


def limits_list(ask: Asking, args: argparse.Namespace) -> Shown:
    """Every limit in use on every broker: configured, delivered, who waits."""
    brokers = [args.broker] if args.broker else ask.get(f"{V2}/brokers")
    data = [
        {"broker": broker, **limit}
        for broker in brokers
        for limit in ask.at(broker).get(f"{V2}/broker-stats/throttling")["limits"]
    ]
    headers = ("broker", "limit", "msg/s", "delivered", "bytes/s", "delivered", "error", "waiting")
    names = (
        "configuredMessagesPerS",
        "deliveredMessagesPerS",
        "configuredBytesPerS",
        "deliveredBytesPerS",
        "error",
        "queueLength",
    )
    rows = [
        [
            item["broker"],
            item["name"],
            *(None if item[name] in (None, -1) else item[name] for name in names),
        ]
        for item in data
    ]
    return Shown(data, table(headers, rows) if rows else "no limits are in use")


def limits_why(ask: Asking, args: argparse.Namespace) -> Shown:
    """Why a topic's producers are slow, the worst first."""
    found = ask.get(f"{V2}/{topic_path(args.topic)}/throttling")
    lines = [
        f"{item['producer']}: {item['why']} (held {item['heldSeconds']:.1f} s so far)"
        for item in found["producers"]
    ]
    lines += [
        f"subscription {name}: {'held' if item['held'] else 'not held'} "
        f"{item['throttledTimes'] or ''}"
        for name, item in found["subscriptions"].items()
    ]
    return Shown(found, "\n".join(lines) or "nobody produces or consumes")


def limits_show(ask: Asking, args: argparse.Namespace) -> Shown:
    """The limits that are set on a namespace or a topic itself."""
    found = {name: ask.get(f"{_of(args.of)}/{name}") for name in FIELDS}
    data = {name: rate for name, rate in found.items() if rate}
    rows = [
        [name, *(f"{field}={value}" for field, value in rate.items())]
        for name, rate in data.items()
    ]
    return Shown(
        data,
        "\n".join("  ".join(map(str, row)) for row in rows)
        or f"{args.of} has no limits of its own",
    )


def limits_set(ask: Asking, args: argparse.Namespace) -> Shown:
    """Set a limit of a namespace's topics or of one topic; acts at once."""
    messages, size, period = FIELDS[args.limit]
    body: dict[str, Any] = {}
    for value, field, option in (
        (args.messages, messages, "--messages"),
        (args.bytes, size, "--bytes"),
        (args.period, period, "--period"),
    ):
        if value is not None:
            if field is None:
                raise BadInputError(f"{args.limit} has no {option}")
            body[field] = value
    if not body:
        raise BadInputError("what is the limit? --messages N, --bytes N")
    ask.ask("POST", f"{_of(args.of)}/{args.limit}", body)
    return Shown({"of": args.of, args.limit: body}, f"{args.limit} of {args.of} set")


def limits_remove(ask: Asking, args: argparse.Namespace) -> Shown:
    """Remove a limit of a namespace or a topic; acts at once."""
    ask.ask("DELETE", f"{_of(args.of)}/{args.limit}")
    return Shown({"of": args.of, "removed": args.limit}, f"{args.limit} of {args.of} removed")


def _isolation(ask: Asking) -> str:
    return f"{V2}/clusters/{quote(cluster_of(ask), safe='')}/namespaceIsolationPolicies"


def isolation_list(ask: Asking, _args: argparse.Namespace) -> Shown:
    """Namespace isolation policies, and what each live broker is in them."""
    path = _isolation(ask)
    policies = ask.get(path)
    brokers = {
        name: [
            entry["brokerName"]
            for entry in ask.get(f"{path}/brokers")
            if entry["policyName"] == name
        ]
        for name in policies
    }
    rows = [
        [
            name,
            " ".join(item["namespaces"]),
            " ".join(item["primary"]),
            " ".join(item.get("secondary") or []),
            " ".join(brokers[name]),
        ]
        for name, item in sorted(policies.items())
    ]
    headers = ("policy", "namespaces", "primary", "secondary", "live brokers")
    return Shown(
        {"policies": policies, "brokers": brokers},
        table(headers, rows) if rows else "no isolation policies",
    )


def isolation_set(ask: Asking, args: argparse.Namespace) -> Shown:
    """Set an isolation policy; expressions match in full.

    Namespaces that it concerns are unloaded, as --unload says.
    """
    parameters = {"min_limit": str(args.min_primaries), "usage_threshold": "100"}
    body = {
        "namespaces": args.namespaces,
        "primary": args.primary,
        "secondary": args.secondary,
        "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        "unload_scope": args.unload,
    }
    ask.ask("POST", f"{_isolation(ask)}/{quote(args.policy, safe='')}", body)
    return Shown({"policy": args.policy, **body}, f"isolation policy {args.policy} set")


def isolation_delete(ask: Asking, args: argparse.Namespace) -> Shown:
    """Delete an isolation policy."""
    ask.ask("DELETE", f"{_isolation(ask)}/{quote(args.policy, safe='')}")
    return Shown({"deleted": args.policy}, f"isolation policy {args.policy} deleted")
