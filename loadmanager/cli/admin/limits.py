"""`loadmanager admin limits …` and `loadmanager admin isolation …`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import LimitEndShown
from loadmanager.cli.admin.asking import (
    OWN,
    V2,
    ask_each,
    brokers_of,
    cluster_of,
)
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, unchanged
from loadmanager.cli.admin.held_clients import others_that_wait
from loadmanager.cli.admin.held_sums import clients_held
from loadmanager.cli.admin.limits_why import limits_why
from loadmanager.cli.admin.past_documents import document_then
from loadmanager.cli.admin.past_limits import limits_at, limits_set_then, waits_between
from loadmanager.cli.admin.shapes import (
    Document,
    IsolatedBroker,
    IsolationPolicyShown,
    Throttling,
)
from loadmanager.cli.admin.times import Duration, at_option, clock, since_option, until_option
from loadmanager.cli.admin.where_set import FIELDS, limits_path, namespace_with, rate_text
from loadmanager.cli.options import Decorator
from loadmanager.cli.terminal import table
from loadmanager.kit.errors import BadInputError, LoadManagerError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import TopicName
from loadmanager.limits.report import ThrottledShown

NOT_IN_USE = (
    "no limits are in use: no topic is open that has one; `limits show TENANT/NAMESPACE` has what "
    "is set"
)
LIST_EXAMPLES = """examples:
  loadmanager admin limits list --since 1h
  loadmanager admin limits list --since 1h --clients
  loadmanager admin limits list 127.0.0.1:8080 --since 14:00 --until 15:00 --json
"""
ENDS = f"{OWN}/limit-ends"
ENDS_UNKNOWN = "which limits end by themselves is not known: it cannot be read here"
limits = AdminGroup("limits", help="Rate limits: list, why, show, set, remove.")
isolation = AdminGroup(
    "isolation", help="List, set, delete rules for which brokers serve which namespaces."
)
_target = click.argument("target", metavar="TENANT/NAMESPACE|TOPIC")
limits.command("why")(limits_why)
_limit = click.argument("limit", type=click.Choice(tuple(FIELDS)), metavar="LIMIT")


def _is_of(end: LimitEndShown, target: str) -> bool:
    """Whether a limit that ends is one of a namespace or a topic."""
    if target.count("/") == 1:
        return end.of == target
    return end.of == str(TopicName.parse(target).partitioned_topic)


@limits.command("list", epilog=LIST_EXAMPLES)
@click.argument("broker", required=False)
@click.option(
    "--clients",
    is_flag=True,
    help="whom they had wait, by connection and producer, in the last hour or since --since",
)
@at_option
@since_option
@until_option
def limits_list(
    admin: AdminClient,
    broker: str | None,
    *,
    clients: bool,
    at: int | None,
    since: int | None,
    until: int | None,
) -> Output:
    """List the limits in use on all brokers: configured rate, delivered rate, who waits; or what
    brokers recorded of them at a time. One that is set is in use while a topic that it limits is
    open: `limits show` has what is set.

    With --since (and --until), for how long each had somebody wait in that time: the sum of what
    was recorded each minute. With --clients, who waited: the connections that limits held, and
    their producers, each with its own sum.
    """
    if until is not None and since is None:
        raise click.UsageError("--until needs --since")
    if at is not None and (since is not None or clients):
        raise click.UsageError("--at is a moment, --since the begin of a time: give one of them")
    if clients:
        return clients_held(admin, broker, since, until)
    if since is not None:
        return waits_between(admin, broker, since, until)
    if at is not None:
        return limits_at(admin, broker, at)
    brokers = [broker] if broker else brokers_of(admin)
    limits_of, missing = ask_each(admin, brokers, _limits_of)
    data = [{"broker": broker, **limit} for broker, limits in limits_of.items() for limit in limits]
    headers = (
        "broker",
        "limit",
        "msg/s",
        "delivered",
        "bytes/s",
        "delivered",
        "off by %",
        "waiting",
    )
    names = (
        "configuredMessagesPerS",
        "deliveredMessagesPerS",
        "configuredBytesPerS",
        "deliveredBytesPerS",
    )
    rows = [
        [
            limit["broker"],
            limit["name"],
            *(None if limit[name] in (None, -1) else limit[name] for name in names),
            None if limit["error"] is None else round(100 * limit["error"], 1) + 0.0,
            limit["queueLength"],
        ]
        for limit in data
    ]
    shown = table(headers, rows) if rows else NOT_IN_USE
    others = list[str]()
    with contextlib.suppress(LoadManagerError):  # without a leader, or of an earlier version
        others += others_that_wait(admin.get(f"{OWN}/throttled", ThrottledShown))
    ending = _ends(admin)
    ends = [f"{end.limit} of {end.of} {_end_text(end)}" for end in ending or ()]
    ends += [ENDS_UNKNOWN] if ending is None else []
    return Output(data, (shown, others, ends), missing=missing)


def _limits_of(at: AdminClient, _broker: str) -> Any:
    return at.ask("GET", f"{V2}/broker-stats/throttling", None, Throttling)[1]["limits"]


def _ends(admin: AdminClient) -> list[LimitEndShown] | None:
    """The limits that end by themselves; None: the broker's version knows no ends, the role may
    not see them, or they cannot be read now.
    """
    try:
        return admin.get(ENDS, list[LimitEndShown])
    except AnsweredError as error:
        if error.status in (403, 404, 503):
            return None
        raise


def _end_text(end: LimitEndShown) -> str:
    then = "not set" if end.then is None else rate_text(end.then)
    return f"ends at {clock(end.until)}, then: {then}"


@limits.command("show")
@_target
@at_option
def limits_show(admin: AdminClient, target: str, at: int | None) -> Output:
    """Show the limits of a namespace or a topic itself, without those that it inherits; with --at,
    as they were stored then.
    """
    if at is not None:
        return limits_set_then(admin, target, at)
    rates = {name: admin.get_any(f"{limits_path(target)}/{name}", Document) for name in FIELDS}
    data = {name: rate for name, rate in rates.items() if rate}
    ends = {end.limit: end for end in _ends(admin) or () if _is_of(end, target)}
    lines = [
        f"{name}  {rate_text(rate)}" + (f"  {_end_text(ends[name])}" if name in ends else "")
        for name, rate in data.items()
    ]
    return Output(data, lines or f"{target} has no limits of its own")


@limits.command("set")
@_target
@_limit
@click.option(
    "--messages",
    type=int,
    metavar="N",
    help="messages (subscribeRate: SUBSCRIBE requests) per period; -1: unlimited",
)
@click.option("--bytes", "size", type=int, metavar="N", help="bytes per period; -1: unlimited")
@click.option(
    "--period",
    type=int,
    metavar="S",
    help="period in seconds (default 1, subscribeRate 30; publishRate has no other)",
)
@click.option(
    "--for",
    "for_s",
    type=Duration(),
    help="for so long (90s, 30m, 2h); then the limit is as it was, unless it was changed since",
)
def limits_set(
    admin: AdminClient,
    target: str,
    limit: str,
    *,
    messages: int | None,
    size: int | None,
    period: int | None,
    for_s: float | None,
) -> Output:
    """Set a limit of a topic, or of each topic of a namespace; acts at once. Set without --for, it
    stays, also one that was to end.

    LIMIT is publishRate, dispatchRate, subscriptionDispatchRate or subscribeRate.
    """
    options = (("--messages", messages), ("--bytes", size), ("--period", period))
    body: dict[str, Any] = {}
    for (option, value), field in zip(options, FIELDS[limit], strict=True):
        if value is not None:
            if field is None:
                raise BadInputError(f"{limit} has no {option}")
            body[field] = value
    if not body:
        raise BadInputError("give a rate: --messages N or --bytes N")
    path = f"{limits_path(target)}/{limit}"
    before, ends = admin.get_any(path, Document), _ends(admin)
    earlier = next((end for end in ends or () if _is_of(end, target) and end.limit == limit), None)
    if for_s is not None:
        done_so = _set_for(admin, target, limit, body, for_s, can_end=ends is not None)
        if earlier is None or before is None:
            return done_so
        replaced = f"{rate_text(before)} until {clock(earlier.until)}"
        return replace(done_so, shown=f"{done_so.shown}; it replaces {replaced}, for good")
    same = before is not None and all(before.get(name) == value for name, value in body.items())
    if same and earlier is None:
        return unchanged(f"{limit} of {target} is so already", of=target)
    admin.send("POST", path, body)
    stays = (
        ""
        if earlier is None
        else f"; it stays: the one before was to end at {clock(earlier.until)}"
    )
    return Output({"of": target, limit: body}, f"{limit} of {target} set{stays}")


def _set_for(
    admin: AdminClient, target: str, limit: str, body: Document, for_s: float, *, can_end: bool
) -> Output:
    """Set a limit that ends by itself. Raises `OperationalError` if the broker cannot do that."""
    if not can_end:
        raise OperationalError(
            "nothing was set: the broker's version ends no limits by itself, it cannot be read now "
            "which do, or your role may not see that (a superuser may)"
        )
    admin.send("POST", f"{limits_path(target)}/{limit}?forSeconds={max(1, round(for_s))}", body)
    ends = [end for end in _ends(admin) or () if _is_of(end, target) and end.limit == limit]
    if not ends:
        raise OperationalError(f"{limit} of {target} was set, and changed again at once")
    return Output(
        {"of": target, limit: body, "until": ends[0].until, "then": ends[0].then},
        f"{limit} of {target} set; it {_end_text(ends[0])}",
    )


@limits.command("remove")
@_target
@_limit
def limits_remove(admin: AdminClient, target: str, limit: str) -> Output:
    """Remove a limit of a namespace or a topic; acts at once.

    LIMIT is publishRate, dispatchRate, subscriptionDispatchRate or subscribeRate.
    """
    path = f"{limits_path(target)}/{limit}"
    if admin.get_any(path, Document) is None:
        text = f"{target} has no {limit} of its own: nothing was removed"
        if of := namespace_with(admin, target, limit):
            text += f"; it has that of {of}: `limits remove {of} {limit}`"
        raise OperationalError(text)
    admin.send("DELETE", path)
    return Output({"of": target, "removed": limit}, f"{limit} of {target} removed")


def _isolation(admin: AdminClient) -> str:
    return f"{V2}/clusters/{quote(cluster_of(admin), safe='')}/namespaceIsolationPolicies"


@isolation.command("list")
@at_option
def isolation_list(admin: AdminClient, at: int | None) -> Output:
    """List the namespace isolation policies, and the live brokers that each names; with --at, the
    policies of then.
    """
    path = _isolation(admin)
    policies, raw = admin.ask("GET", path, None, dict[str, IsolationPolicyShown])
    if at is not None:
        stored = f"{paths.CLUSTERS}/{cluster_of(admin)}/namespaceIsolationPolicies"
        return document_then(admin, stored, raw or None, at)
    named = admin.get(f"{path}/brokers", list[IsolatedBroker]) if policies else []
    brokers = {
        name: [entry["brokerName"] for entry in named if entry["policyName"] == name]
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
        {"policies": raw, "brokers": brokers},
        table(headers, rows) if rows else "no isolation policy",
    )


def _regexes(name: str, text: str, *, required: bool = False) -> Decorator:
    return click.option(
        name, multiple=True, required=required, metavar="REGEX", help=f"{text}; may be repeated"
    )


@isolation.command("set")
@click.argument("policy")
@_regexes("--namespaces", "namespaces of the policy, such as 'acme/.*'", required=True)
@_regexes("--primary", "brokers that serve the namespaces, by host or host:port", required=True)
@_regexes("--secondary", "brokers that serve them, too, while too few primaries are live")
@click.option(
    "--min-primaries", default=1, metavar="N", help="fewer live primaries than N are too few"
)
@click.option(
    "--unload",
    type=click.Choice(("all_matching", "changed", "none")),
    default="changed",
    help="which namespaces to unload now",
)
def isolation_set(
    admin: AdminClient, policy: str, min_primaries: int, unload: str, **regexes: tuple[str, ...]
) -> Output:
    """Create or replace an isolation policy; regular expressions must match whole names.

    Unloads the namespaces that --unload selects.
    """
    parameters = {"min_limit": str(min_primaries), "usage_threshold": "100"}
    body = {
        **{name: list(texts) for name, texts in regexes.items()},
        "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        "unload_scope": unload,
    }
    path = _isolation(admin)
    before = admin.ask("GET", path, None, dict[str, IsolationPolicyShown])[1].get(policy)
    if before == body and unload != "all_matching":
        return unchanged(f"isolation policy {policy} is so already", policy=policy, **body)
    admin.send("POST", f"{path}/{quote(policy, safe='')}", body)
    primaries = [
        entry["brokerName"]
        for entry in admin.get(f"{path}/brokers", list[IsolatedBroker])
        if entry["policyName"] == policy and entry["primary"]
    ]
    text = f"isolation policy {policy} set; live primaries: {', '.join(primaries)}"
    if not primaries:
        text = f"isolation policy {policy} set, but --primary matches no live broker"
    return Output({"policy": policy, **body, "livePrimaries": primaries}, text)


@isolation.command("delete")
@click.argument("policy")
def isolation_delete(admin: AdminClient, policy: str) -> Output:
    """Delete an isolation policy."""
    path = _isolation(admin)
    if policy not in admin.get(path, Document):
        raise OperationalError(f"isolation policy {policy} does not exist")
    admin.send("DELETE", f"{path}/{quote(policy, safe='')}")
    return Output({"deleted": policy}, f"isolation policy {policy} deleted")
