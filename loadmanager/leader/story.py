"""The parts of a decision that concern one bundle or broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct, structs

from loadmanager.leader.documents.decisions import DecisionShown

CLUSTER = "cluster"
"""The name in a skip that concerns the whole cluster."""
LINES_MAX = 200
"""Moves, placements, splits and skips each that a listed decision shows at most."""
REJECTED_MAX = 50
_LISTS = ("unloads", "placements", "splits", "skipped")


def concerning(
    decision: DecisionShown, bundle: str | None, brokers: Iterable[str] = ()
) -> DecisionShown | None:
    """The parts of a decision that concern a bundle or one of the brokers; None if none does.

    Without a bundle and brokers: all of it. What is left out is counted.
    """
    wanted = frozenset(brokers)
    lists, narrow = _lists(decision), bundle is not None or bool(wanted)
    shown = lists
    if narrow and lists:
        shown = {
            name: [part for part in parts if _concerns(part, bundle, wanted)]
            for name, parts in lists.items()
        }
        if not any(shown.values()):
            return None
    elif narrow and not _concerns(decision, bundle, wanted):
        return None
    changes: dict[str, Any] = {name: parts[:LINES_MAX] for name, parts in shown.items()}
    changes |= {f"{name}_count": len(parts) for name, parts in lists.items()}
    if decision.rejected is not UNSET and len(decision.rejected) > REJECTED_MAX:
        changes["rejected_count"] = len(decision.rejected)
        changes["rejected"] = _clipped(decision.rejected, wanted)
    return structs.replace(decision, **changes)


def names(decision: DecisionShown, bundle: str) -> bool:
    parts = [decision, *(part for parts in _lists(decision).values() for part in parts)]
    return any(
        bundle in (_of(part, "bundle"), _of(part, "what"), *(_of(part, "parts") or ()))
        for part in parts
    )


def _lists(decision: DecisionShown) -> dict[str, list[Any]]:
    """The lists that a decision has, by name."""
    lists = ((name, getattr(decision, name)) for name in _LISTS)
    return {name: parts for name, parts in lists if parts is not UNSET}


def _of(part: Struct, name: str) -> Any:
    """A field of a decision or of a part of one; None if it has none."""
    value = getattr(part, name, None)
    return None if value is UNSET else value


def _clipped(rejected: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    first = {broker: rejected[broker] for broker in wanted & rejected.keys()}
    return {**first, **dict(islice(rejected.items(), REJECTED_MAX))}


def _concerns(part: Struct, bundle: str | None, brokers: frozenset[str]) -> bool:
    """A bundle is concerned by what names it; a broker by what names it as an end of a move or as
    a candidate; both by what names the whole cluster.
    """
    what, named = _of(part, "what"), _of(part, "bundle")
    if what == CLUSTER:
        return True
    if bundle is not None and (bundle in (named, what) or bundle in (_of(part, "parts") or ())):
        return True
    if named is not None and bundle is not None:
        return False
    ends = {what, *(_of(part, name) for name in ("broker", "source", "destination"))}
    return bool(brokers & ends) or not brokers.isdisjoint(_of(part, "candidates") or ())
