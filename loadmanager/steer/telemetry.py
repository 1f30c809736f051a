"""Metrics of one cluster that the daemon watches."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.engine.moves.breaker import spread
from loadmanager.engine.moves.move import ENDED, Author
from loadmanager.kit.telemetry import Sample, counter, gauge
from loadmanager.leader.decision_telemetry import usage_samples
from loadmanager.steer.settings import MODES
from loadmanager.steer.work import FleetWork

BROKERS = gauge("loadmanager_fleet_brokers", "Brokers of the watched cluster, by state", "state")
AGE = gauge(
    "loadmanager_fleet_report_age_seconds", "Age of the oldest report that the view has of a broker"
)
READ_SECONDS = gauge(
    "loadmanager_fleet_read_seconds", "Duration of the last reading of the cluster"
)
REQUESTS = counter("loadmanager_fleet_requests", "Requests to the watched cluster's admin API")
REQUEST_FAILURES = counter(
    "loadmanager_fleet_request_failures", "Requests to the watched cluster that failed"
)
BYTES = counter("loadmanager_fleet_bytes_read", "Bytes of the watched cluster's answers")
MODE = gauge("loadmanager_fleet_mode", "1 for the daemon's mode, else 0", "mode")
PROPOSED = gauge(
    "loadmanager_fleet_proposed_moves", "Moves in the last plan of a strategy", "strategy"
)
IMBALANCE = gauge(
    "loadmanager_fleet_imbalance", "Standard deviation of the brokers' messages/s in and out"
)
HOLDING = gauge("loadmanager_fleet_held", "1 while nothing is decided or moved; the log says why")
BREAKER = counter("loadmanager_fleet_breaker_openings", "Times that the circuit breaker opened")
PULSAR_BALANCES = gauge(
    "loadmanager_fleet_pulsar_balances", "1 while Pulsar's own shedding or splitting is on"
)
MOVES = counter(
    "loadmanager_fleet_moves",
    "Moves that have ended, by who wanted them and by how they ended",
    "author",
    "state",
)


def samples(work: FleetWork) -> Iterator[Sample]:
    picture, cost = work.picture, work.watching.reader.cost
    yield BROKERS.sample(len(picture.registered), "registered")
    yield BROKERS.sample(len(picture.answering), "answering")
    times_ms = [report.last_update for report in picture.reports.values()]
    if times_ms:
        yield AGE.sample(max(0.0, work.load_manager.term.clock.now_ms() - min(times_ms)) / 1000)
    yield READ_SECONDS.sample(work.watching.read_s)
    yield REQUESTS.sample(cost.requests)
    yield REQUEST_FAILURES.sample(cost.failures)
    yield BYTES.sample(cost.bytes_read)
    for mode in MODES:
        yield MODE.sample(work.settings.value.mode == mode, mode)
    if work.advice.plan is not None:
        yield PROPOSED.sample(len(work.advice.plan.unloads), work.advice.plan.strategy)
    for shadow in work.advice.shadows:
        if shadow.plan is not None and shadow.plan.strategy != (
            work.advice.plan and work.advice.plan.strategy
        ):
            yield PROPOSED.sample(len(shadow.plan.unloads), shadow.plan.strategy)
    rates = {broker: picture.reports[broker].rate for broker in sorted(picture.reports)}
    yield IMBALANCE.sample(spread(rates))
    yield from usage_samples(work.load_manager.usage)
    yield HOLDING.sample(work.hold.shown_reason() is not None)
    yield BREAKER.sample(work.hold.breaker.opened)
    yield PULSAR_BALANCES.sample(bool(picture.settings and picture.own_balancing()))
    if work.canary is not None:
        yield from work.canary.samples()
    for author in Author:
        for state in sorted(ENDED, key=lambda state: state.value):
            times = work.recorder.counts.moves[author.value, state.value]
            yield MOVES.sample(times, author.value, state.value)
