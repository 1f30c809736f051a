"""The model of usage: what it finds, and what no sensor makes it believe."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.cpu_sensors import MISTRUSTED, TRUSTED_AGAIN
from loadmanager.engine.load.learned import BESIDE, Learned
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.usage import Weights
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.load.usage_model import DIP, UsageModel
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.model import encoded

BYTES_OF_A_BROKER = 100e6
"""Bytes/s that take all of a broker's CPU."""
WEIGHTS = Weights()


class Cluster:
    """Brokers with a bundle of each of five namespaces; a minute is a report of each."""

    def __init__(self, idle: float = 0.0) -> None:
        self.idle = idle
        self.part: dict[str, float] = {}
        """brokerId → the part of its CPU that its traffic takes."""
        self.shown: dict[str, float | None] = {}
        """brokerId → what its sensor shows, if that is not what is used; None: it has none."""
        self.slow: dict[str, float] = {}
        """brokerId → how many times traffic costs there."""
        self.beside: dict[str, float] = {}
        """brokerId → what another process uses there."""
        self.size: dict[str, float] = {}
        """brokerId → its size, if that is not 1."""
        self.card: dict[str, float] = {}
        """brokerId → what its network card carries, as a multiple of `BYTES_OF_A_BROKER`."""
        self.card_shows: dict[str, float] = {}
        """brokerId → what its card shows, as a part of what it carries."""
        self.noise_of_cards = 0.0
        """The standard deviation of what network cards show, as a part of what they carry."""
        self.own_namespaces = False
        """Whether no two brokers share one."""
        self.learned = Learned()
        self._view, self._now_ms, self._factor = ClusterView(), 0, 1.0
        self._rng = random.Random(1)

    def minute(self, factor: float = 1.0) -> UsageModel:
        """All brokers report."""
        self._factor = factor
        self._now_ms += 60_000
        for name in self.part:
            self._view.observe(name, self._report(name, factor), self._now_ms)
        snapshot = without_policies(self._view, StrategySettings(), self._now_ms)
        model = fit(snapshot.columns, snapshot.averages, WEIGHTS, self.learned)
        self.learned = model.learned
        self.names = snapshot.columns.names
        return model

    def minutes(self, count: int) -> UsageModel:
        """So many, with traffic that varies a little."""
        for _ in range(count):
            model = self.minute(self._rng.uniform(0.97, 1.03))
        return model

    def usage(self, model: UsageModel) -> Mapping[str, float]:
        """What the model says that each broker uses with its usual traffic."""
        usual = model.most(model.carried / self._factor)
        return dict(zip(self.names, usual.tolist(), strict=True))

    def _report(self, name: str, factor: float) -> LocalBrokerData:
        bytes_s = factor * self.part[name] * BYTES_OF_A_BROKER
        tenant = f"t/{name[:2] if self.own_namespaces else ''}n"
        place = f"0x0000000{name[1]}_0x0000001{name[1]}"
        stats = {
            f"{tenant}{number}/{place}": NamespaceBundleStats(msg_throughput_in=bytes_s / 5)
            for number in range(5 if bytes_s else 0)
        }
        usual = self.idle + self.beside.get(name, 0.0)
        usual += self.slow.get(name, 1.0) * factor * self.part[name]
        used = self.shown.get(name, usual)
        limit = 800 * self.size.get(name, 1.0)
        own = ResourceUsage() if used is None else ResourceUsage(usage=used * limit, limit=limit)
        card = ResourceUsage()
        if (times := self.card.get(name)) is not None:
            kbit = 8 / 1000 * BYTES_OF_A_BROKER
            carries = self.card_shows.get(name, 1.0) * bytes_s / BYTES_OF_A_BROKER
            carries += self._rng.gauss(0, self.noise_of_cards) * times
            card = ResourceUsage(usage=carries * kbit, limit=times * kbit)
        more = {"msg_throughput_in": bytes_s, "last_update": self._now_ms, "bandwidth_in": card}
        return a_report(stats, cpu=own, **more)


def even(brokers: int = 5, *, idle: float = 0.0, part: float = 0.5) -> Cluster:
    """Brokers that are alike."""
    cluster = Cluster(idle)
    cluster.part = {f"b{number}:8080": part for number in range(brokers)}
    return cluster


def test_the_idle_part_is_found_when_a_broker_comes() -> None:
    """So that traffic which moves there is not taken for dearer than it is."""
    cluster = even(3, idle=0.15, part=0.4)
    cluster.minutes(5)
    cluster.part["b9:8080"] = 0.0
    model = cluster.minutes(5)
    assert model.base[0].min() == pytest.approx(0.15, abs=0.02)
    assert cluster.usage(model)["b9:8080"] == pytest.approx(0.15, abs=0.05)
    assert model.per_byte[0] * BYTES_OF_A_BROKER == pytest.approx(1.0, rel=0.06)


@pytest.mark.parametrize("brokers", [3, 10])
def test_a_slow_machine_is_told_from_its_sensor(brokers: int) -> None:
    """What it uses more than others is its own; the cost of traffic stays."""
    cluster = even(brokers)
    cluster.slow["b0:8080"] = 1.6
    model = cluster.minutes(30)
    assert cluster.usage(model)["b0:8080"] == pytest.approx(0.8, abs=0.06)
    assert cluster.usage(model)["b1:8080"] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("shows", [0.0, 0.1, 0.2])
def test_a_sensor_that_contradicts_the_model_is_mistrusted_within_minutes(shows: float) -> None:
    """Then it counts as one without a sensor, and says so."""
    cluster = even()
    cluster.minutes(20)
    cluster.shown["b0:8080"] = shows
    model = cluster.minutes(6)
    assert [(doubt.broker, doubt.code) for doubt in model.doubts] == [
        ("b0:8080", "SensorMistrusted")
    ]
    assert f"shows {shows:.0%}" in model.doubts[0].text
    assert cluster.usage(model)["b0:8080"] == pytest.approx(0.5, abs=0.05)
    assert model.error[0] > model.error[1]
    del cluster.shown["b0:8080"]
    assert not cluster.minutes(TRUSTED_AGAIN - MISTRUSTED + 2).doubts


def test_a_sensor_that_shows_steps_of_ten_percent_is_believed() -> None:
    """Once it is known to: it stands still while traffic changes by less than a step. One that
    stands still while traffic changes by more is found nevertheless.
    """
    cluster, rng, doubted = even(), random.Random(2), 0
    for minute in range(240):
        for name in cluster.part:
            cluster.part[name] = min(max(cluster.part[name] + rng.gauss(0, 0.03), 0.3), 0.7)
            cluster.shown[name] = round(cluster.part[name], 1)
        doubts = cluster.minute().doubts
        doubted += len(doubts) if minute >= 60 else 0
    assert doubted == 0
    cluster.shown["b0:8080"] = cluster.part["b0:8080"] = 0.4
    cluster.minutes(10)
    cluster.part["b0:8080"] = 0.65
    codes = [[doubt.broker for doubt in cluster.minute().doubts] for _ in range(8)]
    assert ["b0:8080"] in codes


def test_what_made_a_sensor_mistrusted_is_not_said_of_figures_that_fit() -> None:
    """Of one that stands still, and of one whose last report cannot be judged yet: the text says
    that it was earlier, and what it takes until the sensor counts.
    """
    cluster = even()
    cluster.minutes(20)
    cluster.shown["b0:8080"] = 0.1
    cluster.minutes(8)
    cluster.part["b0:8080"] = 0.08
    (doubt,) = cluster.minute().doubts
    assert doubt.text == (
        "its CPU sensor stands still at 10%, whatever its traffic does; now 8% ± 5% is likely, "
        "which counts until it changes"
    )
    other = even()
    other.minutes(20)
    other.shown["b0:8080"] = 0.1
    other.minutes(8)
    other.part["b0:8080"], other.shown["b0:8080"] = 0.08, 0.11
    (doubt,) = other.minute().doubts
    assert doubt.text == (
        "its CPU sensor contradicted its traffic in earlier reports; now it shows 11%, and 8% ± 5% "
        "is likely, which counts until 10 more reports fit"
    )


def test_a_mistrusted_sensor_that_fits_again_is_said_to_fit() -> None:
    """With how many more reports it takes until it counts."""
    cluster = even()
    cluster.minutes(20)
    cluster.shown["b0:8080"] = 0.1
    (doubt,) = cluster.minutes(8).doubts
    assert "shows 10%, but its traffic makes" in doubt.text
    del cluster.shown["b0:8080"]
    (doubt,) = cluster.minutes(2).doubts
    assert "fits its traffic again" in doubt.text
    assert "after 8 more" in doubt.text


def test_a_full_sensor_contradicts_nothing() -> None:
    """It shows at least what it shows, however much more its broker's traffic makes likely."""
    cluster = even()
    cluster.minutes(20)
    cluster.part["b0:8080"], cluster.shown["b0:8080"] = 3.0, 1.0
    for _ in range(10):
        model = cluster.minutes(1)
        assert not model.doubts
    assert cluster.usage(model)["b0:8080"] > 2


def test_where_full_brokers_have_the_traffic_they_say_what_it_costs() -> None:
    """The idle one beside them does not know; it would make their bundles seem to cost nothing."""
    cluster = even(3, idle=0.2, part=1.9)
    cluster.part["b2:8080"] = 0.0
    cluster.shown = {"b0:8080": 1.0, "b1:8080": 1.0}
    model = cluster.minute()
    assert cluster.usage(model)["b0:8080"] == pytest.approx(1.0, abs=0.1)
    carried = model.carried.copy()
    carried[:, 2] += 0.5 * BYTES_OF_A_BROKER
    assert model.most(carried)[2] > 0.35


def test_a_full_sensor_of_one_broker_makes_the_traffic_of_others_no_dearer() -> None:
    """Those that are not full have most of the traffic, and know what it costs."""
    cluster = even()
    cluster.minutes(20)
    cluster.shown["b0:8080"] = 1.0
    usage = cluster.usage(cluster.minutes(40))
    assert usage["b1:8080"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("full", [0, 1])
@pytest.mark.parametrize("brokers", [3, 5, 10])
def test_if_most_sensors_contradict_the_model_it_is_the_model_that_is_wrong(
    brokers: int, full: int
) -> None:
    """A cluster without traffic seems to use its idle part for the little that it has: when
    traffic comes, all sensors show far less than such a model makes likely. A full one cannot.
    """
    cluster = even(brokers, idle=0.07, part=0.01)
    cluster.minutes(20)
    cluster.part = dict.fromkeys(cluster.part, 0.4)
    cluster.shown = dict.fromkeys(sorted(cluster.part)[:full], 1.0)
    cluster.minutes(10)
    model = cluster.minutes(30)
    assert not model.doubts
    for usage in list(cluster.usage(model).values())[full:]:
        assert usage == pytest.approx(0.47, abs=0.1)


def test_a_sensor_that_stands_still_is_mistrusted_when_traffic_changes() -> None:
    """Not before: in a cluster whose traffic stands still, so do honest sensors."""
    cluster = even()
    cluster.shown["b0:8080"] = 0.5
    for _ in range(30):
        assert not cluster.minute().doubts
    codes = []
    for step in range(12):
        codes = [doubt.code for doubt in cluster.minute(1 + 0.02 * step).doubts]
    assert codes == ["SensorMistrusted"]


def test_a_broker_without_a_sensor_uses_what_its_traffic_costs() -> None:
    """From the first minute on."""
    cluster = even()
    cluster.shown["b0:8080"], cluster.part["b0:8080"] = None, 0.3
    model = cluster.minute()
    assert [doubt.code for doubt in model.doubts] == ["NoSensor"]
    assert cluster.usage(model)["b0:8080"] == pytest.approx(0.3)
    assert not model.trusted[0]


def test_a_broker_that_says_no_speed_of_its_card_has_one_like_the_others() -> None:
    """Its bytes are not charged to the cards of those that say it."""
    cluster = even(4)
    cluster.card = {"b0:8080": 2.0, "b1:8080": 2.0}
    model = cluster.minutes(10)
    of_card = model.usages(model.carried)[2]
    assert of_card == pytest.approx([0.25] * 4, abs=0.02)
    cluster.card["b2:8080"] = cluster.card["b3:8080"] = 1.0
    assert cluster.minutes(30).usages(model.carried)[2][2:] == pytest.approx([0.5] * 2, abs=0.04)


@pytest.mark.parametrize("shows", [0.0, 0.3, 0.7])
def test_a_card_carries_at_least_what_clients_send(shows: float) -> None:
    """From the first report on; it is accused where that is far from what it shows."""
    cluster = even(part=0.25)
    cluster.card = dict.fromkeys(cluster.part, 0.5)
    cluster.card_shows["b0:8080"] = shows
    model = cluster.minutes(1)
    assert cluster.usage(model)["b0:8080"] == pytest.approx(0.5, abs=0.04)
    model = cluster.minutes(30)
    assert list(cluster.usage(model).values()) == pytest.approx([0.5] * 5, abs=0.04)
    codes = [(doubt.broker, doubt.code) for doubt in model.doubts]
    assert codes == ([("b0:8080", "NetworkCardMistrusted")] if shows < 0.6 else [])
    assert cluster.learned.brokers["b0:8080"][BESIDE + 1] < 0.2
    del cluster.card_shows["b0:8080"]
    assert not cluster.minute().doubts


def test_clients_that_do_not_come_over_the_cards_accuse_none() -> None:
    """As those on the broker's own machine, or those that come over another card."""
    cluster = even(part=0.25)
    cluster.card = dict.fromkeys(cluster.part, 0.5)
    cluster.card_shows = dict.fromkeys(cluster.part, 0.01)
    model = cluster.minutes(10)
    assert not model.doubts
    assert list(cluster.usage(model).values()) == pytest.approx([0.25] * 5, abs=0.02)


def test_a_card_that_says_another_speed_than_it_has_is_believed() -> None:
    """It cannot carry more than its speed, so that is what is wrong."""
    cluster = even(part=0.25)
    cluster.card = dict.fromkeys(cluster.part, 0.5) | {"b0:8080": 0.001}
    cluster.card_shows["b0:8080"] = 0.001
    model = cluster.minutes(10)
    assert not model.doubts
    assert cluster.usage(model)["b1:8080"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_the_error_is_that_of_the_resource_that_is_used_most(noise: float) -> None:
    """What network cards show is no more exact than what CPUs do, and counts where it is more."""
    cluster = even(10, part=0.3)
    cluster.card = dict.fromkeys(cluster.part, 0.5)
    cluster.noise_of_cards = noise
    errors = [cluster.minute().error.mean() for _ in range(100)]
    assert sum(errors[40:]) / 60 == pytest.approx(noise, abs=0.01)
    cluster.card = dict.fromkeys(cluster.part, 2.0)
    assert cluster.minute().error.max() < 0.01


def test_a_broker_that_loses_its_sensor_uses_what_it_used() -> None:
    """A small one stays small, and a slow one slow: else both look empty and are overfilled."""
    cluster = even()
    cluster.size["b0:8080"], cluster.part["b0:8080"], cluster.slow["b0:8080"] = 0.5, 0.25, 2.0
    cluster.slow["b1:8080"] = 1.4
    cluster.minutes(40)
    cluster.shown["b0:8080"] = cluster.shown["b1:8080"] = None
    usage = cluster.usage(cluster.minutes(3))
    assert usage["b0:8080"] >= 0.48
    assert usage["b1:8080"] >= 0.66


def test_a_process_that_ends_is_no_contradiction() -> None:
    """Though its broker's namespaces were taken for dear meanwhile: it fell as it had risen."""
    cluster = even()
    cluster.own_namespaces = True
    cluster.minutes(20)
    cluster.beside["b0:8080"] = 0.4
    cluster.minutes(40)
    cluster.beside["b0:8080"] = 0.0
    assert not [doubt for _ in range(30) for doubt in cluster.minutes(1).doubts]
    cluster.beside["b0:8080"] = -0.4
    assert cluster.minutes(6).doubts


def test_cheap_namespaces_are_no_contradiction_while_they_are_learned() -> None:
    """Each broker has namespaces of its own, some of which cost a fifth: a new leader believes its
    sensors until it knows that.
    """
    cluster = even()
    cluster.own_namespaces = True
    cluster.slow = {"b0:8080": 0.2, "b1:8080": 0.3}
    for _ in range(40):
        assert not cluster.minutes(1).doubts
    usage = cluster.usage(cluster.minutes(1))
    assert usage["b0:8080"] == pytest.approx(0.1, abs=0.04)
    assert usage["b2:8080"] == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("drift", [-0.005, -0.02])
def test_a_sensor_that_drifts_claims_little(drift: float) -> None:
    """However slowly it does: the model never has it below three quarters of its traffic's cost."""
    cluster = even()
    cluster.minutes(10)
    for minute in range(80):
        cluster.shown["b0:8080"] = max(0.5 + drift * minute, 0.0)
        model = cluster.minute(1 + 0.01 * (minute % 2))
        usage = cluster.usage(model)
        assert usage["b0:8080"] > 0.25
        assert usage["b0:8080"] + model.unproven[0] > 0.8 * usage["b2:8080"]
        assert max(model.unproven[1:]) < 0.05


def test_nothing_is_learned_while_the_clients_are_away() -> None:
    """CPU of the minute before over the bytes of this one would say that bytes are dear."""
    cluster = even(idle=0.1)
    cluster.minutes(10)
    before = cluster.learned
    cluster.shown = dict.fromkeys(cluster.part, 0.6)
    model = cluster.minute(0.1)
    assert model.dip == pytest.approx(0.1, rel=0.05)
    assert (model.learned.used, model.learned.work) == (before.used, before.work)
    cluster.shown = {}
    assert cluster.minute().dip is None


def test_a_dip_ends_no_watch_of_a_move() -> None:
    """Its reports say nothing of what a bundle costs: those after it do."""
    cluster = even()
    cluster.minutes(10)
    moves = [("t/gone/0x00000000_0x00000010", "b1:8080", "b0:8080")]
    cluster.learned = cluster.learned.and_ordered(moves)
    for _ in range(3):
        assert cluster.minute(0.1).dip is not None
    assert [move.left for move in cluster.learned.moved.values()] == [0]
    while cluster.minute().dip is not None:
        pass
    assert [move.left for move in cluster.learned.moved.values()] == [1]


def test_a_dip_that_lasts_is_the_usual_traffic() -> None:
    """Within ten minutes."""
    cluster = even()
    cluster.minutes(10)
    dips = [cluster.minute(0.3).dip for _ in range(14)]
    assert dips[0] is not None
    assert dips[0] < DIP
    assert dips[-1] is None


def test_a_lie_beyond_measure_is_bounded() -> None:
    """Of a sensor that shows a billion times its limit, others' costs do not change much."""
    cluster = even()
    cluster.minutes(10)
    cluster.shown["b0:8080"] = 1e9
    model = cluster.minutes(10)
    assert cluster.usage(model)["b1:8080"] == pytest.approx(0.5, abs=0.1)


def test_what_is_stored_is_what_is_remembered() -> None:
    """The next leader goes on with the same figures, to the last digit."""
    cluster, other = even(idle=0.1), even(idle=0.1)
    cluster.minutes(7)
    other.minutes(7)
    other.learned = msgspec.json.decode(encoded(other.learned), type=Learned)
    one, two = cluster.minutes(5), other.minutes(5)
    assert encoded(one.learned) == encoded(two.learned)


@pytest.mark.parametrize(
    "damaged",
    [
        Learned(idle=1e300),
        Learned(used=-1.0),
        Learned({"b0:8080": (1.0, 2.0)}),
        Learned({"b0:8080": (1e300,) * 12}),
        Learned(costs={-1: 2.0, 7: 1e300}),
    ],
)
def test_a_memory_that_cannot_be_true_counts_as_none(damaged: Learned) -> None:
    """A store may hold anything."""
    cluster = even()
    cluster.learned = damaged
    assert cluster.usage(cluster.minutes(3))["b0:8080"] == pytest.approx(0.5, abs=0.05)


def test_traffic_alone_counts_where_no_broker_has_a_sensor() -> None:
    """It is evened out, so that none gets everything."""
    cluster = even()
    cluster.shown = dict.fromkeys(cluster.part)
    cluster.part["b0:8080"] = 1.0
    usage = cluster.usage(cluster.minute())
    assert usage["b0:8080"] == pytest.approx(2 * usage["b1:8080"])
