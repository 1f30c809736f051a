"""A day of what is easily misread: flapping on the spot, lost brokers, bundles that nobody owned
for a while, limits that each broker has for itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nightly import nightly
from nightly.nightly import rows

from bench import _history as history

ON_THE_SPOT, LATE_AT_NIGHT, LOST, STOPPED, UNNAMED, SKEWED, STALLED, REQUESTED = (
    f"t/{name}/0x00000000_0xffffffff"
    for name in ("spot", "night", "lost", "stop", "un", "skew", "stalled", "requested")
)
RESTARTED, IDLE = "t/restarted/0x00000000_0xffffffff", "t/idle/0x00000000_0xffffffff"
PARENT, CHILDREN = (
    "t/split/0x00000000_0xffffffff",
    ("t/split/0x00000000_0x80000000", "t/split/0x80000000_0xffffffff"),
)
CRASHED, FORGOTTEN = "t/crash/0x00000000_0x80000000", "t/crash/0x80000000_0xffffffff"
CRASH_MINUTE = 300
GRANDCHILDREN = ("t/split/0x00000000_0x40000000", "t/split/0x40000000_0x80000000")
SECOND = 1 / 60
"""In minutes, as the history's helpers count."""


def acquired(minute: float, broker: str, bundle: str) -> list[str]:
    """A broker comes to own a bundle."""
    return [
        history.step(minute, broker, bundle, "Free", "Assigning", "lookup"),
        history.step(minute, broker, bundle, "Assigning", "Owned", "lookup"),
    ]


def released(
    minute: float, broker: str, bundle: str, cause: str = "leader", pause_ms: float = 10.0
) -> list[str]:
    """A broker gives a bundle up, to nobody by name."""
    return [
        history.step(minute, broker, bundle, "Owned", "Releasing", f"by {cause}", cause=cause),
        history.step(
            minute + pause_ms / 60_000,
            broker,
            bundle,
            "Releasing",
            "Free",
            f"by {cause}",
            cause=cause,
            pauseMs=pause_ms,
        ),
    ]


def steps() -> list[str]:
    """The brokers' ownership records."""
    lines = acquired(1, "b0", ON_THE_SPOT)
    for number in range(3):
        lines += [
            *released(10 + number, "b0", ON_THE_SPOT),
            *acquired(10 + number + SECOND, "b0", ON_THE_SPOT),
        ]
    lines += acquired(3, "b1", LATE_AT_NIGHT)  # b1 had released it five minutes before midnight
    lines += [*acquired(1, "b0", LOST), *acquired(100, "b1", LOST)]  # no release: b0 died
    lines += [
        *acquired(1, "b0", STOPPED),
        *released(110, "b0", STOPPED, "stop"),
        *acquired(110 + SECOND, "b1", STOPPED),
    ]
    lines += [
        *acquired(1, "b0", UNNAMED),
        *released(120, "b0", UNNAMED),
        *acquired(120 + 48.01 * SECOND, "b1", UNNAMED),
    ]
    # The destination's clock is 50 ms behind, and b0 had owned the bundle since before the day.
    lines += [
        *released(130, "b0", SKEWED, pause_ms=20),
        *acquired(130 - 0.05 * SECOND, "b1", SKEWED),
    ]
    lines += [*released(140, "b0", RESTARTED, "stop"), *acquired(141, "b0", RESTARTED)]
    # b0 stalls, and records the end of the release after b1 records the acquisition
    lines += [
        *acquired(1, "b0", STALLED),
        *released(160, "b0", STALLED, pause_ms=8400),
        *acquired(160 + 5 * SECOND, "b1", STALLED),
    ]
    lines += [
        *acquired(1, "b0", REQUESTED),
        *released(170, "b0", REQUESTED, "operator"),
        *acquired(170 + SECOND, "b1", REQUESTED),
    ]
    # nobody looked it up for five minutes
    lines += [*released(150, "b0", IDLE), *acquired(155, "b1", IDLE)]
    for minute, parent, children in ((200, PARENT, CHILDREN), (300, CHILDREN[0], GRANDCHILDREN)):
        lines += [
            history.step(minute, "b0", child, "Free", "Owned", "split", parent=parent)
            for child in children
        ]
    return lines


def of_a_broker_that_crashes(root: Path) -> None:
    """b2 has two bundles since before the day, and dies; only their loads say that it had them."""
    minutes = range(CRASH_MINUTE + 1)
    loads = [history.broker_load(minute, "b2", 0.3, cpu=float(minute % 50)) for minute in minutes]
    history.write(root, "broker_load", "b2", loads)
    bundles = [
        history.bundle_load(minute, "b2", bundle, 50.0)
        for minute in minutes
        for bundle in (CRASHED, FORGOTTEN)
    ]
    history.write(root, "bundle_load", "b2", bundles)
    history.write(root, "ownership", "b1", acquired(CRASH_MINUTE + 1.5, "b1", CRASHED))


def of_a_nic_that_lies(root: Path) -> None:
    """b3's inbound NIC shows 94 % from minute 200 on, to the last digit, whatever comes."""
    lines = []
    for minute in range(600):
        lies = minute >= 200
        line = history.broker_load(
            minute, "b3", 0.94 if lies else 0.3, rate=10.0 + minute % 7, cpu=30 + minute % 50 / 100
        )
        record = json.loads(line)
        if lies:
            record["bandwidthIn"] = {"usage": 9_400_000.0, "limit": 1e7}
        lines.append(json.dumps(record))
    history.write(root, "broker_load", "b3", lines)


def limits() -> list[str]:
    """b0's own limit holds clients all day, b1's never; a topic's limit holds somebody for 0.9 s of
    each minute, another one each of many messages for a moment.
    """
    lines = []
    for minute in range(600):
        common = {
            "intervalMs": 60_000,
            "configuredMessagesPerS": 100.0,
            "configuredBytesPerS": -1.0,
            "deliveredBytesPerS": 0.0,
        }
        for broker, queue in (("b0", 3), ("b1", 0)):
            fields = {
                "level": "broker",
                "limit": "broker publish",
                "deliveredMessagesPerS": 100.0 if queue else 5.0,
                "queueLength": queue,
            }
            lines.append(history.record({**common, **fields}, minute, broker))
        rare = {
            "level": "topic",
            "limit": "persistent://t/a/rare publish",
            "deliveredMessagesPerS": 3.0,
            "held": 1,
            "waitedMs": 900.0,
        }
        lines.append(history.record({**common, **rare}, minute, "b0"))
        moments = {
            "level": "topic",
            "limit": "persistent://t/a/moments publish",
            "deliveredMessagesPerS": 33.0,
            "held": 1_000,
            "waitedMs": 14_985.0,
            "queueLength": 1,
        }
        lines.append(history.record({**common, **moments}, minute, "b0"))
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the day is analysed."""
    folder = tmp_path_factory.mktemp("misreadings")
    root = folder / "history"
    history.write(
        root, "broker_load", "b0", [history.broker_load(-10, "b0", 0.3)], date="2026-11-19"
    )
    history.write(root, "ownership", "b1", released(-5, "b1", LATE_AT_NIGHT), date="2026-11-19")
    for broker in ("b0", "b1"):
        spikes = [
            history.broker_load(
                minute, broker, 0.99 if minute == 77 else 0.3, cpu=float(minute % 50)
            )
            for minute in range(600)
        ]
        history.write(root, "broker_load", broker, spikes)
    of_a_broker_that_crashes(root)
    of_a_nic_that_lies(root)
    history.write(root, "ownership", "b0", steps())
    history.write(root, "throttle", "b0", limits())
    term = {"of": "b1", "event": "leads", "epoch": 99}
    history.write(root, "member", "b1", [history.record(term, 600, "b1")])
    loads = [
        history.bundle_load(minute, "b0", "t/one/0x10000000_0x20000000", 5000.0, topics=1)
        for minute in range(600)
    ]
    # named by nobody we know
    loads += [
        history.bundle_load(1, "b0", bundle, 1.0)
        for bundle in ("t/n/full", "", "persistent://a/b/c")
    ]
    loads += [
        history.bundle_load(minute, "b0", bundle, 100.0)
        for minute in range(301, 600)
        for bundle in (CHILDREN[1], *GRANDCHILDREN)
    ]
    history.write(root, "bundle_load", "b0", loads)
    history.write(
        root,
        "topic_load",
        "b0",
        [
            history.topic_load(m, "b0", "persistent://t/one/x", "t/one/0x10000000_0x20000000", 5e3)
            for m in range(600)
        ],
    )
    for date in ("2026-11-19", history.DATE):
        assert nightly.analyze(folder, "--history", root.as_uri(), date=date) == 0
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """The day's JSON, after that of the day before."""
    return nightly.report(folder)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(folder: Path) -> None:
    """One code of the questions, two engines."""
    nightly.the_same_on_spark(folder, "2026-11-19")
    nightly.the_same_on_spark(folder)


def test_flapping_on_the_spot_and_over_midnight(report: dict[str, Any]) -> None:
    """A bundle that the same broker took back at once has returned, and so has one that comes back
    after midnight.
    """
    found = {
        bundle: (row["moves"], row["returns"])
        for bundle, row in rows(report, "flapping", "bundle").items()
    }
    assert (found[ON_THE_SPOT], found[LATE_AT_NIGHT]) == ((0, 3), (0, 1))


def test_moves_that_nobody_chose_are_not_judged(report: dict[str, Any]) -> None:
    """A lost broker and one that stops: forced, with the reason, and no verdict."""
    found = rows(report, "moves", "bundle")
    for bundle, cause, reason in (
        (LOST, "loss", "its broker was lost"),
        (STOPPED, "stop", "by stop"),
    ):
        row = found[bundle]
        assert (row["forced"], row["worth_it"]) == (True, None)
        assert (row["cause"], row["reason"]) == (cause, reason)
    assert ON_THE_SPOT not in found
    idle, stalled = found[IDLE], found[STALLED]
    assert (idle["forced"], idle["cause"], idle["pause_ms"]) == (False, "leader", None)
    assert (stalled["forced"], stalled["cause"], stalled["pause_ms"]) == (False, "leader", 8400)
    assert RESTARTED not in rows(report, "flapping", "bundle")


def test_an_operators_move_does_not_count_against_the_leader(report: dict[str, Any]) -> None:
    """It is in the table with its cause, and not among the moves that did not help; neither is a
    move beside the bundles of a broker that stopped.
    """
    assert rows(report, "moves", "bundle")[REQUESTED]["cause"] == "operator"
    assert "3 of 3 moves did not help" in [finding["title"] for finding in report["findings"]]


def test_a_leader_that_decided_nothing(report: dict[str, Any]) -> None:
    """It said that it leads."""
    assert rows(report, "leaders", "epoch")[99]["broker"] == "b1"


def test_a_bundle_without_an_owner(report: dict[str, Any]) -> None:
    """Where no destination is named, the pause lasts until somebody has the bundle; clocks that
    differ do not hide a move.
    """
    found = rows(report, "moves", "bundle")
    assert found[UNNAMED]["pause_ms"] == pytest.approx(48_010, abs=20)
    assert (found[SKEWED]["source"], found[SKEWED]["destination"], found[SKEWED]["pause_ms"]) == (
        "b0",
        "b1",
        20.0,
    )
    assert any(
        "without an owner for more than a second" in finding["title"]
        for finding in report["findings"]
    )


def test_a_child_that_was_split_again(report: dict[str, Any]) -> None:
    """What its children carried is what it carried."""
    row = rows(report, "splits", "parent")[PARENT]
    assert (row["busiest_share"], row["useful"]) == (pytest.approx(2 / 3), True)


def test_a_crash_is_named_with_who_had_no_owner(report: dict[str, Any]) -> None:
    """Whose bundles, for how long, and which of them nobody took: at the top of the list."""
    row = rows(report, "outages", "broker")["b2"]
    assert (row["how"], row["ts"]) == ("crash", history.START_MS + CRASH_MINUTE * 60_000)
    assert (row["back_ts"], row["bundles"], row["never_owned"]) == (None, 2, 1)
    assert (row["unowned_s_max"], row["worst_bundle"]) == (90.0, CRASHED)
    assert row["namespaces"] == ["t/crash"]
    first = report["findings"][0]
    assert first["title"] == "b2 crashed at 05:00: 2 bundles without an owner"
    assert report["headline"].startswith(f"Not a good day: {first['title']}.")
    move = rows(report, "moves", "bundle")[CRASHED]
    assert (move["source"], move["cause"], move["worth_it"]) == ("b2", "loss", None)
    told = [(event["kind"], event["lane"]) for event in report["timeline"]]
    assert ("bad", "brokers") in told


def test_a_nic_that_lies_is_no_overload_and_poisons_nothing(report: dict[str, Any]) -> None:
    """It is named as a sensor; the broker's hours over the threshold and the imbalance are not."""
    (sensor,) = report["tables"]["sensors"]["rows"]
    assert (sensor["broker"], sensor["sensor"], sensor["fault"], sensor["poisoned"]) == (
        "b3",
        "bandwidthIn",
        "one value",
        True,
    )
    assert sensor["hours"] == pytest.approx(400 / 60)
    usage = rows(report, "broker_usage", "broker")["b3"]
    assert usage["hours_over"] == 0
    assert usage["max"] < 0.31
    assert max(row["max"] for row in report["tables"]["imbalance"]["rows"]) < 0.5
    assert not any(finding["question"] == "imbalance" for finding in report["findings"])


def test_limits_of_each_broker(report: dict[str, Any]) -> None:
    """The broker that held its clients is named. A second's wait in a minute is not a minute's,
    nor are a thousand short ones, though somebody waits when the minute ends.
    """
    found = {
        (row["limit"], row["broker"]): row["held_share"]
        for row in report["tables"]["throttling"]["rows"]
    }
    assert (found["broker publish", "b0"], found["broker publish", "b1"]) == (1.0, 0.0)
    assert found["persistent://t/a/rare publish", None] == pytest.approx(0.015)
    assert found["persistent://t/a/moments publish", None] == pytest.approx(0.25)
    titles = [
        finding["title"] for finding in report["findings"] if finding["question"] == "throttling"
    ]
    assert titles == ["broker publish of b0 held clients back in 100% of the time"]


def test_what_needs_nobody_is_not_found(report: dict[str, Any]) -> None:
    """One minute's peak; a namespace of sixteen bundles of which one has the only topic."""
    assert rows(report, "namespaces", "namespace")["t/one"]["cut_into"] == 16
    assert not any(finding["question"] == "broker_usage" for finding in report["findings"])
    assert not any("t/one has" in finding["title"] for finding in report["findings"])
