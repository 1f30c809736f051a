"""A plan as plain data for JSON: the one description of a plan.

`decide` prints it; the decisions API and the dry run answer with it; the lines of `--explain`, the
fields of the log and the records of the history are made from it.
`tests/core/strategies/test_plan_document.py` shows a whole document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from loadmanager.core.strategies.plan import Placement, Plan, Split, Unload

REFUSALS_MAX = 5
"""How many brokers an error names."""
TO_BE_PLACED = "(to be placed)"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The whole plan."""
    return {
        "strategy": plan.strategy,
        "unloads": [unload_document(unload) for unload in plan.unloads],
        "placements": [placement_document(placement) for placement in plan.placements],
        "splits": [split_document(split) for split in plan.splits],
        "skipped": [{"what": skip.what, "reason": skip.reason} for skip in plan.skipped],
    }


def unload_document(unload: Unload) -> dict[str, Any]:
    """One move."""
    return {
        "bundle": unload.bundle,
        "source": unload.source,
        "destination": unload.destination,
        "reason": unload.reason,
        "why": dict(unload.why),
    }


def placement_document(placement: Placement) -> dict[str, Any]:
    """One placement."""
    return {
        "bundle": placement.bundle,
        "broker": placement.broker,
        "candidates": list(placement.candidates),
        "rejected": dict(sorted(placement.rejected.items())),
    }


def split_document(split: Split) -> dict[str, Any]:
    """One split; `boundaries` is empty if the owner chooses them."""
    return {
        "bundle": split.bundle,
        "boundaries": [f"0x{boundary:08x}" for boundary in split.boundaries],
        "reason": split.reason,
    }


def placement_reason(candidates: Sequence[str]) -> str:
    """Why a bundle was placed there, from a placement's candidates."""
    return "the only candidate" if len(candidates) == 1 else f"one of {len(candidates)} candidates"


def refusals(rejected: Mapping[str, str]) -> str:
    """Why no broker qualifies, in a sentence: the reasons of the first brokers."""
    reasons = [f"{broker}: {reason}" for broker, reason in islice(rejected.items(), REFUSALS_MAX)]
    if len(rejected) > REFUSALS_MAX:
        reasons.append(f"and {len(rejected) - REFUSALS_MAX} others")
    return "; ".join(reasons) or "there is none"


def log_fields(unload: Mapping[str, Any]) -> dict[str, Any]:
    """A move's document without nesting: each number of `why` is a field of its own."""
    return {
        **{name: value for name, value in unload.items() if name != "why"},
        **{f"why_{name}": value for name, value in unload["why"].items()},
    }


def plan_lines(document: Mapping[str, Any]) -> list[str]:
    """A plan's document for people: a line for each move, placement, split and refusal."""
    lines = []
    for unload in document["unloads"]:
        why = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in unload["why"].items()
        )
        lines.append(
            f"  move   {unload['bundle']}  {unload['source']} -> "
            f"{unload['destination'] or TO_BE_PLACED}  {unload['reason']}: {why}"
        )
    for placement in document["placements"]:
        candidates = ", ".join(placement["candidates"]) or "no candidates"
        broker, rejected = placement["broker"] or "nobody", placement["rejected"].items()
        lines.append(f"  place  {placement['bundle']}  -> {broker}  out of {candidates}")
        lines += [f"         not {other}: {reason}" for other, reason in rejected]
    for split in document["splits"]:
        at = ", ".join(split["boundaries"])
        lines.append(f"  split  {split['bundle']}  at {at}  {split['reason']}")
    return lines + [f"  stay   {skip['what']}: {skip['reason']}" for skip in document["skipped"]]
