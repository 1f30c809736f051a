"""The page that Prometheus scrapes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from loadmanager.adapters.metrics.page import MetricsPage
from loadmanager.ports.telemetry import Sample, Telemetry


def _page(*samples: Sample) -> MetricsPage:
    return MetricsPage(Telemetry([lambda: samples]), cluster="c1", broker="b:1")


def _values(page: MetricsPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(page.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


COMMON = (("broker", "b:1"), ("cluster", "c1"))


def test_gauges_counters_and_common_labels() -> None:
    """Every sample carries cluster and broker; a counter ends in _total, a gauge does not."""
    values = _values(
        _page(
            Sample("pulsar_lb_cpu_usage", "CPU", 12.5, (("metric", "loadBalancing"),)),
            Sample(
                "pulsar_lb_unload_bundle", "Unloads", 3, (("metric", "bundleUnloading"),), "counter"
            ),
        )
    )
    assert values["pulsar_lb_cpu_usage", (*COMMON, ("metric", "loadBalancing"))] == 12.5
    assert values["pulsar_lb_unload_bundle_total", (*COMMON, ("metric", "bundleUnloading"))] == 3


def test_samples_of_one_name_may_differ_in_labels() -> None:
    """Labels belong to their own sample, whatever labels the first one had and in
    whatever order.
    """
    values = _values(
        _page(
            Sample("m", "M", 1),
            Sample("m", "M", 2, (("b", "y"), ("a", "x"))),
            Sample("m", "M", 3, (("a", "z"), ("b", "y"))),
        ),
    )
    assert values["m", COMMON] == 1
    assert values["m", (("a", "x"), ("b", "y"), *COMMON)] == 2
    assert values["m", (("a", "z"), ("b", "y"), *COMMON)] == 3


def test_summaries() -> None:
    """Quantiles, count and sum under one name."""
    values = _values(
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


def test_names_of_users_cannot_break_the_page() -> None:
    """Quotes, backslashes and line ends in a label come back as they were."""
    nasty = 'a"b\\c\nd{}'
    assert (
        _values(_page(Sample("m", "M", 1, (("bundle", nasty),))))[
            "m", (COMMON[0], ("bundle", nasty), COMMON[1])
        ]
        == 1
    )


def test_each_scrape_asks_again_and_brokers_do_not_meet() -> None:
    """Values are those of now; a second page in the process has its own samples and no clash of
    names.
    """
    value = [1.0]
    first = MetricsPage(
        Telemetry([lambda: [Sample("m", "M", value[0])]]), cluster="c1", broker="b:1"
    )
    second = MetricsPage(Telemetry(), cluster="c1", broker="b:2")
    assert _values(first)["m", COMMON] == 1
    value[0] = 2.0
    assert _values(first)["m", COMMON] == 2
    assert not [key for key in _values(second) if key[0] == "m"]


def test_process_metrics_are_there() -> None:
    """The usual names of a Python process, and the content type of the text format."""
    page = _page()
    names = {name for name, _ in _values(page)}
    assert {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "python_info",
    } <= names
    assert page.content_type.startswith("text/plain")
