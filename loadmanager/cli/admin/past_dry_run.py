"""A shedding cycle over the loads that brokers had recorded at a moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import msgspec

from loadmanager.broker import settings
from loadmanager.broker.admin.documents import FailureDomain
from loadmanager.broker.settings.live import check_of_strategies
from loadmanager.cli.admin.archives import events_of, incomplete
from loadmanager.cli.admin.asking import V2, cluster_of, count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import Doubts
from loadmanager.cli.admin.lately import LoadsThen
from loadmanager.cli.admin.moves import moves_between, pins_at
from loadmanager.cli.admin.past_owners import bundles_at
from loadmanager.cli.admin.past_wishes import cordons_then, documents_then
from loadmanager.cli.admin.shapes import Document, Texts
from loadmanager.cli.admin.times import clock, time_of_day
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.wishes import Cordon, Pin, Wishes
from loadmanager.engine.moves.move import MoveState
from loadmanager.engine.policies.isolation import IsolationPolicies, decode_policies
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan_document import PlanShown, plan_lines
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.units import HOUR_MS, MINUTE_MS
from loadmanager.lab.past_cycle import PastReports, RulesThen, plan_then, reports_of
from loadmanager.leader.plans import PLACING, SHEDDING
from loadmanager.leader.strategy_keys import strategies_of

LOOKS, STEP_MS = 12, 5 * MINUTE_MS
"""How often, and how far apart, the loads before are looked at, from which strategies learn."""
MEMBERS_MAX = 1_000
MOVES_MAX = 1_000
EARLIER_NAMED = 3
CAREFUL = (
    "decided anew, on recorded loads, with the present settings but those that are named, and "
    "with the pins, cordons, isolation policies and moves of then; without anti-affinity groups; "
    "what its leader had learned before is not known: `loadmanager admin decisions --at TIME` "
    "tells what was decided"
)


def dry_run_at(
    admin: AdminClient,
    at_ms: int,
    keys: Mapping[str, str],
    *,
    shedder: str | None,
    placement: str | None,
) -> Output:
    """What a cycle at a moment would have done with other settings, shedder or placement than those
    in force. The plan cannot be carried out.
    """
    named = {SHEDDING: shedder, PLACING: placement}
    given = {**keys, **{key: name for key, name in named.items() if name}}
    strategies = _strategies(admin, given)
    members = events_of(admin, (MemberChange.kind,), until_ms=at_ms, limit=MEMBERS_MAX)
    moments = [at_ms - step * STEP_MS for step in reversed(range(LOOKS))]
    doubts = Doubts.between(admin, moments[0], at_ms)
    recorded = [(at, LoadsThen.of(admin, at, members.events, doubts)) for at in moments]
    if not recorded[-1][1].brokers.loads:
        raise OperationalError(f"no broker has recorded loads at {clock(at_ms)}")
    if unknown := recorded[-1][1].unknown_lines(at_ms):
        raise OperationalError("; ".join([*unknown, "name a moment before or after that"]))
    bundles, _ = bundles_at(admin, at_ms)
    owners = {it.bundle: it.owner for it in bundles}
    looks = [
        PastReports(at, reports_of(look.records(at, STEP_MS), owners if at == at_ms else {}))
        for at, look in recorded
        if look.is_whole
    ]
    rules, notes = _rules(admin, at_ms)
    then = plan_then(looks, strategies, rules)
    plan = PlanShown.of(then.plan)
    count, times = count_of(len(plan.unloads), "bundle"), count_of(len(looks), "look")
    lines = [
        f"{plan.strategy} at {clock(at_ms)}: {count} would have moved",
        *plan_lines(plan),
        *_earlier(then.moved_ms),
        f"{CAREFUL}; by {times} at the loads from {clock(looks[0].at_ms)} on",
    ]
    data = {
        "at": at_ms,
        "looks": [look.at_ms for look in looks],
        "settings": given,
        "movedBefore": then.moved_ms,
        "plan": msgspec.to_builtins(plan),
        "notes": notes,
    }
    missing = recorded[-1][1].missing | members.missing
    return Output(data, (lines, *incomplete(notes)), missing=missing)


def _earlier(moved_ms: Sequence[int]) -> list[str]:
    """That it would have moved bundles before, so that it waits or begins to count anew."""
    times = ", ".join(map(time_of_day, moved_ms[-EARLIER_NAMED:]))
    return [f"it would have moved bundles before, which was not done: at {times}"] if times else []


def _strategies(admin: AdminClient, given: Mapping[str, str]) -> StrategySettings:
    """The settings in force, with others. Raises `BadInputError`, `ConfigError`."""
    check_of_strategies(given)
    in_force = settings.KEYS.parse(admin.get(f"{V2}/brokers/configuration/runtime", Texts))
    strategies = strategies_of(in_force.with_overrides(dict(given)))
    extensible = Manager.of(strategies.load_manager_class) is Manager.EXTENSIBLE
    if extensible and not registry.shedder(strategies.shedder).extensible:
        strategies = replace(strategies, shedder=registry.EXTENSIBLE_SHEDDER.name)
    return strategies


def _rules(admin: AdminClient, at_ms: int) -> tuple[RulesThen, list[str]]:
    """What limited moves at a moment, and what is not known of it."""
    notes = list[str]()
    try:
        pins, cordons = pins_at(admin, at_ms), cordons_then(admin, at_ms)
        isolation = _isolation(admin, at_ms, notes)
    except OperationalError as error:  # of a daemon
        notes.append(str(error))
        return RulesThen(), notes
    notes += pins.notes
    moved = moves_between(admin, at_ms - HOUR_MS, at_ms, MOVES_MAX).moves
    done = [it for it in reversed(moved) if it.state is MoveState.DONE and it.ended_at is not None]
    wishes = Wishes(
        pins={
            it["bundle"]: Pin(it.get("broker", ""), it["untilMs"], it.get("note", ""))
            for it in pins.data
        },
        cordons={
            broker: Cordon(it.fields.get("sinceMs", 0), bool(it.fields.get("drain")))
            for broker, it in cordons.items()
        },
    )
    rules = RulesThen(
        wishes=wishes,
        isolation=isolation,
        failure_domains=_domains(admin),
        moved={it.bundle: it.ended_at or 0 for it in done},
        moved_brokers={it.source: it.ended_at or 0 for it in done},
    )
    return rules, notes


def _isolation(admin: AdminClient, at_ms: int, notes: list[str]) -> IsolationPolicies:
    """The isolation policies of a moment; none if they cannot be read."""
    cluster = cluster_of(admin)
    path = f"{V2}/clusters/{quote(cluster, safe='')}/namespaceIsolationPolicies"
    stored = f"{paths.CLUSTERS}/{cluster}/namespaceIsolationPolicies"
    name = paths.decode(paths.last(stored))
    then = documents_then(admin, stored, {name: admin.get(path, Document)}, at_ms)
    notes += then.notes
    document = then.documents.get(name)
    try:
        return decode_policies(json.dumps({} if document is None else document.fields).encode())
    except BadInputError as error:
        notes.append(f"the isolation policies of then do not count: {error}")
        return IsolationPolicies()


def _domains(admin: AdminClient) -> dict[str, list[str]]:
    """Failure domain → its brokers, as they are now."""
    path = f"{V2}/clusters/{quote(cluster_of(admin), safe='')}/failureDomains"
    return {name: it.brokers for name, it in admin.get(path, dict[str, FailureDomain]).items()}
