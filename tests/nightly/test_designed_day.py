"""The job on a day whose answers are known: every table comes out exactly, twice."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from nightly.nightly import analyze, report, the_same_on_spark

from bench import _history as history


class Analysed:
    """The results of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history, self.output = folder / "history", folder / "analysis"
        history.designed(self.history)

    @property
    def report(self) -> dict[str, Any]:
        """The JSON."""
        return report(self.folder)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of a table, as the report shows them."""
        found: list[dict[str, Any]] = self.report["tables"][table]["rows"]
        return found


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """One run."""
    day = Analysed(tmp_path_factory.mktemp("designed"))
    assert analyze(day.folder) == 0
    return day


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(analysed: Analysed) -> None:
    """One code of the questions, two engines."""
    the_same_on_spark(analysed.folder)


def test_percentiles_and_hours(analysed: Analysed) -> None:
    """b0 had 0.00 to 0.49 and 0.51 to 1.00 for eleven minutes each, and 0.50 for 275."""
    (row,) = [row for row in analysed.rows("broker_usage") if row["broker"] == "b0"]
    assert (row["samples"], row["p50"], row["p95"], row["p99"], row["max"]) == (
        1375,
        0.5,
        0.94,
        0.99,
        1.0,
    )
    assert row["mean"] == pytest.approx(0.5)
    assert row["hours_over"] == pytest.approx(15 * 11 / 60)


def test_imbalance(analysed: Analysed) -> None:
    """0.2, 0.5 and 0.8 until the useful move; all alike afterwards."""
    rows = analysed.rows("imbalance")
    assert len(rows) == history.MINUTES // 5
    for row in rows:
        before = row["bucket"] < history.START_MS + history.USEFUL_MINUTE * 60_000
        assert row["std"] == pytest.approx(math.sqrt(0.18 / 3) if before else 0.0, abs=1e-9)
        assert row["gini"] == pytest.approx(
            2 * (0.2 + 2 * 0.5 + 3 * 0.8) / (3 * 1.5) - 4 / 3 if before else 0.0, abs=1e-9
        )
        assert row["max_over_mean"] == pytest.approx(1.6 if before else 1.0)


def test_the_planted_hot_bundle(analysed: Analysed) -> None:
    """Half of all bytes, and found first."""
    first, second = analysed.rows("hot_bundles")[:2]
    assert (first["bundle"], first["share"], first["throughput_p95"]) == (history.HOT, 0.5, 1000.0)
    assert (second["bundle"], second["share"]) == (history.COLD, 0.2)
    causes = [
        (finding["question"], finding["title"])
        for finding in analysed.report["findings"]
        if f"{history.HOT} carried 50% of all traffic." in finding["effects"]
    ]
    assert causes == [("namespaces", "t/hot has 2 bundles and wants 8")]


def test_flapping(analysed: Analysed) -> None:
    """Four moves, two of them back within half an hour; the fourth came back after
    fifty minutes.
    """
    rows = {row["bundle"]: (row["moves"], row["returns"]) for row in analysed.rows("flapping")}
    assert rows == {
        history.FLAPPING: (4, 2),
        history.MOVED_USEFUL: (1, 0),
        history.MOVED_USELESS: (1, 0),
    }


def test_the_planted_useless_move(analysed: Analysed) -> None:
    """One move evened the load, the others did nothing; the pauses are those of the brokers."""
    rows = {(row["bundle"], row["ts"]): row for row in analysed.rows("moves")}
    assert len(rows) == 6
    (useful,) = [row for row in rows.values() if row["worth_it"]]
    assert (useful["bundle"], useful["source"], useful["destination"], useful["pause_ms"]) == (
        history.MOVED_USEFUL,
        "b2",
        "b1",
        20.0,
    )
    assert (useful["gain"], useful["took"]) == (pytest.approx(0.3), pytest.approx(0.3))
    (useless,) = [row for row in rows.values() if row["bundle"] == history.MOVED_USELESS]
    assert (useless["worth_it"], useless["pause_ms"]) == (False, 2500.0)
    titles = [finding["title"] for finding in analysed.report["findings"]]
    assert "5 of 6 moves did not help" in titles
    assert "1 move left a bundle without an owner for more than a second" in titles


def test_splits(analysed: Analysed) -> None:
    """One child of one split had nothing to carry."""
    rows = {
        row["parent"]: (row["busiest_share"], row["useful"], len(row["children"]))
        for row in analysed.rows("splits")
    }
    assert rows == {
        history.SPLIT_USELESS: (1.0, False, 2),
        history.SPLIT_USEFUL: (pytest.approx(0.6), True, 2),
    }


def test_the_planted_starving_topic(analysed: Analysed) -> None:
    """Held in three of four minutes, and it got what is configured."""
    rows = {row["limit"]: row for row in analysed.rows("throttling")}
    starving = rows[history.STARVING]
    assert starving["held_share"] == pytest.approx(1032 / 1375)
    assert (starving["delivered_over_configured"], starving["waited_s"]) == (1.0, 1032 * 60)
    assert rows["persistent://t/hot/free"]["held_share"] == 0.0
    assert analysed.report["findings"][0]["title"].startswith(
        f"{history.STARVING} held clients back"
    )


def test_the_new_broker_that_waited(analysed: Analysed) -> None:
    """It came at ten and got its first load ninety minutes later."""
    rows = {
        row["broker"]: (row["new"], row["waited_minutes"]) for row in analysed.rows("idle_brokers")
    }
    assert rows["b3"] == (True, 90.0)
    assert rows["b0"] == (False, 0.0)


def test_sensors(analysed: Analysed) -> None:
    """A NIC whose speed nobody knew for two hours, and a CPU that never changed."""
    rows = {
        (row["broker"], row["sensor"], row["fault"]): row["hours"]
        for row in analysed.rows("sensors")
    }
    assert rows == {
        ("b2", "nicSpeed", "not trusted by the broker"): 2.0,
        ("b1", "cpu", "one value"): pytest.approx(1375 / 60),
    }


def test_cuts_that_would_have_served_better(analysed: Analysed) -> None:
    """Eight equal topics: a cut between each two in order of their hash."""
    rows = {row["namespace"]: row for row in analysed.rows("namespaces")}
    hot = rows["t/hot"]
    assert (hot["bundles"], hot["wanted"], hot["topics"], hot["largest_share_then"]) == (
        2,
        12,
        8,
        0.125,
    )
    hashes = [zlib.crc32(topic.encode()) for topic in history.topics_of_hot()]
    cuts = [int(text, 0) for text in hot["cuts"]]
    assert len(cuts) == 7
    for low, cut, high in zip(hashes, cuts, hashes[1:], strict=False):
        assert low < cut <= high


def test_typed_parquet(analysed: Analysed) -> None:
    """Every kind is there, typed, below its date; rows are as many as lines."""
    folder = analysed.output / f"cluster={history.CLUSTER}/records"
    loads = pq.read_table(folder / f"kind=broker_load/date={history.DATE}")
    assert loads.num_rows == 3 * history.MINUTES + history.MINUTES - history.NEW_BROKER_MINUTE
    assert str(loads.schema.field("ts").type) == "int64"
    assert str(loads.schema.field("cpu").type) == "struct<usage: double, limit: double>"


class Outside(HTMLParser):
    """Everything that a page loads or links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Attributes that name a place."""
        self.found += [
            f"{tag} {value}" for name, value in attrs if name in ("src", "href", "data", "action")
        ]


def test_the_page_needs_nothing_else(analysed: Analysed) -> None:
    """No hosts, no files; the plots and the findings are in it."""
    page = (analysed.output / f"cluster={history.CLUSTER}/reports/{history.DATE}.html").read_text()
    parser = Outside()
    parser.feed(page)
    assert all(place.startswith("a #") for place in parser.found)
    targets = {place[3:] for place in parser.found}
    assert all(f'id="{name}"' in page for name in targets)
    assert "url(" not in page
    assert "@import" not in page
    assert page.count('<svg viewBox="0 0 1000') == 6
    for finding in analysed.report["findings"]:
        assert finding["title"].split("://")[-1][:20] in page


CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_renders_it(analysed: Analysed, tmp_path: Path) -> None:
    """Headless Chromium draws the page as wide as a phone, and everything that is not in a
    scrolling box fits.
    """
    page = analysed.output / f"cluster={history.CLUSTER}/reports/{history.DATE}.html"
    probe = tmp_path / "probe.html"
    script = (
        "<script>document.title = document.documentElement.scrollWidth + ' of ' + "
        "window.innerWidth</script></body>"
    )
    probe.write_text(page.read_text().replace("</body>", script))
    shot = tmp_path / "shot.png"
    common = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=500,2000",
    ]
    subprocess.run(
        [*common, f"--screenshot={shot}", probe.as_uri()],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert shot.stat().st_size > 50_000
    drawn = subprocess.run(
        [*common, "--dump-dom", probe.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    match = re.search(r"<title>(\d+) of (\d+)</title>", drawn)
    assert match is not None
    assert int(match[1]) <= int(match[2])


def test_again(analysed: Analysed) -> None:
    """A second run has the same result, whatever a killed one left behind: Spark's temporary files,
    half of the records, half a table, half a report.
    """
    before = analysed.report
    cluster = analysed.output / f"cluster={history.CLUSTER}"
    tables = {
        path.name: pq.read_table(path).to_pylist()
        for path in sorted((cluster / "tables").iterdir())
    }
    records = cluster / f"records/kind=bundle_load/date={history.DATE}"
    (records / "_temporary/0").mkdir(parents=True)
    for path in [
        *records.glob("part-*"),
        *(cluster / "tables/moves").rglob("*.parquet"),
        cluster / f"reports/{history.DATE}.html",
    ]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    shutil.copytree(records, cluster / f"records/kind=throttle/date={history.DATE}/_temporary/0")
    shutil.rmtree(cluster / "tables/hot_bundles")
    assert analyze(analysed.folder) == 0
    assert analysed.report == before
    assert all(
        sorted(map(str, pq.read_table(cluster / "tables" / name).to_pylist()))
        == sorted(map(str, rows))
        for name, rows in tables.items()
    )
    assert not list(cluster.rglob("_temporary"))
    assert (cluster / f"reports/{history.DATE}.html").read_text().endswith("</html>")
