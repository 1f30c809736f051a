"""Which bundles moved back and forth?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.findings import words
from loadmanager.engine.history.tenures import Tenure
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.engine.strategies import registry
from loadmanager.nightly.day import TEXT, WHOLE, Columns, Day, Finding, Row, command, many

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
    "operator": (WHOLE, "how many of the returns an operator had ordered"),
    "first_ts": (WHOLE, "its first acquisition of the day"),
    "last_ts": (WHOLE, "its last acquisition of the day"),
}


def table(day: Day) -> list[Row]:
    """A row a bundle that moved, or came back to where it was."""
    grace_ms = day.settings.grace_period_minutes * 60_000
    rows = [
        row
        for bundle, tenures in day.owners.items()
        if len(tenures) > 1 and (row := _row(bundle, tenures, day, grace_ms))
    ]
    return sorted(rows, key=lambda row: (-row["returns"], -row["moves"], row["bundle"]))


def _row(bundle: str, tenures: Sequence[Tenure], day: Day, grace_ms: float) -> Row | None:
    left: dict[str, tuple[float, str | None]] = {}
    moves = returns = operator = 0
    times, brokers = [], set()
    before: Tenure | None = None
    for tenure in tenures:
        since = tenure.since_ms
        if since is not None and since >= day.start_ms and tenure.parent is None:
            times.append(round(since - day.corrections.get(tenure.broker, 0.0)))
            brokers.add(tenure.broker)
            moves += before is not None and before.broker != tenure.broker
            if tenure.broker in left and since - left[tenure.broker][0] <= grace_ms:
                returns += 1
                operator += left[tenure.broker][1] == LifeCause.OPERATOR.value
        if tenure.freed_ms is not None and not tenure.stopped and not tenure.lost:
            left[tenure.broker] = tenure.freed_ms, tenure.cause
        before = tenure
    if not moves and not returns:
        return None
    return {
        "bundle": bundle,
        "moves": moves,
        "returns": returns,
        "brokers": len(brokers),
        "operator": operator,
        "first_ts": min(times),
        "last_ts": max(times),
    }


def _scores_as_placed(name: str | None) -> bool:
    """True if the shedder has a placement rule that scores brokers as it does."""
    shedder = registry.SHEDDERS.get(name or "")
    return shedder is not None and shedder.goes_with is not None


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Bundles that returned, not at an operator's request."""
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
