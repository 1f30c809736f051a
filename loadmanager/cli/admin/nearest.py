"""What a name that does not exist may have meant, and who asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from loadmanager.cli.admin.asking import V2, namespace_path
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.shapes import Names
from loadmanager.cli.admin.times import clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import HOUR_MS

NAMED_MAX = 3
NAMES_MAX = 20_000
"""Names that one is compared with."""
REFUSALS_MAX = 200
MISSING = re.compile(
    r"(?P<kind>Tenant|Namespace) (?P<name>\S+) does not exist|Topic (?P<topic>\S+) not found"
)
"""How brokers say that there is no such name."""


def hints_of(admin: AdminClient, text: str) -> str:
    """What to add to an answer that says that a name does not exist; empty: nothing is near."""
    match = MISSING.search(text)
    if match is None:
        return ""
    name = match["name"] or match["topic"]
    near = near_tenants(admin, name) if match["kind"] == "Tenant" else near_names(admin, name)
    asked = [] if match["kind"] == "Tenant" else asked_for(admin, name)
    hints = " ".join((*did_you_mean(near), *asked))
    return f"; {hints}" if hints else ""


def did_you_mean(names: list[str]) -> list[str]:
    """A question, if there are any."""
    if not names:
        return []
    *others, last = names
    return [f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"]


def near_names(admin: AdminClient, name: str) -> list[str]:
    """The nearest topics or namespaces that exist; none if nobody answers."""
    try:
        if "://" in name:
            return _near_topics(admin, TopicName.parse(name))
        return _near_namespaces(admin, name) if name.count("/") == 1 else []
    except LoadManagerError:
        return []


def near_tenants(admin: AdminClient, name: str) -> list[str]:
    """The nearest tenants that exist; none if nobody answers."""
    try:
        return closest(name, admin.get(f"{V2}/tenants", Names))
    except LoadManagerError:
        return []


def _near_topics(admin: AdminClient, topic: TopicName) -> list[str]:
    """Of its namespace."""
    names = admin.get(f"{namespace_path(str(topic.namespace))}/topics?mode=ALL", Names)
    by_local = {name.rpartition("/")[2]: name for name in names if name != str(topic)}
    return [by_local[local] for local in closest(topic.local, by_local)]


def _near_namespaces(admin: AdminClient, name: str) -> list[str]:
    """Of tenants whose names are near."""
    tenants = closest(name.partition("/")[0], admin.get(f"{V2}/tenants", Names))
    names = [each for it in tenants for each in admin.get(f"{V2}/namespaces/{it}", Names)]
    return closest(name, names)


def closest(name: str, names: Iterable[str]) -> list[str]:
    """The names that are nearest to one, the nearest first."""
    return get_close_matches(name, [*islice(names, NAMES_MAX)], NAMED_MAX)


def asked_for(admin: AdminClient, name: str) -> list[str]:
    """Who asked for a topic, or for one of a namespace, without success in the last hour."""
    from loadmanager.cli.admin.archives import events_of, now_ms  # these take time
    from loadmanager.engine.history.clients import REFUSED, ClientStep

    about = name if "://" in name else None
    try:
        since_ms = now_ms() - HOUR_MS
        answer = events_of(admin, (REFUSED,), about, since_ms=since_ms, limit=REFUSALS_MAX)
    except LoadManagerError:  # without archives, or of a daemon
        return []
    steps = [it.record_as(ClientStep) for it in answer.events if it.kind == REFUSED]
    steps = [it for it in steps if it.topic and (it.topic == name or f"://{name}/" in it.topic)]
    who = dict.fromkeys(it.address for it in steps)
    if not steps:
        return []
    some = ", ".join(islice(who, NAMED_MAX))
    more = f" and {len(who) - NAMED_MAX} more addresses" if len(who) > NAMED_MAX else ""
    times, last = sum(it.times for it in steps), max(it.ts for it in steps)
    often = "once" if times == 1 else f"{times} times"
    asked = f"{some}{more} asked for it {often} in the last hour, last at {clock(last)}"
    says = f"`loadmanager admin find --refused {name.rpartition('://')[2]}` tells more"
    return [f"{asked}, without success: {says}"]
