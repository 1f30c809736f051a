"""Metrics of what the leader decided."""

from __future__ import annotations

from dataclasses import replace

from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Split, SplitEnd, Unload
from loadmanager.engine.strategies.splitting.settings import SPLITTERS
from loadmanager.leader.decision_telemetry import REASONS_MAX, Counts


def _unload(bundle: str, reason: str) -> Unload:
    return Unload(bundle, "a:1", None, reason)


def test_plans_are_counted_by_result_and_reason() -> None:
    """Each move and split by its reason, without what a third party adds to the word; a cycle
    without moves by the codes of its skips; the
    skips of a cycle that moves something are not refusals to move.
    """
    counts = Counts()
    skip = Skip("cluster", "Balanced", "no pair differs enough")
    counts.on_plan(Plan("X", unloads=(_unload("x", "MsgRate"), _unload("y", "MsgRate: 3"))))
    counts.on_plan(Plan("X", unloads=(_unload("x", "Overloaded"),), skipped=(skip,)))
    counts.on_plan(Plan("X", skipped=(skip, skip, Skip("a:1", "CoolDown"))))
    counts.on_plan(Plan("Y", placements=(Placement("x", "a:1", ("a:1",), {}),)))
    split = Split("x", (), "Topics")
    counts.on_plan(Plan(SPLITTERS[0], splits=(split,)))
    counts.on_plan(Plan(SPLITTERS[0], splits=(replace(split, end=SplitEnd((), "no")),)))
    counts.on_plan(Plan(SPLITTERS[0], skipped=(Skip("y", "Unsplittable", "one topic"),)))
    assert (counts.unloaded_bundles, counts.unload_cycles, counts.placed) == (3, 2, 1)
    assert counts.unloads == {
        ("Success", "MsgRate"): 2,
        ("Success", "Overloaded"): 1,
        ("Skip", "Balanced"): 1,
        ("Skip", "CoolDown"): 1,
    }
    assert counts.splits == {("Success", "Topics"): 1, ("Skip", "Unsplittable"): 1}


def test_reasons_are_bounded() -> None:
    """A strategy that invents reasons does not fill the metrics page."""
    counts = Counts()
    for number in range(10 * REASONS_MAX):
        counts.on_plan(Plan("X", unloads=(_unload("x", f"reason{number}"),)))
    assert len(counts.unloads) == REASONS_MAX + 1
    assert counts.unloads["Success", "Unknown"] == 9 * REASONS_MAX
    assert counts.unloaded_bundles == 10 * REASONS_MAX
