"""The answer to "may anything move now?": one ordered table of rules.

Each rule stops some of those who ask. The first rule that has a reason gives the answer, so that
everybody is told the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from loadmanager.engine.moves.move import Author
from loadmanager.kit.reason import Reason


class Asker(Enum):
    """Who asks."""

    DECISION = "decision"
    """A cycle whose plan is only shown, or waits for approval."""
    ACTION = "action"
    """A cycle whose plan is carried out at once."""
    CYCLE = "cycle"
    """A move of a cycle, before it begins."""
    PLAN = "plan"
    """A move of an approved plan or of a drain."""
    OPERATOR = "operator"
    """A move that an operator orders by itself."""
    SPLIT = "split"
    """A split that is made at once."""

    @classmethod
    def of(cls, author: Author) -> Asker:
        """Who asks for a move of this author."""
        own = {Author.CYCLE: cls.CYCLE, Author.OPERATOR: cls.OPERATOR}
        return own.get(author, cls.PLAN)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table."""

    why_not: Callable[[], Reason | None]
    """The reason why nothing may move now; None: this rule stops nothing now."""
    stops: frozenset[Asker]


def why_not(rules: Iterable[Rule], asker: Asker) -> Reason | None:
    """The reason why `asker` may not go on now; None: it may."""
    for rule in rules:
        if asker in rule.stops and (reason := rule.why_not()) is not None:
            return reason
    return None
