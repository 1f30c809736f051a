"""One table says whether anything may move now."""

from __future__ import annotations

from itertools import product

from loadmanager.engine.moves.move import Author
from loadmanager.kit.reason import Reason
from loadmanager.leader.may_move import Asker, Rule, why_not

FIRST, SECOND = Reason("First", "of the table"), Reason("Second", "of the table")


def test_the_first_rule_that_stops_the_asker_answers() -> None:
    """Rules for others, and those without a reason now, are passed over."""
    for has_first, has_second, asker in product((True, False), (True, False), Asker):
        rules = (
            Rule(lambda has=has_first: FIRST if has else None, frozenset({Asker.CYCLE})),
            Rule(lambda has=has_second: SECOND if has else None, frozenset(Asker)),
        )
        expected = SECOND if has_second else None
        if has_first and asker is Asker.CYCLE:
            expected = FIRST
        assert why_not(rules, asker) == expected


def test_every_author_asks_as_somebody() -> None:
    """What is neither a cycle's nor an operator's own move waits as a plan does."""
    asked = {author: Asker.of(author) for author in Author}
    assert asked.pop(Author.CYCLE) is Asker.CYCLE
    assert asked.pop(Author.OPERATOR) is Asker.OPERATOR
    assert set(asked.values()) == {Asker.PLAN}
