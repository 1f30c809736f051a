"""A plan as plain data for JSON: the one description of a plan.

`decide` prints it; the decisions API and the dry run answer with it; the lines of `--explain`, the
fields of the log and the records of the history are made from it.
`tests/engine/strategies/test_plan_document.py` shows a whole document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from itertools import islice
from typing import Any

from loadmanager.engine.strategies.plan import Placement, Plan, Split, SplitEnd, Unload
from loadmanager.kit.reason import Reason

REFUSALS_MAX = 5
"""How many brokers an error names."""
TO_BE_PLACED = "(to be placed)"
OWNER_CHOOSES = "a boundary that its owner chooses"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The whole plan."""
    return {
        "strategy": plan.strategy,
        "unloads": [unload_document(unload) for unload in plan.unloads],
        "placements": [placement_document(placement) for placement in plan.placements],
        "splits": [split_document(split) for split in plan.splits],
        "skipped": [
            {"what": skip.what, "code": skip.code, "reason": skip.reason} for skip in plan.skipped
        ],
    }


def unload_document(unload: Unload) -> dict[str, Any]:
    """One move. `swap`, if it belongs to one, names the bundle that goes the other way."""
    swap = {} if unload.swap is None else {"swap": unload.swap}
    return {
        "bundle": unload.bundle,
        "source": unload.source,
        "destination": unload.destination,
        "reason": unload.reason,
        "why": dict(unload.why),
        **swap,
    }


def placement_document(placement: Placement) -> dict[str, Any]:
    """One placement."""
    return {
        "bundle": placement.bundle,
        "broker": placement.broker,
        "candidates": list(placement.candidates),
        "rejected": {broker: str(why) for broker, why in sorted(placement.rejected.items())},
    }


def split_document(split: Split) -> dict[str, Any]:
    """One split; `boundaries` is empty if the owner chooses them."""
    return {
        "bundle": split.bundle,
        "boundaries": [f"0x{boundary:08x}" for boundary in split.boundaries],
        "reason": split.reason,
        "why": dict(split.why),
    }


def split_decision(split: Split, broker: str) -> dict[str, Any]:
    """One split at its owner, with its outcome; null while it is under way."""
    return {**split_document(split), "broker": broker, **split_outcome(split)}


def split_end(children: Sequence[str]) -> SplitEnd:
    """The result of a split that raised no error."""
    if not children:
        return SplitEnd((), "its owner found no boundary that divides its topics")
    spans = ", ".join(child.rpartition("/")[2] for child in children)
    return SplitEnd(tuple(children), f"split into {spans}")


def split_outcome(split: Split) -> dict[str, Any]:
    """The state and result of a split, as a document."""
    end = split.end
    if end is None:
        return {"state": "running", "outcome": None}
    state = "done" if end.children else "failed"
    return {"state": state, "outcome": {"text": end.text, "children": list(end.children)}}


def placement_reason(candidates: Sized, rejected: Sized) -> str:
    """Why a bundle was placed there, from a placement's candidates and rejected brokers."""
    left, brokers = len(candidates), len(candidates) + len(rejected)
    if left > 1:
        among = f", out of {brokers}" if rejected else ""
        return f"one of {left} equally good brokers{among}"
    if left == 0:
        return "no broker qualifies"
    return f"the one of {brokers} brokers that was not rejected" if rejected else "the only broker"


def refusals(rejected: Mapping[str, Reason]) -> str:
    """Why no broker qualifies, in a sentence: the reasons of the first brokers."""
    reasons = [f"{broker}: {reason}" for broker, reason in islice(rejected.items(), REFUSALS_MAX)]
    if len(rejected) > REFUSALS_MAX:
        reasons.append(f"and {len(rejected) - REFUSALS_MAX} others")
    return "; ".join(reasons) or "there is none"


def log_fields(part: Mapping[str, Any]) -> dict[str, Any]:
    """A document with `why` without nesting: each number of `why` is a field of its own."""
    return {
        **{name: value for name, value in part.items() if name != "why"},
        **{f"why_{name}": value for name, value in part["why"].items()},
    }


def figure(value: float) -> str:
    """A number for people: four digits, and no exponent if it is large."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def because(part: Mapping[str, Any]) -> str:
    """The reason of a document, with the numbers behind it."""
    why = ", ".join(
        f"{name} {figure(value)}" if isinstance(value, float) else f"{name} {value}"
        for name, value in part["why"].items()
    )
    return f"{part['reason']}: {why}" if why else str(part["reason"])


def plan_lines(document: Mapping[str, Any]) -> list[str]:
    """A plan's document for people: a line for each move, placement, split and refusal."""
    lines = [
        f"  move   {unload['bundle']}  {unload['source']} -> "
        f"{unload['destination'] or TO_BE_PLACED}  {because(unload)}"
        for unload in document["unloads"]
    ]
    for placement in document["placements"]:
        candidates = ", ".join(placement["candidates"]) or "no candidates"
        broker, rejected = placement["broker"] or "nobody", placement["rejected"].items()
        lines.append(f"  place  {placement['bundle']}  -> {broker}  out of {candidates}")
        lines += [f"         not {other}: {reason}" for other, reason in rejected]
    for split in document["splits"]:
        at = ", ".join(split["boundaries"]) or OWNER_CHOOSES
        lines.append(f"  split  {split['bundle']}  at {at}  {because(split)}")
    return lines + [f"  stay   {skip['what']}: {skip['reason']}" for skip in document["skipped"]]
