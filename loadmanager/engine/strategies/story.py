"""The parts of a decision's document that concern one bundle or broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

Document = dict[str, Any]
CLUSTER = "cluster"
"""The name in a skip that concerns the whole cluster."""
LINES_MAX = 200
"""Moves, placements, splits and skips each that a listed decision shows at most."""
REJECTED_MAX = 50
_LISTS = ("unloads", "placements", "splits", "skipped")


def concerning(
    decision: Mapping[str, Any], bundle: str | None, brokers: Iterable[str] = ()
) -> Document | None:
    """The parts of a decision that concern a bundle or one of the brokers; None if none does.

    Without a bundle and brokers: all of it. What is left out is counted.
    """
    wanted = frozenset(brokers)
    document = dict(decision)
    if bundle is not None or wanted:
        if any(name in decision for name in _LISTS):
            for name in _LISTS:
                document[name] = [
                    part for part in decision.get(name, ()) if _concerns(part, bundle, wanted)
                ]
            if not any(document[name] for name in _LISTS):
                return None
        elif not _concerns(decision, bundle, wanted):
            return None
    for name in _LISTS:
        if name in decision:
            document[name] = document[name][:LINES_MAX]
            document[f"{name}Count"] = len(decision[name])
    if len(document.get("rejected", ())) > REJECTED_MAX:
        document["rejectedCount"] = len(decision["rejected"])
        document["rejected"] = _clipped(decision["rejected"], wanted)
    return document


def names(decision: Mapping[str, Any], bundle: str) -> bool:
    """True if a decision, or a part of it, names a bundle."""
    parts = [decision, *(part for name in _LISTS for part in decision.get(name, ()))]
    return any(
        bundle in (part.get("bundle"), part.get("what"), *part.get("parts", ())) for part in parts
    )


def _clipped(rejected: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    first = {broker: rejected[broker] for broker in wanted & rejected.keys()}
    return {**first, **dict(islice(rejected.items(), REJECTED_MAX))}


def _concerns(part: Mapping[str, Any], bundle: str | None, brokers: frozenset[str]) -> bool:
    """A bundle is concerned by what names it; a broker by what names it as an end of a move or as
    a candidate; both by what names the whole cluster.
    """
    what = part.get("what")
    if what == CLUSTER:
        return True
    if bundle is not None and (
        bundle in (part.get("bundle"), what) or bundle in part.get("parts", ())
    ):
        return True
    if part.get("bundle") is not None and bundle is not None:
        return False
    named = {what, *(part.get(name) for name in ("broker", "source", "destination"))}
    return bool(brokers & named) or not brokers.isdisjoint(part.get("candidates", ()))
