"""Records of what brokers report."""

from __future__ import annotations

from loadmanager.engine.history.records import broker_load
from loadmanager.engine.load.reports import LocalBrokerData, ResourceUsage


def test_less_than_nothing_is_recorded_as_nothing() -> None:
    """A real Pulsar 4.0.4 reported -783 kbit/s sent: the record would be put aside as impossible,
    with the CPU in it.
    """
    report = LocalBrokerData(
        web_service_url="http://a",
        cpu=ResourceUsage(15.0, 22.0),
        bandwidth_out=ResourceUsage(-783.2, 1e7),
    )
    load = broker_load(1, "a", report, usage=0.68, interval_ms=60_000, faults=[])
    assert load.bandwidth_out == ResourceUsage(0.0, 1e7)
    assert load.cpu == report.cpu
