"""The part of what traffic costs that goes by messages."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load import message_costs
from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.bundle_traffic import BundleRows
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.learned import NOTHING_LEARNED, Learned, sane
from loadmanager.engine.load.message_costs import MessageCosts
from loadmanager.engine.load.reports import NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.usage import Weights
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.load.usage_model import UsageModel
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.model import encoded

BROKERS, EACH = 8, 12


def learned(part: float, more: Array, beside: Array, noise: float, rounds: int = 100) -> float:
    """What is learned where this part of the cost goes by messages, and brokers use something else
    beside.
    """
    rng, at = np.random.default_rng(1), 0.0
    traffic = np.full(len(more), 0.45)
    for _ in range(rounds):
        shown = traffic + part * more + beside + rng.normal(0, noise, len(more))
        shown += traffic.mean() - shown.mean()
        at = message_costs.learn(at, shown - traffic - at * more, more, traffic + at * more)
    return at


@pytest.mark.parametrize("part", [0.0, 0.3, 0.8])
def test_the_part_is_found(part: float) -> None:
    """From brokers whose messages differ in size, with the noise of sensors."""
    more = np.random.default_rng(2).normal(0, 0.15, 20)
    assert learned(part, more, np.zeros(20), noise=0.03) == pytest.approx(part, abs=0.15)


@pytest.mark.parametrize("seed", range(20))
def test_another_process_beside_one_broker_is_no_message(seed: int) -> None:
    """Whatever the size of its messages."""
    rng = np.random.default_rng(seed)
    beside = np.zeros(12)
    beside[3] = 0.4
    assert learned(0.0, rng.normal(0, 0.05, 12), beside, noise=0.03) < 0.1


def test_messages_of_one_size_say_nothing() -> None:
    """What all brokers are off is due to something else."""
    nothing = np.zeros(5)
    assert message_costs.learn(0.0, np.array([0.2, -0.1, 0, 0, 0.1]), nothing, nothing + 0.5) == 0
    assert message_costs.learn(0.4, np.zeros(0), np.zeros(0), np.zeros(0)) == 0.4


@pytest.mark.parametrize("brokers", [2, 3])
def test_two_or_three_brokers_say_nothing(brokers: int) -> None:
    """Messages of some size explain whatever they show."""
    rng = np.random.default_rng(brokers)
    for _ in range(50):
        surprises, more = rng.normal(0, 0.1, (2, brokers))
        assert message_costs.learn(0.1, surprises, more, np.full(brokers, 0.5)) == 0.1


def test_chance_is_no_message() -> None:
    """The fewer brokers, the better messages explain what is due to anything else."""
    rng, parts = np.random.default_rng(5), []
    for brokers in [4, 5, 6, 8, 12] * 20:
        part, more = 0.0, rng.normal(0, 0.2, brokers)
        for _ in range(30):
            part = message_costs.learn(
                part, rng.normal(0, 0.1, brokers), more, np.full(brokers, 0.5)
            )
        parts.append(part)
    assert max(parts) < 0.25
    assert np.mean(parts) < 0.02


def test_rows() -> None:
    """Messages of half the size are twice as many; nothing is said of bundles without any."""
    averages = BundleAverages()
    stats = {
        "t/n/0x0_0x1": NamespaceBundleStats(msg_throughput_in=1000.0, msg_rate_in=1.0),
        "t/n/0x1_0x2": NamespaceBundleStats(msg_throughput_out=500.0, msg_rate_out=1.0),
        "t/n/0x2_0x3": NamespaceBundleStats(msg_throughput_in=500.0),
        "t/n/0x3_0x4": NamespaceBundleStats(msg_throughput_in=1.0, msg_rate_in=1e9),
    }
    averages.observe("b:1", stats)
    rows = averages.in_rows()
    at = [rows.row_of[name] for name in stats]
    assert rows.messages_more(slice(None), 1000.0, 99.0)[at] == pytest.approx([0.0, 1.0, 0.0, 99.0])
    assert not np.delete(rows.messages_more(slice(None), 1000.0, 99.0), at).any()
    assert rows.figures({"t/n/0x1_0x2": 3.0, "t/other/0x0_0x1": 2.0}, 1.0)[at].tolist() == [
        1.0,
        3.0,
        1.0,
        1.0,
    ]
    assert rows.mean_message == pytest.approx(2001 / (2 + 1e9))
    assert BundleRows({}, np.zeros(0), np.zeros(0)).mean_message == 0.0


def test_a_usual_message_changes_slowly() -> None:
    """And the first one counts whole; without messages it stays."""
    assert message_costs.usual_bytes(0.0, 0.0) == 0.0
    assert message_costs.usual_bytes(0.0, 800.0) == 800.0
    assert message_costs.usual_bytes(800.0, 0.0) == 800.0
    assert 800 < message_costs.usual_bytes(800.0, 1600.0) < 850


class Brokers:
    """Brokers whose CPU goes by messages. The first one has the small messages of namespaces that
    all share, and twice the work of others.
    """

    def __init__(self) -> None:
        self.learned: Learned = NOTHING_LEARNED
        self._view, self._now_ms = ClusterView(), 0
        self._rng = np.random.default_rng(3)

    def minute(self) -> UsageModel:
        self._now_ms += 60_000
        for number in range(BROKERS):
            small = number == 0
            stats, messages_s = {}, (2000.0 if small else 1000.0) * self._rng.uniform(0.97, 1.03)
            for at in range(EACH):
                size = 20.0 if small else 1000.0
                stats[f"t/n{at % 4}/0x{number:04x}{at:04x}_0x{number:04x}{at + 1:04x}"] = (
                    NamespaceBundleStats(
                        msg_throughput_in=messages_s * size, msg_rate_in=messages_s
                    )
                )
            used = 400 * EACH * messages_s / 30_000
            report = a_report(
                stats,
                cpu=ResourceUsage(usage=used, limit=400),
                msg_throughput_in=sum(each.msg_throughput_in for each in stats.values()),
                last_update=self._now_ms,
            )
            self._view.observe(f"b{number}:8080", report, self._now_ms)
        snapshot = without_policies(self._view, StrategySettings(), self._now_ms)
        model = fit(snapshot.columns, snapshot.averages, Weights(), self.learned)
        self.learned = model.learned
        return model


def test_small_messages_of_shared_namespaces_are_dear() -> None:
    """The model says what their broker uses from its traffic, nothing of it is beside traffic, and
    a bundle is as dear as its messages.
    """
    brokers = Brokers()
    for _ in range(32):
        model = brokers.minute()
    assert brokers.learned.messages.part > 0.5
    used = model.base[0] + model.per_byte[0] * model.carried[0]
    assert used == pytest.approx(model.measured, abs=0.05)
    assert model.base[0][0] < 0.15
    small = model.costs.of_bundle("t/n0/0x00000000_0x00000001")
    usual = model.costs.of_bundle("t/n0/0x00010000_0x00010001")
    assert 35 < small / usual < 65


def test_what_is_remembered_is_read_again() -> None:
    """What a version before remembered, too; and nothing that cannot be true."""
    brokers = Brokers()
    for _ in range(10):
        brokers.minute()
    document = encoded(brokers.learned)
    again = msgspec.json.decode(document, type=Learned)
    assert again.messages == brokers.learned.messages
    assert min(again.messages) > 0
    older = msgspec.json.decode(document)
    del older["messages"]
    before = msgspec.json.decode(encoded(older), type=Learned)
    assert before.messages == MessageCosts(0.0, 0.0)
    assert before.brokers == again.brokers
    wrong = sane(replace(again, messages=MessageCosts(7.0, -1.0)))
    assert wrong.messages == MessageCosts(message_costs.PART_MAX, 0.0)
