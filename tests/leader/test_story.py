"""The part of a decision that concerns one bundle or broker."""

from __future__ import annotations

from functools import partial

from msgspec import UNSET

from loadmanager.engine.strategies.plan_document import SkipShown, UnloadShown
from loadmanager.leader import story
from loadmanager.leader.documents.decisions import DecisionShown

A, B = "t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff"
a_decision = partial(DecisionShown, id="1-1", ts=1, epoch=1, cycle=1)
UNLOAD = UnloadShown(bundle=A, source="b1", destination="b2", reason="Hot", why={})


def a_cycle(*skips: tuple[str, str]) -> DecisionShown:
    """A cycle that moves A, and leaves others where they are."""
    return a_decision(
        kind="shed",
        unloads=[UNLOAD],
        placements=[],
        splits=[],
        skipped=[SkipShown(what=what, code="", reason=reason) for what, reason in skips],
    )


CYCLE = a_cycle((B, "GracePeriod: x"), ("b3", "NotOverloaded: x"))
PLACED = a_decision(
    kind="place",
    bundle=A,
    broker="b2",
    candidates=["b2", "b3"],
    rejected={f"r{n:03}": "Filtered" for n in range(80)},
)


def told(decision: DecisionShown, bundle: str | None, *brokers: str) -> list[str] | None:
    """The names of what a cycle's decision says."""
    shown = story.concerning(decision, bundle, brokers)
    if shown is None:
        return None
    assert shown.unloads is not UNSET
    assert shown.skipped is not UNSET
    return [*(move.bundle for move in shown.unloads), *(skip.what for skip in shown.skipped)]


def test_parts_of_a_cycle() -> None:
    """Moves and refusals of the bundle, refusals of its broker; of a broker, both ends of moves."""
    assert told(CYCLE, None) == [A, B, "b3"]
    assert told(CYCLE, A) == [A]
    assert told(CYCLE, B) == [B]
    assert told(CYCLE, B, "b3") == [B, "b3"]
    assert told(CYCLE, B, "b1") == [B]  # the move of another bundle of its broker is not its story
    assert told(CYCLE, None, "b1") == told(CYCLE, None, "b2") == [A]
    assert told(CYCLE, "t/c/0x00000000_0xffffffff") is None
    assert told(CYCLE, None, "b9") is None
    assert told(a_cycle(("cluster", "SheddingDisabled")), B, "b9") == ["cluster"]
    shown = story.concerning(CYCLE, B)
    assert shown is not None
    assert (shown.unloads_count, shown.skipped_count) == (1, 2)


def test_other_decisions() -> None:
    """A placement concerns its bundle, its broker and the candidates; a merge its parts too."""
    for bundle, brokers, concerned in (
        (A, (), True),
        (B, ("b2",), False),
        (None, ("b3",), True),
        (None, ("r001",), False),
    ):
        assert (story.concerning(PLACED, bundle, brokers) is not None) is concerned
    merge = a_decision(kind="merge", bundle="t/m", parts=[A, B], broker="b1", reason="Idle")
    assert story.concerning(merge, B) == merge
    assert story.concerning(a_decision(kind="failure", step="shed", error="x"), A) is None


def test_long_lists_are_cut() -> None:
    """What is left out is counted."""
    cycle = story.concerning(a_cycle(*((f"b{n}", "x") for n in range(500))), None)
    assert cycle is not None
    assert cycle.skipped is not UNSET
    assert (len(cycle.skipped), cycle.skipped_count) == (story.LINES_MAX, 500)
    placed = story.concerning(PLACED, A)
    assert placed is not None
    assert placed.rejected is not UNSET
    assert (len(placed.rejected), placed.rejected_count) == (story.REJECTED_MAX, 80)
