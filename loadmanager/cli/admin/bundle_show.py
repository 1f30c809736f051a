"""`loadmanager admin bundles show`: one bundle, and why it stays where it is, or goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import click
from msgspec import UNSET

from loadmanager.cli.admin.archives import EventsOfAll, events_of, has_archives, incomplete, now_ms
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.moves import pins_at
from loadmanager.cli.admin.names_then import nothing_then, unknown_then
from loadmanager.cli.admin.nearest import asked_for, did_you_mean, near_names
from loadmanager.cli.admin.past_decisions import as_of, decisions_of
from loadmanager.cli.admin.past_owners import bundle_at, bundles_at
from loadmanager.cli.admin.past_wishes import pause_then
from loadmanager.cli.admin.sentences import (
    once_resumed,
    ordered,
    paused_text,
    so_far_text,
    unload_text,
)
from loadmanager.cli.admin.settings import switched_off_at
from loadmanager.cli.admin.silence import silence_of
from loadmanager.cli.admin.status import of_daemon
from loadmanager.cli.admin.times import at_option, clock, span
from loadmanager.cli.admin.topics import is_missing
from loadmanager.engine.bundles.ranges import BundleRange, bundle_name, split_bundle_name
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.names import TopicName
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.decisions import BundleStory, DecisionShown
from loadmanager.leader.documents.moves import PinShown
from loadmanager.leader.owners_then import PastBundle, in_bundle
from loadmanager.leader.story import CLUSTER

DECISIONS_MAX = 100
RECORDS_MAX = 200
"""Records among which the last verdict before a moment is looked for."""
CYCLE_KINDS = ("decision.unload", "decision.skip")
OFF = "BALANCING IS OFF: no cycle moves anything; `loadmanager admin status` says since when"
NO_VERDICT = "no cycle has judged it or its broker yet, as far as it is recorded"


@click.argument("name", metavar="TENANT/NAMESPACE/RANGE|TOPIC")
@at_option
def bundles_show(admin: AdminClient, name: str, at: int | None) -> Output:
    """Show a bundle, or that of a topic: its owner and traffic, and why it stays there or leaves.

    Its move, a pause, its pin, the rules that leave only some brokers to it, and what the last
    cycle said of it or of its broker, by the id of the decision. With --at, as it was recorded.
    """
    name = in_full(name)
    if at is not None:
        return _then(admin, _bundle_then(admin, name, at), at, name)
    bundle = full_name(admin, name)
    path = f"{OWN}/bundles/{bundle}{query(limit=DECISIONS_MAX)}"
    story, raw = admin.ask("GET", path, None, BundleStory)
    cluster = admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown)
    lines = list(_head(story, _since(admin, story)))
    if story.move is not None and story.owner is None and not story.replaced_by:
        lines = [f"nobody serves {story.bundle} at the moment: it is on its way"]
    if story.replaced_by:
        return Output(raw, lines, status=1)
    if cluster.fleet is not None:
        lines += of_daemon(cluster)
    elif not cluster.balancing:
        lines.append(OFF)
    if cluster.paused is not None:
        lines.append(paused_text(cluster.paused))
    if story.move is not None:
        to = story.move.destination or "wherever it is placed"
        lines.append(f"move {story.move.id} to {to} {so_far_text(story.move, story.at)}")
    if "://" in name or not story.rate:
        lines += silence_of(admin, name, bundle)
    lines += why_it_stays(bundle, story.owner, story.pin, _judged(admin, story))
    lines += [*_elsewhere(story), *_missing_topic(admin, name)]
    return Output(raw, lines)


def in_full(name: str) -> str:
    """A topic that was named as tenant/namespace/topic, with its domain; others as they are."""
    if name.count("/") == 2 and "://" not in name and "_0x" not in name:
        return str(TopicName.parse(name))
    return name


def full_name(admin: AdminClient, name: str) -> str:
    """The name of a bundle, also of the one that a topic is in."""
    if "://" in name:
        topic = TopicName.parse(name)
        path = f"/lookup/v2/topic/{topic.domain}/{topic.namespace}/{quote(topic.local, safe='')}"
        return f"{topic.namespace}/{admin.text(f'{path}/bundle').strip().strip(chr(34))}"
    namespace, span_text = split_bundle_name(name)
    return bundle_name(namespace, str(BundleRange.parse(span_text)))


def _bundle_then(admin: AdminClient, name: str, at_ms: int) -> str:
    """The bundle of a name, or that a topic was in at a moment, if one is recorded."""
    if "://" in name:
        topic = TopicName.parse(name)
        there = [it for it in bundles_at(admin, at_ms)[0] if in_bundle(topic, it.bundle)]
        there.sort(key=lambda it: it.owner is None)  # others were split or merged about then
        if there:
            return there[0].bundle
    return full_name(admin, name)


def _missing_topic(admin: AdminClient, name: str) -> list[str]:
    """That a topic does not exist, what it may have meant, and who asks for it."""
    if "://" not in name or not is_missing(admin, name):
        return []
    hints = [*did_you_mean(near_names(admin, name)), *asked_for(admin, name)]
    return [f"there is no topic {name}: if it is made, it is in this bundle", *hints]


def _since(admin: AdminClient, story: BundleStory) -> tuple[int | None, bool]:
    """Since when its owner has it, and whether that is exact: the leader may have seen it come; of
    before its term, the owner's records say it.
    """
    if story.owner is None or story.owned_since_exact:
        return story.owned_since, story.owned_since_exact
    recorded = PastBundle(story.bundle, None)
    with suppress(LoadManagerError):  # it is of use without
        if has_archives(admin):
            recorded, _ = bundle_at(admin, story.bundle, now_ms())
    if recorded.owner != story.owner or recorded.since is None:
        return story.owned_since, False
    return recorded.since, True


def _head(story: BundleStory, served: tuple[int | None, bool]) -> Iterator[str]:
    if story.replaced_by:
        yield f"{story.bundle} is no bundle any more: it is {', '.join(story.replaced_by)} now"
        return
    if story.owner is None:
        yield f"nobody serves {story.bundle}: the next lookup of a topic of it places it"
        return
    since, (since_ms, is_exact) = "", served
    if since_ms is not None:
        exact = "" if is_exact else "at least "
        since = f", since {clock(since_ms)}, for {exact}{span(story.at - since_ms)}"
    yield f"{story.bundle} is served by {story.owner}{since}"
    if story.rate is not None:
        size = (story.throughput or 0.0) / (1 << 20)
        counts = {"topic": story.topics, "producer": story.producers, "consumer": story.consumers}
        of = ", ".join(count_of(number or 0, noun) for noun, number in counts.items())
        yield f"{story.rate:,.0f} messages/s, {size:,.2f} MiB/s; {of}"


def _elsewhere(story: BundleStory) -> Iterator[str]:
    """What rules leave to it, were its broker lost."""
    if story.elsewhere is None:
        return
    rules, to = ", ".join(story.elsewhere.rules), story.elsewhere.destination
    only = f"; rules leave only some brokers to it: {rules}" if rules else ""
    if to is None:
        yield f"no other broker may serve it{only}"
    elif only:
        yield f"were its broker lost, placement would send it to {to}{only}"


def why_it_stays(
    bundle: str, owner: str | None, pin: PinShown | None, history: Iterable[DecisionShown]
) -> Iterator[str]:
    """Its pin, and the verdict of the last cycle, in lines."""
    if pin is not None:
        about = f" ({text})" if (text := ordered(pin)) else ""
        yield f"pinned to {pin.broker} until {clock(pin.until)}{about}"
    yield next(filter(None, (_verdict(bundle, owner, it) for it in history)), NO_VERDICT)


def _verdict(bundle: str, owner: str | None, decision: DecisionShown) -> str:
    """What a cycle said of the bundle, else of its broker, else of all; empty: it says nothing."""
    if decision.kind != "shed":
        return ""
    shown_id = "" if "-a" in decision.id else f", decision {decision.id}"
    head = f"the last cycle to judge it ({clock(decision.ts)}{shown_id})"
    unloads = [] if decision.unloads is UNSET else decision.unloads
    if leaving := [each for each in unloads if each.bundle == bundle]:
        waits = once_resumed(decision) or owner == leaving[-1].source
        moved = f"decided to move it{once_resumed(decision)}" if waits else "moved it"
        return f"{head} {moved}: {unload_text(leaving[-1])}"
    reasons = {} if decision.skipped is UNSET else {it.what: it.reason for it in decision.skipped}
    if bundle in reasons:
        return f"{head} left it: {reasons[bundle]}"
    if owner in reasons:
        return f"{head} took nothing from {owner}: {reasons[owner]}"
    if CLUSTER in reasons:
        return f"{head} moved nothing; it said then: {reasons[CLUSTER]}"
    if away := [each.bundle for each in unloads if each.source == owner]:
        return f"{head} took {count_of(len(away), 'bundle')} from {owner}, and not this one"
    return ""


def _then(admin: AdminClient, bundle: str, at_ms: int, name: str) -> Output:
    """The same from what was recorded; `name`: what was asked for, the bundle or a topic of it."""
    then, past = bundle_at(admin, bundle, at_ms)
    owner = then.owner
    pins = pins_at(admin, at_ms)
    pin = pins.of(bundle)
    history, answers = _recorded(admin, bundle, owner, at_ms)
    held_back = [*switched_off_at(admin, at_ms), *pause_then(admin, at_ms)]
    silence = silence_of(admin, name, bundle, at_ms)
    lines = [
        _head_then(then, at_ms),
        *silence,
        *held_back,
        *why_it_stays(bundle, owner, pin, history),
    ]
    notes = dict.fromkeys((*pins.notes, *(note for answer in answers for note in answer.notes)))
    missing = past.missing | pins.missing
    for answer in answers:
        missing |= answer.missing
    data: dict[str, Any] = {
        "bundle": bundle,
        **then.owner_fields,
        "at": at_ms,
        "figures": then.figures,
        "lines": lines,
    }
    status = 1 if owner is None and pin is None and not history else 0
    if "://" in name:
        lines += filter(None, [unknown_then(admin, name, at_ms)])
    elif status:
        lines.append(nothing_then(admin, bundle, at_ms))
    said = [note for note in past.notes if not then.lost or then.lost not in note]
    return Output(data, (lines, said, *incomplete([*notes])), status=status, missing=missing)


def _recorded(
    admin: AdminClient, bundle: str, owner: str | None, at_ms: int
) -> tuple[list[DecisionShown], list[EventsOfAll]]:
    """What cycles had said by a moment of a bundle, of its broker or of all, the newest first."""
    names = [bundle, *([owner] if owner else [])]
    answers = [
        events_of(admin, CYCLE_KINDS, each, until_ms=at_ms, limit=RECORDS_MAX) for each in names
    ]
    answers.append(
        events_of(admin, CYCLE_KINDS, until_ms=at_ms, limit=RECORDS_MAX, wanted=_of_the_cluster)
    )
    # One record may answer for several names; of one moment, that of the bundle comes first.
    history = [
        decision for answer in answers for decision in decisions_of(as_of(answer.events, at_ms))
    ]
    return sorted(history, key=lambda decision: -decision.ts), answers


def _judged(admin: AdminClient, story: BundleStory) -> list[DecisionShown]:
    """What cycles said of a bundle, the newest first: those of the present term, or else those that
    are recorded, which may be of earlier ones.
    """
    if any(_verdict(story.bundle, story.owner, it) for it in story.history):
        return story.history
    with suppress(LoadManagerError):  # without archives
        if has_archives(admin):
            return _recorded(admin, story.bundle, story.owner, now_ms())[0]
    return story.history


def _of_the_cluster(event: ArchivedEvent) -> bool:
    return event.record.get("what") == CLUSTER


def _head_then(then: PastBundle, at_ms: int) -> str:
    if then.owner is None:
        return f"nobody served {then.bundle} at {clock(at_ms)}, as far as it is recorded"
    rate = sum(then.figures.get(name, 0.0) for name in ("msg_rate_in", "msg_rate_out"))
    traffic = f"; {rate:,.0f} messages/s around then" if then.figures else ""
    if then.lost:
        return (
            f"{then.bundle} was owned at {clock(at_ms)} by {then.owner}, which was lost about "
            f"then: {then.lost}{traffic}"
        )
    return f"{then.bundle} was served by {then.owner} at {clock(at_ms)}{traffic}"


def verdict_lines(admin: AdminClient, bundle: str) -> list[str]:
    """Why a bundle stays now, at the end of its story."""
    story = admin.get(f"{OWN}/bundles/{bundle}{query(limit=DECISIONS_MAX)}", BundleStory)
    if story.replaced_by or story.owner is None:
        return []
    judged = _judged(admin, story)
    return [f"now: {line}" for line in why_it_stays(bundle, story.owner, story.pin, judged)]
