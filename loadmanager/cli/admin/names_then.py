"""Whether a name is known at all, now or to the archives, of which nothing is recorded at a moment:
else it is a typo, and the nearest names may be what was meant.
"""

from __future__ import annotations

from contextlib import suppress

from loadmanager.cli.admin.archives import events_of, loads_at, now_ms
from loadmanager.cli.admin.asking import V2, brokers_of, bundles_of, namespace_path, namespaces_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.nearest import closest, did_you_mean
from loadmanager.cli.admin.shapes import Names
from loadmanager.cli.admin.times import clock
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, OwnershipStep, TopicLoad
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.names import TopicName

RECORDS_MAX = 1_000
"""The last records of members, owners or clients that are looked through for names."""
CLIENTS = tuple(f"{ClientStep.kind}.{event}" for event in ("attached", "left"))
LOADS = {"topic": TopicLoad.kind, "broker": BrokerLoad.kind}
"""Kind of name → the loads that name it; all others are named by those of bundles."""


def nothing_then(admin: AdminClient, name: str, at_ms: int) -> str:
    """That nothing is recorded of a known name at a moment. Raises `OperationalError`, with the
    nearest names, for one that nobody knows.
    """
    if text := unknown_then(admin, name, at_ms):
        raise OperationalError(text)
    return f"{name} is known, but nothing is recorded of it at {clock(at_ms)}"


def unknown_then(admin: AdminClient, name: str, at_ms: int) -> str:
    """That no such name exists now, or is recorded, and the nearest ones; empty: it is known."""
    events = events_of(admin, (), name, limit=1)
    near = near_then(admin, name, at_ms)
    if events.events or name in near:
        return ""
    silent = f" ({', '.join(sorted(events.missing))} did not answer)" if events.missing else ""
    text = f"no {kind_of(name)} {name} is known, now or by what is recorded{silent}"
    return "; ".join((text, *did_you_mean(near)))


def near_then(admin: AdminClient, name: str, at_ms: int) -> list[str]:
    """The nearest names of its kind, of those that exist, or are recorded lately or about a moment;
    the name itself first if it is among them.
    """
    kind = kind_of(name)
    names = {*_present(admin, kind, name), *_recorded(admin, kind, at_ms)}
    head = name[: name.rfind("/") + 1]
    beside = [it for it in names if it.startswith(head)]
    if not beside:  # it is in nothing that is known
        return closest(name, sorted(names))
    return [
        head + it for it in closest(name[len(head) :], sorted(it[len(head) :] for it in beside))
    ]


def kind_of(name: str) -> str:
    """What a name is one of, by its form."""
    if "://" in name:
        return "topic"
    if "_0x" in name:
        return "bundle"
    return "namespace" if "/" in name else "broker" if ":" in name else "tenant"


def _present(admin: AdminClient, kind: str, name: str) -> list[str]:
    """Those of a kind that exist now, topics and bundles of the same namespace only; none if there
    is no such namespace, or a daemon is asked.
    """
    with suppress(AnsweredError, BadInputError):
        if kind == "topic":
            of = str(TopicName.parse(name).namespace)
            return admin.get(f"{namespace_path(of)}/topics?mode=ALL", Names)
        if kind == "bundle":
            return bundles_of(admin, split_bundle_name(name)[0])
        if kind == "broker":
            return brokers_of(admin)
        return namespaces_of(admin) if kind == "namespace" else admin.get(f"{V2}/tenants", Names)
    return []


def _recorded(admin: AdminClient, kind: str, at_ms: int) -> set[str]:
    """Those of a kind in the loads of a moment and of now, and in the last records."""
    moments = (
        loads_at(admin, each, LOADS.get(kind, BundleLoad.kind)) for each in (at_ms, now_ms())
    )
    names = {name for past in moments for loads in past.loads for name in loads.figures}
    if kind == "broker":
        members = events_of(admin, (MemberChange.kind,), limit=RECORDS_MAX).events
        return names | {it.record_as(MemberChange).of for it in members}
    if kind == "topic":
        clients = events_of(admin, CLIENTS, limit=RECORDS_MAX).events
        return names | {it.record_as(ClientStep).topic or "" for it in clients} - {""}
    steps = events_of(admin, (OwnershipStep.kind,), limit=RECORDS_MAX).events
    names |= {it.record_as(OwnershipStep).bundle for it in steps}
    if kind != "bundle":
        names = {it.rpartition("/")[0] for it in names}
    return {it.partition("/")[0] for it in names} if kind == "tenant" else names
