"""Which bundles moved back and forth?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from loadmanager.engine.findings import words
from loadmanager.engine.history.tenures import Handover, Tenure
from loadmanager.engine.moves.move import Author
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.engine.strategies import registry
from loadmanager.nightly.day import (
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    command,
    many,
    namespace_of,
)
from loadmanager.nightly.hurt import clients_of
from loadmanager.nightly.orders import RecordedOrders

NAME = "flapping"
ABOUT = (
    "Which bundles moved back and forth? A bundle returns when a broker acquires it that gave it "
    "up within the grace period, also when no other broker owned it meanwhile."
)
COLUMNS: Columns = {
    "bundle": (TEXT, "the bundle"),
    "moves": (WHOLE, "acquisitions by another broker than the one before"),
    "returns": (
        WHOLE,
        (
            "acquisitions by a broker that had given it up less than "
            "loadBalancerSheddingGracePeriodMinutes before"
        ),
    ),
    "brokers": (WHOLE, "brokers that acquired it"),
    "operator": (
        WHOLE,
        (
            "how many of the returns the balancer did not choose: others than a cycle ordered one "
            "of the moves, or a broker stopped, was lost or was drained meanwhile"
        ),
    ),
    "first_ts": (WHOLE, "its first acquisition of the day"),
    "last_ts": (WHOLE, "its last acquisition of the day"),
}


def table(day: Day) -> list[Row]:
    """A row a bundle that moved, or came back to where it was."""
    grace_ms = day.settings.grace_period_minutes * 60_000
    choices = _Choices(day)
    rows = [
        row
        for bundle, tenures in day.owners.items()
        if len(tenures) > 1 and (row := _row(bundle, tenures, day, grace_ms, choices))
    ]
    return sorted(rows, key=lambda row: (-row["returns"], -row["moves"], row["bundle"]))


class _Choices:
    """Which returns the balancer chose."""

    def __init__(self, day: Day) -> None:
        self._orders = RecordedOrders(day.facts.leader_moves)
        self._emptied = _emptied(day)

    def authored(self, before: Tenure, after: Tenure) -> bool:
        """Whether a cycle of the leader ended `before`, as far as records tell."""
        if before.stopped or before.lost or before.cause == LifeCause.OPERATOR.value:
            return False
        return self._orders.of(Handover(before, after))["author"] in (None, Author.CYCLE.value)

    def stayed(self, broker: str, since_ms: float, until_ms: float) -> bool:
        """Whether it was neither drained nor away meanwhile, by its own clock."""
        times = self._emptied.get(broker, ())
        place = bisect_left(times, since_ms)
        return place == len(times) or times[place] > until_ms


def _emptied(day: Day) -> Mapping[str, Sequence[float]]:
    """Broker → when it was drained, left, or was there again, by its own clock, in order."""
    times: dict[str, list[float]] = {}
    for move in day.facts.leader_moves:
        if move["author"] == Author.DRAIN.value:
            by_leader = move["ts"] - day.corrections.get(move["broker"], 0.0)
            ahead = day.corrections.get(move["source"], 0.0)
            times.setdefault(move["source"], []).append(by_leader + ahead)
    for row in day.answers.get("outages", ()):
        if row["how"] == "silent":
            continue  # it kept its bundles
        ahead = day.corrections.get(row["broker"], 0.0)
        ends = (row["ts"], row["back_ts"])
        times.setdefault(row["broker"], []).extend(ts + ahead for ts in ends if ts is not None)
    return {broker: sorted(of_broker) for broker, of_broker in times.items()}


def _row(
    bundle: str, tenures: Sequence[Tenure], day: Day, grace_ms: float, choices: _Choices
) -> Row | None:
    left: dict[str, tuple[float, bool]] = {}
    moves = returns = forced = 0
    times, brokers = [], set()
    before: Tenure | None = None
    chosen = True
    for tenure, after in zip(tenures, [*tenures[1:], None], strict=True):
        since, broker = tenure.since_ms, tenure.broker
        if since is not None and since >= day.start_ms and tenure.parent is None:
            times.append(round(since - day.corrections.get(broker, 0.0)))
            brokers.add(broker)
            moves += before is not None and before.broker != broker
            if broker in left and since - left[broker][0] <= grace_ms:
                freed_ms, own = left[broker]
                returns += 1
                forced += not (own and chosen and choices.stayed(broker, freed_ms, since))
        chosen = after is None or choices.authored(tenure, after)
        if tenure.freed_ms is not None and not tenure.stopped and not tenure.lost:
            left[broker] = tenure.freed_ms, chosen
        before = tenure
    if not moves and not returns:
        return None
    return {
        "bundle": bundle,
        "moves": moves,
        "returns": returns,
        "brokers": len(brokers),
        "operator": forced,
        "first_ts": min(times),
        "last_ts": max(times),
    }


def _scores_as_placed(name: str | None) -> bool:
    """True if the shedder has a placement rule that scores brokers as it does."""
    shedder = registry.SHEDDERS.get(name or "")
    return shedder is not None and shedder.goes_with is not None


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Bundles that the balancer moved back."""
    back = [row for row in rows if row.returns > row.operator]
    if not back:
        return []
    worst = back[0]
    returns = sum(row.returns - row.operator for row in back)
    came = "It" if len(back) == 1 else "They"
    return [
        Finding(
            importance=min(36 + returns, 58),
            question=NAME,
            title=f"{many(len(back), 'bundle')} moved back and forth",
            text=f"{came} came back {many(returns, 'time')} to a broker that had given "
            f"{'it' if len(back) == 1 else 'them'} up less "
            f"than {day.settings.grace_period_minutes:g} minutes before. "
            f"The worst is {worst.bundle} with {many(worst.moves, 'move')} and "
            f"{many(worst.returns, 'return')}. {words.RECONNECT}",
            advice=("" if _scores_as_placed(day.facts.shedder) else words.TWO_SCORES) + words.STAY,
            hurt=clients_of(
                (namespace_of(row.bundle) for row in back),
                f"they reconnected {many(sum(row.moves for row in back), 'time')} in all",
            ),
            numbers={
                "bundles": len(back),
                "returns": returns,
                "worstMoves": worst.moves,
                "worstReturns": worst.returns,
            },
            at_ms=min(row.first_ts for row in back),
            until_ms=max(row.last_ts for row in back),
            where=worst.bundle,
            plot="timeline",
            commands=[
                *command("loadmanager admin bundles pin", worst.bundle, " 2h"),
                "loadmanager admin decisions",
            ],
            explains=["back and forth"],
            causes=[f"bundle {worst.bundle}"],
        )
    ]
