"""The part of a decision that concerns one bundle or broker."""

from __future__ import annotations

from typing import Any

from loadmanager.engine.strategies import story

A, B = "t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff"
CYCLE: dict[str, Any] = {
    "kind": "shed",
    "unloads": [{"bundle": A, "source": "b1", "destination": "b2", "reason": "Hot", "why": {}}],
    "placements": [],
    "splits": [],
    "skipped": [
        {"what": B, "reason": "GracePeriod: x"},
        {"what": "b3", "reason": "NotOverloaded: x"},
    ],
}
PLACED = {
    "kind": "place",
    "bundle": A,
    "broker": "b2",
    "candidates": ["b2", "b3"],
    "rejected": {f"r{n:03}": "Filtered" for n in range(80)},
}


def told(decision: dict[str, Any], bundle: str | None, *brokers: str) -> Any:
    """The names of what a cycle's decision says."""
    document = story.concerning(decision, bundle, brokers)
    if document is None:
        return None
    return [
        part.get("bundle") or part["what"] for part in document["unloads"] + document["skipped"]
    ]


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
    everything = {**CYCLE, "skipped": [{"what": "cluster", "reason": "SheddingDisabled"}]}
    assert told(everything, B, "b9") == ["cluster"]
    document = story.concerning(CYCLE, B)
    assert document is not None
    assert (document["unloadsCount"], document["skippedCount"]) == (1, 2)


def test_other_decisions() -> None:
    """A placement concerns its bundle, its broker and the candidates; a merge its parts too."""
    for bundle, brokers, concerned in (
        (A, (), True),
        (B, ("b2",), False),
        (None, ("b3",), True),
        (None, ("r001",), False),
    ):
        assert (story.concerning(PLACED, bundle, brokers) is not None) is concerned
    merge = {"kind": "merge", "bundle": "t/m", "parts": [A, B], "broker": "b1", "reason": "Idle"}
    assert story.concerning(merge, B) == merge
    assert story.concerning({"kind": "failure", "step": "shed", "error": "x"}, A) is None


def test_long_lists_are_cut() -> None:
    """What is left out is counted."""
    skips = [{"what": f"b{n}", "reason": "x"} for n in range(500)]
    document = story.concerning({**CYCLE, "skipped": skips}, None)
    assert document is not None
    assert (len(document["skipped"]), document["skippedCount"]) == (story.LINES_MAX, 500)
    placed = story.concerning(PLACED, A)
    assert placed is not None
    assert (len(placed["rejected"]), placed["rejectedCount"]) == (story.REJECTED_MAX, 80)
