"""`loadmanager bill`, as a person asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import _history as history
from loadmanager import cli
from loadmanager.kit.units import DAY_MS

EDGES = [f"0x{number:02x}000000" for number in range(17)]
SPANS = [f"{low}_{high}" for low, high in zip(EDGES, EDGES[1:], strict=False)]
SHARES = ((6, 2), (2, 6), (1, 4), (7, 4))
"""Bundles of small and of large messages at each broker, which changes every half an hour."""
COSTS = {"small": 0.075, "large": 0.025}
"""Usage of a broker for a bundle: both tenants have as many bytes."""
MINUTES = 120
STORED = 3 * 10**9
"""Bytes that each bundle has stored; a tenant has 16."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two hours in which all traffic rises and falls."""
    left = {tenant: iter(SPANS) for tenant in COSTS}
    groups = [
        [f"{name}/n/{next(left[name])}" for name, number in zip(COSTS, share, strict=True)
         for _ in range(number)]
        for share in SHARES
    ]  # fmt: skip
    for at in range(len(groups)):
        loads, bundles, broker = [], [], f"b{at}"
        for minute in range(1, MINUTES + 1):
            part = 0.5 + minute % 60 / 60
            mine = groups[(at + minute // 30) % len(groups)]
            usage = part * sum(COSTS[bundle.partition("/")[0]] for bundle in mine)
            loads.append(history.broker_load(minute, broker, usage))
            bundles += [
                history.bundle_load(minute, broker, name, 1e6 * part, stored=STORED)
                for name in mine
            ]
        history.write(tmp_path, "broker_load", broker, loads)
        history.write(tmp_path, "bundle_load", broker, bundles)
    return tmp_path


def test_by_learned_cpu_and_not_by_bytes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alike in bytes: the one that needs more pays more, and both together pay all."""
    words = ["bill", str(root), "--price", "0.5", "--json"]
    assert cli.main(words) == 0
    (month,) = json.loads(capsys.readouterr().out).items()
    assert month[0] == history.DATE[:7]
    bill = month[1]
    assert bill["stored_of"] == "open topics"
    small, large = bill["tenants"]["small"], bill["tenants"]["large"]
    assert small["gigabytes"] == pytest.approx(large["gigabytes"])
    hours = small["broker_hours"] + large["broker_hours"]
    assert hours == pytest.approx(bill["broker_hours"]) == pytest.approx(8, abs=0.1)
    assert small["broker_hours"] > 2 * large["broker_hours"]
    assert small["amount"] == pytest.approx(0.5 * small["broker_hours"])
    for each in (small, large):
        assert each["stored_gigabyte_days"] == pytest.approx(16 * 3 * MINUTES / 1440, rel=0.02)
    assert cli.main([*words, "--set", "loadManagerStoredGigabyteMonthPrice=6"]) == 0
    ((_, priced),) = json.loads(capsys.readouterr().out).items()
    more = priced["tenants"]["small"]["amount"] - small["amount"]
    assert more == pytest.approx(6 / 30 * small["stored_gigabyte_days"])


def test_the_table_and_the_price_of_the_settings(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who used most comes first."""
    assert cli.main(["bill", str(root)]) == 0
    out = capsys.readouterr().out
    assert "AMOUNT" not in out
    assert "stored GB d is the least: what closed topics hold is not recorded" in out
    assert cli.main(["bill", str(root), "--set", "loadManagerBrokerHourPrice=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        history.DATE[:7],
        *("CORE", "H", "BROKER", "H", "PART", "%", "GB", "CLIENTS", "STORED", "GB", "D", "AMOUNT"),
    ]
    assert [line.split()[0] for line in lines[1:3]] == ["small", "large"]


HOUR = 60
"""Minutes."""


def test_what_leaders_counted_is_stored_by_closed_topics_too(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of what open topics had: also of a tenant that nobody uses, and once where two
    leaders counted.
    """
    counts = [
        ("b0", 30, "small/n", 8), ("b0", 90, "small/n", 8), ("b1", 100, "small/n", 8),
        ("b0", 30, "idle/old", 6), ("b0", 90, "idle/old", 6), ("b1", 100, "idle/old", 6),
        ("b0", 90, "large/new", 5),
    ]  # fmt: skip
    for broker in ("b0", "b1"):
        lines = [
            history.record(
                {
                    "namespace": space,
                    "intervalMs": HOUR * history.MINUTE_MS,
                    "topics": 3,
                    "storedBytes": gigabytes * 10**9,
                },
                minute,
                by,
            )
            for by, minute, space, gigabytes in counts
            if by == broker
        ]
        history.write(root, "stored", broker, lines)
    assert cli.main(["bill", str(root), "--json"]) == 0
    (bill,) = json.loads(capsys.readouterr().out).values()
    assert (bill["stored_of"], bill["open_only"]) == ("all topics", [])
    stored = {name: used["stored_gigabyte_days"] for name, used in bill["tenants"].items()}
    day = MINUTES / 1440
    expected = {"small": 8 * day, "idle": 6 * day, "large": 5 * day * 60 / 100}
    assert stored == pytest.approx(expected, rel=0.02)
    assert bill["tenants"]["idle"]["broker_hours"] == 0
    assert cli.main(["bill", str(root)]) == 0
    assert "is the least" not in capsys.readouterr().out


def test_a_day_that_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without traffic nobody knows who used what."""
    minutes = range(1, 41)
    loads = [history.broker_load(minute, "b0", 0.3) for minute in minutes]
    history.write(tmp_path, "broker_load", "b0", loads)
    bundle = f"t/n/{SPANS[0]}"
    bundles = [history.bundle_load(minute, "b0", bundle, 0.0) for minute in minutes]
    history.write(tmp_path, "bundle_load", "b0", bundles)
    assert cli.main(["bill", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"left out, for no traffic is recorded: {history.DATE}" in out
    assert "by traffic" not in out
    assert "points off" not in out  # there is no day that the model explains
    assert "is the least" not in out  # nothing stored is recorded


def a_day_that_explains_little(root: Path, after: int) -> str:
    """So many days after the first one, in which usage goes up and down by something else than
    traffic; returns its date.
    """
    date = history.layout.day_of(history.START_MS + after * DAY_MS)
    for at, tenant in enumerate(COSTS):
        loads, bundles, broker = [], [], f"b{at}"
        for minute in range(1, MINUTES + 1):
            time = after * DAY_MS / history.MINUTE_MS + minute
            usage = 0.2 if (minute // 7 + at) % 2 else 0.6
            loads.append(history.broker_load(time, broker, usage))
            bytes_s = (1 + at) * 1e6 * (0.5 + minute % 60 / 60)
            bundles.append(history.bundle_load(time, broker, f"{tenant}/n/{SPANS[0]}", bytes_s))
        history.write(root, "broker_load", broker, loads, date=date)
        history.write(root, "bundle_load", broker, bundles, date=date)
    return date


def test_a_day_of_which_the_model_explains_little(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is shared by bytes, and named; core hours are those of the other days."""
    dates = ["--date", history.DATE, "--date", a_day_that_explains_little(root, 1)]
    bills = []
    for words in (dates[:2], dates[2:], dates):
        assert cli.main(["bill", str(root), "--json", *words]) == 0
        bills += json.loads(capsys.readouterr().out).values()
    good, little, both = bills
    assert (good["by_traffic"], little["by_traffic"]) == ([], dates[3:])
    assert both["by_traffic"] == dates[3:]
    assert little["error"] is None
    assert both["error"] == good["error"]
    assert (both["days"], both["left_out"]) == (2, [])
    tenants = little["tenants"]
    assert tenants["large"]["broker_hours"] == pytest.approx(2 * tenants["small"]["broker_hours"])
    assert little["broker_hours"] == pytest.approx(4, abs=0.1)
    for name, used in both["tenants"].items():
        assert used["core_hours"] == good["tenants"][name]["core_hours"]
        hours = good["tenants"][name]["broker_hours"] + tenants[name]["broker_hours"]
        assert used["broker_hours"] == pytest.approx(hours)
    assert cli.main(["bill", str(root), *dates]) == 0
    out = capsys.readouterr().out
    assert f"the model explains less than half of the usage: {dates[3]}" in out
