"""`loadmanager admin limits …` and `loadmanager admin isolation …`; see `admin_commands`."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from loadmanager.cli.admin_client import AdminClient
from loadmanager.cli.admin_commands import (
    V2,
    Output,
    ask_each,
    cluster_of,
    namespace_path,
    topic_path,
)
from loadmanager.cli.tables import table
from loadmanager.core.errors import BadInputError, OperationalError

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
"""Limit → its fields for messages (or requests), bytes and period."""


def _path(text: str) -> str:
    """The path of a namespace or a topic in the admin API."""
    return (
        f"{V2}/{topic_path(text)}"
        if "://" in text or text.count("/") == 2
        else namespace_path(text)
    )


def limits_list(admin: AdminClient, args: argparse.Namespace) -> Output:
    """List the limits in use on all brokers: configured rate, delivered rate, who waits."""
    brokers = [args.broker] if args.broker else admin.get(f"{V2}/brokers")
    told, missing = ask_each(
        admin, brokers, lambda at, _broker: at.get(f"{V2}/broker-stats/throttling")["limits"]
    )
    data = [{"broker": broker, **limit} for broker, limits in told.items() for limit in limits]
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
            limit["broker"],
            limit["name"],
            *(None if limit[name] in (None, -1) else limit[name] for name in names),
        ]
        for limit in data
    ]
    return Output(data, table(headers, rows) if rows else "no limits are in use", missing=missing)


def limits_why(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Say why a topic's producers are slow, the slowest first."""
    report = admin.get(f"{V2}/{topic_path(args.topic)}/throttling")
    lines = [
        f"{producer['producer']}: {producer['why']} (held {producer['heldSeconds']:.1f} s so far)"
        for producer in report["producers"]
    ]
    lines += [
        f"subscription {name}: {_held(state)}" for name, state in report["subscriptions"].items()
    ]
    return Output(report, "\n".join(lines) or "the topic has neither producers nor consumers")


def _held(state: dict[str, Any]) -> str:
    times = ", ".join(
        f"{times} times by the limit of {limit}" for limit, times in state["throttledTimes"].items()
    )
    now = "held now" if state["held"] else "not held now"
    return f"{now}; was held so far {times}" if times else now


def limits_show(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the limits of a namespace or a topic itself, without those that it inherits."""
    rates = {name: admin.get(f"{_path(args.of)}/{name}") for name in FIELDS}
    data = {name: rate for name, rate in rates.items() if rate}
    lines = [
        "  ".join([name, *(f"{field}={value}" for field, value in rate.items())])
        for name, rate in data.items()
    ]
    return Output(data, "\n".join(lines) or f"{args.of} has no limits of its own")


def limits_set(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Set a limit of a topic, or of each topic of a namespace; acts at once."""
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
        raise BadInputError("give a rate: --messages N or --bytes N")
    admin.send("POST", f"{_path(args.of)}/{args.limit}", body)
    return Output({"of": args.of, args.limit: body}, f"{args.limit} of {args.of} set")


def limits_remove(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Remove a limit of a namespace or a topic; acts at once."""
    path = f"{_path(args.of)}/{args.limit}"
    if admin.get(path) is None:
        raise OperationalError(f"{args.of} has no {args.limit} of its own: nothing was removed")
    admin.send("DELETE", path)
    return Output({"of": args.of, "removed": args.limit}, f"{args.limit} of {args.of} removed")


def _isolation(admin: AdminClient) -> str:
    return f"{V2}/clusters/{quote(cluster_of(admin), safe='')}/namespaceIsolationPolicies"


def isolation_list(admin: AdminClient, _args: argparse.Namespace) -> Output:
    """List the namespace isolation policies, and the live brokers that each names."""
    path = _isolation(admin)
    policies = admin.get(path)
    brokers = {
        name: [
            entry["brokerName"]
            for entry in admin.get(f"{path}/brokers")
            if entry["policyName"] == name
        ]
        for name in policies
    }
    rows = [
        [
            name,
            " ".join(policy["namespaces"]),
            " ".join(policy["primary"]),
            " ".join(policy.get("secondary") or []),
            " ".join(brokers[name]),
        ]
        for name, policy in sorted(policies.items())
    ]
    headers = ("policy", "namespaces", "primary", "secondary", "live brokers")
    return Output(
        {"policies": policies, "brokers": brokers},
        table(headers, rows) if rows else "no isolation policies",
    )


def isolation_set(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Create or replace an isolation policy; regular expressions must match whole names.

    Unloads the namespaces that --unload selects.
    """
    parameters = {"min_limit": str(args.min_primaries), "usage_threshold": "100"}
    body = {
        "namespaces": args.namespaces,
        "primary": args.primary,
        "secondary": args.secondary,
        "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        "unload_scope": args.unload,
    }
    admin.send("POST", f"{_isolation(admin)}/{quote(args.policy, safe='')}", body)
    return Output({"policy": args.policy, **body}, f"isolation policy {args.policy} set")


def isolation_delete(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Delete an isolation policy."""
    path = _isolation(admin)
    if args.policy not in admin.get(path):
        raise OperationalError(f"isolation policy {args.policy} does not exist")
    admin.send("DELETE", f"{path}/{quote(args.policy, safe='')}")
    return Output({"deleted": args.policy}, f"isolation policy {args.policy} deleted")
