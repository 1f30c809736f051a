"""A plan as plain data, which JSON can carry: the one description of a plan.

`decide` prints it, the decisions API and the dry run answer it, and the lines for people, the log's
fields and the history's records are made from it. `tests/core/strategies/test_plan_document.py`
shows a whole document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadmanager.core.strategies.decision import Placement, Plan, Skip, Split, Unload

TO_BE_PLACED = "(to be placed)"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The whole plan."""
    return {
        "strategy": plan.strategy,
        "unloads": [unload_document(item) for item in plan.unloads],
        "placements": [placement_document(item) for item in plan.placements],
        "splits": [split_document(item) for item in plan.splits],
        "skipped": [_skip_document(item) for item in plan.skipped],
    }


def unload_document(item: Unload) -> dict[str, Any]:
    """One move."""
    return {
        "bundle": item.bundle,
        "source": item.source,
        "destination": item.destination,
        "reason": item.reason,
        "why": dict(item.why),
    }


def placement_document(item: Placement) -> dict[str, Any]:
    """One placement."""
    rejected = dict(sorted(item.rejected.items()))
    return {
        "bundle": item.bundle,
        "broker": item.broker,
        "candidates": list(item.candidates),
        "rejected": rejected,
    }


def split_document(item: Split) -> dict[str, Any]:
    """One split; `boundaries` is empty when the owner is to find them."""
    return {
        "bundle": item.bundle,
        "boundaries": [f"0x{cut:08x}" for cut in item.boundaries],
        "reason": item.reason,
    }


def _skip_document(item: Skip) -> dict[str, Any]:
    return {"what": item.what, "reason": item.reason}


def placement_reason(placement: Mapping[str, Any]) -> str:
    """Why a bundle was placed there, from a placement's document."""
    return f"one of {len(placement['candidates'])} candidates"


def log_fields(unload: Mapping[str, Any]) -> dict[str, Any]:
    """A move's document without nesting: each number of `why` is a field of its own."""
    return {
        **{name: value for name, value in unload.items() if name != "why"},
        **{f"why_{name}": value for name, value in unload["why"].items()},
    }


def plan_lines(document: Mapping[str, Any]) -> list[str]:
    """A plan's document for people: a line an item."""
    lines = []
    for item in document["unloads"]:
        why = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in item["why"].items()
        )
        lines.append(
            f"  move   {item['bundle']}  {item['source']} -> "
            f"{item['destination'] or TO_BE_PLACED}  {item['reason']}: {why}"
        )
    for item in document["placements"]:
        candidates = ", ".join(item["candidates"]) or "no candidates"
        lines.append(
            f"  place  {item['bundle']}  -> {item['broker'] or 'nobody'}  out of {candidates}"
        )
        lines += [f"         not {broker}: {reason}" for broker, reason in item["rejected"].items()]
    lines += [
        f"  split  {item['bundle']}  at {', '.join(item['boundaries'])}  {item['reason']}"
        for item in document["splits"]
    ]
    lines += [f"  stay   {item['what']}: {item['reason']}" for item in document["skipped"]]
    return lines
