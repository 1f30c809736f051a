"""The page that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from loadmanager.kit.metrics.page import SLICE, MetricsPage
from loadmanager.kit.telemetry import Sample, Telemetry, counter, gauge
from loadmanager.member.move_pauses import Pauses


def _page(*samples: Sample) -> MetricsPage:
    return MetricsPage(Telemetry([lambda: samples]), cluster="c1", broker="b:1")


async def _values(page: MetricsPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, content_type = await page.render()
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


COMMON = (("broker", "b:1"), ("cluster", "c1"))


async def test_gauges_counters_and_common_labels() -> None:
    """Every sample carries cluster and broker; a counter ends in _total, a gauge does not."""
    values = await _values(
        _page(
            Sample("pulsar_lb_cpu_usage", "CPU", 12.5, (("metric", "loadBalancing"),)),
            Sample(
                "pulsar_lb_unload_bundle", "Unloads", 3, (("metric", "bundleUnloading"),), "counter"
            ),
        )
    )
    assert values["pulsar_lb_cpu_usage", (*COMMON, ("metric", "loadBalancing"))] == 12.5
    assert values["pulsar_lb_unload_bundle_total", (*COMMON, ("metric", "bundleUnloading"))] == 3


async def test_only_metrics_of_a_broker_name_it() -> None:
    """`cluster` is everywhere; `broker` is where the metric has it."""
    values = await _values(
        _page(gauge("all", "A").sample(1), gauge("cluster", "C", "x", broker=False).sample(2, "y"))
    )
    assert values["all", COMMON] == 1
    assert values["cluster", (("cluster", "c1"), ("x", "y"))] == 2


async def test_openmetrics_has_exemplars() -> None:
    """A strict reader takes the page, with the trace of the last pause of a bucket."""
    pauses = Pauses()
    pauses.add(3)
    pauses.add(40, f"00-{'ab' * 16}-{'cd' * 8}-01")
    page = MetricsPage(Telemetry([pauses.samples, lambda: [counter("c", 'C "x"').sample(2)]]))
    text, _ = await page.render("application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    families = {family.name: family for family in openmetrics_families(text.decode())}
    assert families["c"].samples[0].name == "c_total"
    buckets = families["loadmanager_move_pause_seconds"].samples
    traced = [(it.labels["le"], it.exemplar) for it in buckets if it.exemplar]
    assert [(bound, it.labels, it.value) for bound, it in traced] == [
        ("0.05", {"trace_id": "ab" * 16}, 0.04)
    ]
    assert b" # {" not in (await page.render())[0]


@pytest.mark.parametrize("kept", [False, True])
async def test_who_asks_meanwhile_gets_the_same_page(kept: bool) -> None:
    """One rendering at a time, whoever asks; who asks a moment later gets the same if it took long
    to make, and a new one after that.
    """
    rendered = 0

    def samples() -> Iterator[Sample]:
        nonlocal rendered
        rendered += 1
        began_s = time.monotonic()
        while kept and time.monotonic() < began_s + 0.2:
            pass  # it takes long, so that it is kept for 4 seconds
        yield from (gauge("long", "L", "n").sample(rendered, str(n)) for n in range(SLICE + 1))

    page = MetricsPage(
        Telemetry([samples]),
        cluster="c1",
        broker="b:1",
        kept_from_s=0.0 if kept else 3600.0,
        kept_max_s=10.0,
    )
    pages = [text for text, _ in await asyncio.gather(*(page.render() for _ in range(50)))]
    assert rendered == 1
    assert all(text is pages[0] for text in pages)
    if kept:
        assert (await page.render())[0] is pages[0]
        async with asyncio.timeout(60):
            while (await page.render())[0] is pages[0]:
                await asyncio.sleep(0.01)
    assert (await page.render())[0] != pages[0]


async def test_a_long_page_lets_the_broker_work() -> None:
    """Others run while it is rendered, and what changes meanwhile does not break it."""
    seen: list[float] = []

    def samples() -> Iterator[Sample]:
        for number in range(10 * SLICE):
            yield Sample("m", "M", number, (("number", str(number)),))
            seen.append(number)

    page = MetricsPage(Telemetry([samples]), cluster="c1", broker="b:1")
    rendering = asyncio.ensure_future(page.render())
    turns = 0
    while not rendering.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(seen) == 10 * SLICE
    assert turns >= 10


async def test_numbers_and_texts_are_those_of_prometheus() -> None:
    """Infinities, NaN and help texts with line ends are written as Prometheus reads them."""
    numbers = (math.inf, -math.inf, 1e300, 0.1)
    page = _page(*(Sample("m", "M\n\\", n, (("n", str(n)),)) for n in numbers))
    values = await _values(page)
    assert [values["m", (*COMMON, ("n", str(n)))] for n in numbers] == list(numbers)
    assert math.isnan((await _values(_page(Sample("m", "M", math.nan))))["m", COMMON])


async def test_samples_of_one_name_may_differ_in_labels() -> None:
    """Labels belong to their own sample, whatever labels the first one had and in
    whatever order.
    """
    values = await _values(
        _page(
            Sample("m", "M", 1),
            Sample("m", "M", 2, (("b", "y"), ("a", "x"))),
            Sample("m", "M", 3, (("a", "z"), ("b", "y"))),
        ),
    )
    assert values["m", COMMON] == 1
    assert values["m", (("a", "x"), ("b", "y"), *COMMON)] == 2
    assert values["m", (("a", "z"), ("b", "y"), *COMMON)] == 3


async def test_summaries() -> None:
    """Quantiles, count and sum under one name."""
    values = await _values(
        _page(
            Sample("s", "S", 0.25, (("quantile", "0.5"),), "summary"),
            Sample("s", "S", 4, (), "summary", "_count"),
            Sample("s", "S", 1.5, (), "summary", "_sum"),
        )
    )
    assert (
        values["s", (*COMMON, ("quantile", "0.5"))],
        values["s_count", COMMON],
        values["s_sum", COMMON],
    ) == (0.25, 4, 1.5)


async def test_names_of_users_cannot_break_the_page() -> None:
    """Quotes, backslashes and line ends in a label come back as they were."""
    nasty = 'a"b\\c\nd{}'
    assert (await _values(_page(Sample("m", "M", 1, (("bundle", nasty),)))))[
        "m", (COMMON[0], ("bundle", nasty), COMMON[1])
    ] == 1


async def test_each_scrape_asks_again_and_brokers_do_not_meet() -> None:
    """Values are those of now; a second page in the process has its own samples and no clash of
    names.
    """
    value = [1.0]
    first = MetricsPage(
        Telemetry([lambda: [Sample("m", "M", value[0])]]), cluster="c1", broker="b:1"
    )
    second = MetricsPage(Telemetry(), cluster="c1", broker="b:2")
    assert (await _values(first))["m", COMMON] == 1
    value[0] = 2.0
    assert (await _values(first))["m", COMMON] == 2
    assert not [key for key in await _values(second) if key[0] == "m"]


async def test_process_metrics_are_there() -> None:
    """The usual names of a Python process, beside ours."""
    page = _page()
    names = {name for name, _ in await _values(page)}
    assert {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "python_info",
    } <= names
