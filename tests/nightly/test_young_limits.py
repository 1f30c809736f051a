"""A limit that is younger than its first sample is judged by the time that it stood: in the table,
in the plot and by the card.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from nightly.nightly import ON_SPARK, analyze, report, rounded

from bench import _history as history
from bench._made_days import Behaviour, Cluster

NAME = "persistent://t/n00/a publish"
FULL = {"held": 50, "waitedMs": 60_000.0}


def analysed(folder: Path, records: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """The report of ten minutes with these records of a limit, one a minute."""
    cluster = Cluster(folder / "history", brokers=1, spaces=1, every=1)
    cluster.loads(0, Behaviour(begin=600, end=610))
    for minute, fields in records:
        cluster.limit(0, 0, minute, NAME, "topic", **FULL | fields)
    cluster.write()
    assert analyze(folder) == 0
    return report(folder)


def row(told: dict[str, Any]) -> dict[str, Any]:
    """The table's row."""
    (limit,) = told["tables"]["throttling"]["rows"]
    assert isinstance(limit, dict)
    return limit


def heights(folder: Path) -> set[str]:
    """At which heights the plot of what the limits let through has a line."""
    page = (folder / f"analysis/cluster={history.CLUSTER}/reports/{history.DATE}.html").read_text()
    figure = page[page.index('id="plot-delivered"') :]
    (path,) = re.findall(r'<path d="([^"]*)" class="line', figure[: figure.index("</figure>")])
    return set(re.findall(r"[ML][\d.]+ ([\d.]+)", path))


def delivered(rate: float, **fields: Any) -> dict[str, Any]:
    """A record of a limit of 20 messages/s."""
    return {"configuredMessagesPerS": 20.0, "deliveredMessagesPerS": rate, **fields}


@pytest.mark.parametrize("stood_ms", [15_600, None])
def test_the_first_sample_counts_for_as_long_as_the_limit_stood(
    tmp_path: Path, stood_ms: int | None
) -> None:
    """It stood for 15.6 of 60 s, and let all of itself through. A version before did not say for
    how long: its first sample is left out.
    """
    first = {} if stood_ms is None else {"stoodMs": stood_ms}
    later = {} if stood_ms is None else {"stoodMs": 60_000}
    records = [(601, delivered(5.2, **first))]
    records += [(minute, delivered(20.0, **later)) for minute in range(602, 606)]
    limit = row(told := analysed(tmp_path, records))
    assert limit["configured_messages_per_s"] == 20.0
    assert limit["delivered_messages_per_s"] == pytest.approx(20.0)
    assert limit["delivered_over_configured"] == pytest.approx(1.0)
    assert limit["held_share"] == 1.0
    assert not any("of what is configured" in card["title"] for card in told["findings"])
    assert len(heights(tmp_path)) == 1


def test_a_limit_that_was_changed_is_told_by_what_it_is_at_last(tmp_path: Path) -> None:
    """50 messages/s, then 20, in the middle of a sample: of both nobody knows what was whose."""
    before = {"configuredMessagesPerS": 50.0, "deliveredMessagesPerS": 50.0, "stoodMs": 60_000}
    records: list[tuple[int, dict[str, Any]]] = [(minute, before) for minute in (601, 602, 603)]
    records += [(604, delivered(35.0, stoodMs=30_000))]
    records += [(minute, delivered(20.0, stoodMs=60_000)) for minute in (605, 606)]
    limit = row(analysed(tmp_path, records))
    assert limit["configured_messages_per_s"] == 20.0
    assert limit["delivered_messages_per_s"] == pytest.approx(20.0)
    assert limit["delivered_over_configured"] == pytest.approx(1.0)
    assert len(heights(tmp_path)) == 1


def test_a_limit_that_stood_for_a_moment_only(tmp_path: Path) -> None:
    """Of 50 messages/s, for 12.8 s, with a demand of 60: by then it let 50 through."""
    fields = {"configuredMessagesPerS": 50.0, "deliveredMessagesPerS": 50 * 12.8 / 60}
    limit = row(analysed(tmp_path, [(601, {**fields, "stoodMs": 12_800})]))
    assert limit["delivered_messages_per_s"] == pytest.approx(50.0)
    assert limit["hours_held"] == pytest.approx(12.8 / 3600)
    assert limit["held_last_ts"] - limit["held_first_ts"] == 12_800
    assert limit["held_share"] == 1.0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(tmp_path: Path) -> None:
    """Windows are Spark's, too."""
    records = [(601, delivered(5.2, stoodMs=15_600))]
    records += [(minute, delivered(20.0, stoodMs=60_000)) for minute in range(602, 606)]
    here = analysed(tmp_path, records)
    assert analyze(tmp_path, *ON_SPARK) == 0
    assert rounded(row(report(tmp_path))) == rounded(row(here))
