"""Lines for people about the demo: the leader's decisions, moves and loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadmanager.cli.demo.workload import PERIOD_S, busiest
from loadmanager.engine.moves.move import Outcome
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.decisions import DecisionShown

SETTLED_S = 12.0
"""So long after the last move the load counts as settled, if it is even."""
EVEN = 0.15
"""Loads that differ by no more count as even."""


class Teller:
    """Turns what the leader answers into lines; each is told once."""

    def __init__(self) -> None:
        self._printed: set[str] = set()
        self._hints: set[str] = set()
        self._acted_s = 0.0
        self._settled = False
        self._period = 0

    def lines(
        self, now_s: float, cluster: ClusterShown, decisions: Sequence[DecisionShown]
    ) -> Iterator[str]:
        """The lines about everything new, `now_s` after the clients began."""
        period = int(now_s / PERIOD_S)
        if period > self._period:
            self._period, self._settled, self._acted_s = period, False, now_s
            yield f"The busiest topic is {busiest(period)} now: other bundles become hot."
        for decision in reversed(decisions):
            if decision.id not in self._printed:
                said = list(self._decision(decision))
                if said:
                    self._printed.add(decision.id)
                    self._settled, self._acted_s = False, now_s
                    yield from said
        loads = sorted(broker.usage or 0.0 for broker in cluster.brokers)
        if not self._settled and loads and now_s - self._acted_s > SETTLED_S:
            waiting = cluster.moves.waiting + cluster.moves.running
            if not waiting and loads[-1] - loads[0] <= EVEN:
                self._settled = True
                shown = ", ".join(f"{load:.0%}" for load in loads)
                yield f"Settled: the brokers carry {shown}. {cluster.bundles} bundles."
                yield from self._hint(
                    "settled", "Decisions. They say why nothing moves now; that goes on."
                )

    def _decision(self, decision: DecisionShown) -> Iterator[str]:
        if decision.kind == "split":
            yield f"Splits: {_short(decision.bundle or '')}, because of {_cause(decision)}"
            yield from self._hint("split", "Heat of bundles. One row ends, two begin.")
        elif decision.kind == "shed" and decision.unloads:
            count = decision.unloads_count or len(decision.unloads)
            yield f"{decision.strategy} decides to move {count} bundle{'s' * (count != 1)}."
        elif decision.kind == "move" and decision.state == "done":
            outcome = decision.outcome or Outcome("")
            pause = outcome.pause_ms
            took = "" if pause is None else f", without an owner for {pause:.0f} ms"
            yield (
                f"Moved: {_short(decision.bundle or '')} from {decision.source} to "
                f"{decision.destination or outcome.owner}{took}"
            )
            yield from self._hint(
                "move",
                "Brokers, whose bars even out. A blue notch in the heat is a move; click its row.",
            )

    def _hint(self, what: str, text: str) -> Iterator[str]:
        if what not in self._hints:
            self._hints.add(what)
            yield f"    Look at: {text}"


def _cause(split: DecisionShown) -> str:
    """The limit that a bundle exceeded, with the figures if the owner told them."""
    why = {name: float(value) for name, value in (split.why or {}).items()}
    limit = why.pop("limit", None)
    figures = "".join(f" of {value:.0f}, at most {limit:.0f}" for value in why.values() if limit)
    return f"its {split.reason}{figures}"


def _short(bundle: str) -> str:
    namespace, _, span = bundle.rpartition("/")
    low, _, high = span.partition("_")
    return f"{namespace} {low}…{high[2:]}"
