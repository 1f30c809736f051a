"""A plan as plain data, and everything that is made from that data."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from loadmanager.engine.history.records import SKIPS_MAX, decisions
from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Split, SplitEnd, Unload
from loadmanager.engine.strategies.plan_document import (
    PlanShown,
    log_fields,
    placement_reason,
    plan_lines,
    split_end,
)
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.decisions import of_split

HEAD = {"id": "1-1", "ts": 1, "kind": "split", "epoch": 1, "cycle": 0}

PLAN = Plan(
    "ThresholdShedder",
    unloads=(
        Unload(
            "t/n/0x00000000_0x40000000",
            "b1",
            None,
            "Overloaded",
            {"usage": 0.91234567, "notTo": "b2: full"},
        ),
    ),
    placements=(
        Placement(
            "t/n/0x40000000_0x80000000",
            "b2",
            ("b2", "b3"),
            {"b4": Reason("MaxTopics", "9 topics"), "b1": Reason("Overloaded")},
        ),
        Placement("t/n/0x80000000_0xc0000000", None, (), {}),
    ),
    splits=(
        Split(
            "t/n/0xc0000000_0xffffffff",
            (0xD0000000, 0xE0000000),
            "Bandwidth",
            {"bytesPerSecond": 2e8, "limit": 104857600.0},
        ),
    ),
    skipped=(Skip("b3", "NotOverloaded", "usage 0.1"),),
)
DOCUMENT = {
    "strategy": "ThresholdShedder",
    "unloads": [
        {
            "bundle": "t/n/0x00000000_0x40000000",
            "source": "b1",
            "destination": None,
            "reason": "Overloaded",
            "why": {"usage": 0.91234567, "notTo": "b2: full"},
        }
    ],
    "placements": [
        {
            "bundle": "t/n/0x40000000_0x80000000",
            "broker": "b2",
            "candidates": ["b2", "b3"],
            "rejected": {"b1": "Overloaded", "b4": "MaxTopics: 9 topics"},
        },
        {"bundle": "t/n/0x80000000_0xc0000000", "broker": None, "candidates": [], "rejected": {}},
    ],
    "splits": [
        {
            "bundle": "t/n/0xc0000000_0xffffffff",
            "boundaries": ["0xd0000000", "0xe0000000"],
            "reason": "Bandwidth",
            "why": {"bytesPerSecond": 2e8, "limit": 104857600.0},
        }
    ],
    "skipped": [{"what": "b3", "code": "NotOverloaded", "reason": "NotOverloaded: usage 0.1"}],
}


def test_the_document() -> None:
    """Character for character as JSON: names in this order, rejected brokers by name."""
    assert json.dumps(msgspec.to_builtins(PlanShown.of(PLAN))) == json.dumps(DOCUMENT)


def test_lines_for_people() -> None:
    """They read the same from a plan and from its JSON."""
    assert plan_lines(msgspec.convert(DOCUMENT, PlanShown)) == [
        (
            "  move   t/n/0x00000000_0x40000000  b1 -> (to be placed)  Overloaded: usage 0.9123, "
            "notTo b2: full"
        ),
        "  place  t/n/0x40000000_0x80000000  -> b2  out of b2, b3",
        "         not b1: Overloaded",
        "         not b4: MaxTopics: 9 topics",
        "  place  t/n/0x80000000_0xc0000000  -> nobody  out of no candidates",
        (
            "  split  t/n/0xc0000000_0xffffffff  at 0xd0000000, 0xe0000000  Bandwidth: "
            "bytesPerSecond 200000000, limit 104857600"
        ),
        "  stay   b3: NotOverloaded: usage 0.1",
    ]


def test_fields_of_the_log() -> None:
    """No nesting, so that a log can be searched by each number."""
    assert log_fields(PLAN.unloads[0], "bundle", "source", "destination", "reason") == {
        "bundle": "t/n/0x00000000_0x40000000",
        "source": "b1",
        "destination": None,
        "reason": "Overloaded",
        "why_usage": 0.91234567,
        "why_notTo": "b2: full",
    }


def test_records_of_the_history() -> None:
    """One for each part of the plan, with the numbers as texts."""
    records = [msgspec.to_builtins(record) for record in decisions(7, "b1", PLAN, epoch=2, cycle=3)]
    assert {
        (record["ts"], record["broker"], record["epoch"], record["cycle"], record["strategy"])
        for record in records
    } == {(7, "b1", 2, 3, "ThresholdShedder")}
    fields = ("action", "bundle", "what", "source", "destination", "reason", "why")
    assert [tuple(record[name] for name in fields) for record in records] == [
        (
            "unload",
            "t/n/0x00000000_0x40000000",
            None,
            "b1",
            None,
            "Overloaded",
            {"usage": "0.91234567", "notTo": "b2: full"},
        ),
        (
            "place",
            "t/n/0x40000000_0x80000000",
            None,
            None,
            "b2",
            "one of 2 equally good brokers, out of 4",
            {"b1": "Overloaded", "b4": "MaxTopics: 9 topics"},
        ),
        ("place", "t/n/0x80000000_0xc0000000", None, None, None, "no broker qualifies", {}),
        (
            "split",
            "t/n/0xc0000000_0xffffffff",
            None,
            None,
            None,
            "Bandwidth",
            {"bytesPerSecond": "200000000.0", "limit": "104857600.0"},
        ),
        ("skip", None, "b3", None, None, "NotOverloaded: usage 0.1", {}),
    ]
    assert [record["code"] for record in records] == [None] * 4 + ["NotOverloaded"]


def test_a_swap() -> None:
    """It is shown by the bundle that goes the other way, and recorded as two moves."""
    swap = Plan(
        "TransferShedder",
        unloads=(
            Unload("t/n/0x0", "b2", "b1", "Overloaded", swap="t/n/0x8"),
            Unload("t/n/0x8", "b1", "b2", "Overloaded", swap="t/n/0x8"),
        ),
    )
    shown = msgspec.to_builtins(PlanShown.of(swap))["unloads"]
    assert [move["swap"] for move in shown] == ["t/n/0x8", "t/n/0x8"]
    records = decisions(7, "b1", swap, epoch=2, cycle=3)
    assert [(record.bundle, record.source) for record in records] == [
        ("t/n/0x0", "b2"),
        ("t/n/0x8", "b1"),
    ]


def test_a_cycle_records_a_limited_number_of_skips() -> None:
    """The first ones."""
    plan = Plan(
        "ThresholdShedder",
        skipped=tuple(Skip(str(number), "no") for number in range(SKIPS_MAX + 5)),
    )
    assert [record.what for record in decisions(7, "b1", plan, epoch=2, cycle=3)] == [
        str(number) for number in range(SKIPS_MAX)
    ]


def test_the_reason_of_a_placement_goes_with_the_brokers_that_were_rejected() -> None:
    """A broker is the only one only if no other was looked at."""
    assert [
        placement_reason(candidates, rejected)
        for candidates, rejected in (
            (["b1"], {}),
            (["b1"], {"b2": "full", "b3": "full"}),
            (["b1", "b2"], {}),
            (["b1", "b2"], {"b3": "full"}),
            ([], {"b1": "full"}),
        )
    ] == [
        "the only broker",
        "the one of 3 brokers that was not rejected",
        "one of 2 equally good brokers",
        "one of 2 equally good brokers, out of 3",
        "no broker qualifies",
    ]


def test_a_split_and_its_outcome() -> None:
    """Under way; done, with the bundles that replaced it; and not split, with the reason. The
    history has the same.
    """
    (split,) = PLAN.splits
    halves = ["t/n/0xc0000000_0xd0000000", "t/n/0xd0000000_0xffffffff"]
    plain = {**DOCUMENT["splits"][0], "broker": "b1"}  # type: ignore[dict-item]
    for end, state, outcome in (
        (None, "running", None),
        (
            split_end(halves),
            "done",
            {
                "text": "split into 0xc0000000_0xd0000000, 0xd0000000_0xffffffff",
                "children": halves,
            },
        ),
        (SplitEnd((), "b1 is gone"), "failed", {"text": "b1 is gone", "children": []}),
    ):
        ended = replace(split, end=end)
        shown = msgspec.to_builtins(of_split(ended, "b1", **HEAD))
        assert shown == {**HEAD, **plain, "state": state, "outcome": outcome}
        (record,) = decisions(7, "b1", Plan("S", splits=(ended,)), epoch=2, cycle=3)
        assert (record.state, record.outcome) == (state, outcome and outcome["text"])
    assert split_end([]) == SplitEnd((), "its owner found no boundary that divides its topics")
