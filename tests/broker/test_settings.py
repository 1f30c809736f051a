"""broker.conf: Pulsar's syntax, bad values, unknown keys, dynamic settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import theirs
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker import settings
from loadmanager.broker.settings.live import REJECTED, LiveSettings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.avg import AvgSettings
from loadmanager.kit.conf import conf
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.files.properties import write_private
from loadmanager.kit.settings import unknown_text
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader.strategy_keys import strategies_of
from loadmanager.member.settings import BrokerSettings


def test_properties_syntax(tmp_path: Path) -> None:
    """Comments, the three separators, continued lines and escapes are read as Java reads them; the
    last of two equal keys wins.
    """
    path = tmp_path / "broker.conf"
    path.write_text(
        "# c\n! c\n\na=1\nb : 2\nc 3\n  d =x\\\n   y\ne=\\u0041\\t=\nf\na=4\ng=C:\\\\x\n"
    )
    assert settings.read_properties(path) == {
        "a": "4",
        "b": "2",
        "c": "3",
        "d": "xy",
        "e": "A\t=",
        "f": "",
        "g": "C:\\x",
    }


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.characters(exclude_categories=["Cs"]))))
def test_private_files_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    """Whatever a value contains; nobody else can read the file."""
    path = tmp_path_factory.getbasetemp() / "private.conf"
    write_private(path, values)
    assert settings.read_properties(path) == values
    assert path.stat().st_mode & 0o777 == 0o600


def test_values_and_defaults() -> None:
    """Values are typed; empty ones mean the default, or nothing where that is allowed; minutes may
    have decimals.
    """
    loaded = settings.KEYS.load(
        None,
        {
            "webServicePort": "0",
            "loadBalancerEnabled": "FALSE",
            "loadBalancerSheddingIntervalMinutes": "0.5",
            "loadBalancerOverrideBrokerNicSpeedGbps": "",
            "defaultNumberOfNamespaceBundles": "",
            "loadBalancerSheddingExcludedNamespaces": "a/b, c/d",
        },
    )
    assert (
        loaded.leaf(BrokerSettings).web_port,
        loaded.leaf(BrokerSettings).load_balancer_enabled,
    ) == (0, False)
    assert loaded.leaf(BrokerSettings).default_bundles == 4
    assert loaded.leaf(StrategySettings).shedding_interval_minutes == 0.5
    assert loaded.leaf(StrategySettings).excluded_namespaces == ("a/b", "c/d")
    assert loaded.leaf(SamplerSettings).nic_speed_gbps is None
    assert settings.KEYS.parse(loaded.runtime()).by_leaf == loaded.by_leaf


def test_bad_values_are_all_named() -> None:
    """Every bad value is named with its key and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        settings.KEYS.load(
            None,
            {
                "webServicePort": "70000",
                "loadBalancerEnabled": "maybe",
                "loadBalancerSamplingScope": "moon",
                "loadBalancerReportUpdateMinIntervalMillis": "x",
                "loadBalancerHistoryResourcePercentage": "nan",
            },
        )
    text = str(caught.value)
    assert "webServicePort = '70000': a whole number from 0 to 65535 is allowed" in text
    assert "loadBalancerEnabled = 'maybe': true or false is allowed" in text
    assert "one of auto, host, cgroup, process is allowed" in text
    assert "loadBalancerReportUpdateMinIntervalMillis" in text
    assert "loadBalancerHistoryResourcePercentage = 'nan': a number from 0 to 1 is allowed" in text


def test_unknown_keys_have_their_nearest_name() -> None:
    """A misspelt key is reported with the nearest known key; other unknown keys are listed."""
    loaded = settings.KEYS.load(
        None, {"loadBalancerSheddingIntervalMinute": "1", "managedLedgerDefaultEnsembleSize": "2"}
    )
    assert unknown_text(loaded.unknown) == (
        "loadBalancerSheddingIntervalMinute (did you mean loadBalancerSheddingIntervalMinutes?), "
        "1 of Pulsar's keys"
    )
    assert (
        settings.KEYS.nearest("managedLedgerDefaultEnsmbleSize")
        == "managedLedgerDefaultEnsembleSize"
    )
    with pytest.raises(ConfigError, match=r"--set clusterNam: .*; did you mean clusterName\?"):
        settings.KEYS.parse_overrides(["clusterNam=x"])
    with pytest.raises(ConfigError, match=r"--set Xyzzy: there is no such key$"):
        settings.KEYS.parse_overrides(["Xyzzy=1"])
    assert settings.KEYS.parse_overrides(["managedLedgerDefaultAckQuorum=2"])


def test_older_spellings() -> None:
    """An older key is understood, and gives way to the present one whatever their order."""
    assert (
        settings.KEYS.load(None, {"zookeeperServers": "a:1,b:2/c"}).leaf(ZooKeeperSettings).hosts
        == "a:1,b:2"
    )
    both = settings.KEYS.load(
        None, {"metadataStoreUrl": "zk:x:1/root", "zookeeperServers": "a:1"}
    ).leaf(ZooKeeperSettings)
    assert (both.hosts, both.chroot) == ("x:1", "root")
    blank = settings.KEYS.load(None, {"metadataStoreUrl": "", "zookeeperServers": "a:1"})
    assert blank.leaf(ZooKeeperSettings).hosts == "a:1"


@pytest.mark.parametrize(("older", "timeout_ms"), [("-1", 20_000), ("", 20_000), ("6000", 6000)])
def test_older_timeouts(older: str, timeout_ms: int) -> None:
    """As in Pulsar, an older timeout wins where it is set; empty and -1 mean that it is not."""
    present, alias = "metadataStoreSessionTimeoutMillis", "zooKeeperSessionTimeoutMillis"
    for values in ({present: "20000", alias: older}, {alias: older, present: "20000"}):
        loaded = settings.KEYS.load(None, values)
        assert loaded.leaf(ZooKeeperSettings).session_timeout_ms == timeout_ms


STOCK = sorted((Path(__file__).parents[1] / "pulsar_conf").glob("*.conf"))


@pytest.mark.parametrize("path", STOCK, ids=[path.stem for path in STOCK])
def test_pulsars_own_files(path: Path) -> None:
    """A broker starts with Pulsar's broker.conf as it is; no key of it is taken for a typo, and
    every key of load balancing is honoured or says why not.
    """
    loaded = settings.KEYS.load(path)
    settings.check(loaded)
    assert loaded.leaf(ZooKeeperSettings).session_timeout_ms == 30_000
    assert [key.name for key in loaded.unknown if not key.of_others] == []
    balancing = ("loadBalancer", "loadManager", "topicBundle", "supportedNamespaceBundle")
    assert [key.name for key in loaded.unknown if key.name.startswith(balancing)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authenticateOriginalAuthData", "true"),
        ("tlsEnabledWithKeyStore", "true"),
        ("encryptionRequireOnProducer", "true"),
    ],
)
def test_missing_protection_refuses(name: str, value: str) -> None:
    """A broker that is asked for protection that it does not have does not start."""
    settings.check(settings.KEYS.load(None, {name: ""}))
    with pytest.raises(ConfigError, match=f"^{name} is set, but [^;]*$"):
        settings.check(settings.KEYS.load(None, {name: value}))


def test_unreadable_files(tmp_path: Path) -> None:
    """A file that is missing or not text is refused by its name."""
    with pytest.raises(ConfigError, match="No such file"):
        settings.read_properties(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"a=\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        settings.read_properties(tmp_path / "binary")
    with pytest.raises(ConfigError, match="key=value"):
        settings.KEYS.parse_overrides(["novalue"])


def test_keys_without_effect_are_not_dynamic() -> None:
    """A key without effect cannot be changed on running brokers."""
    keys = [known.key for known in settings.KEYS.by_name().values()]
    assert any("without effect" in key.doc for key in keys)
    assert [key.name for key in keys if "without effect" in key.doc and key.dynamic] == []


LOW, HIGH = "loadBalancerAvgShedderLowThreshold", "loadBalancerAvgShedderHighThreshold"
SHEDDER, PLACEMENT = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({SHEDDER: "ThresholdSheder"}, "ThresholdShedder"),
        ({PLACEMENT: "Nowhere"}, "LeastLongTermMessageRate"),
        ({PLACEMENT: "AvgShedder"}, "needs loadBalancerLoadSheddingStrategy = AvgShedder"),
        ({LOW: "41"}, f"{LOW} = 41 is above {HIGH} = 40"),
        ({"loadBalancerReportUpdateMinIntervalMillis": "900001"}, "is longer than"),
        ({"brokerServicePort": "8080"}, "are both 8080"),
        ({"brokerServicePort": ""}, "brokerServicePort and brokerServicePortTls are both empty"),
        ({"webServicePort": ""}, "webServicePort and webServicePortTls are both empty"),
        ({"webServicePortTls": "8080"}, "webServicePort and webServicePortTls are both 8080"),
        ({"webServicePortTls": "8443"}, "TLS needs tlsCertificateFilePath and tlsKeyFilePath"),
        ({"brokerClientTlsEnabled": "true"}, "brokerClientTlsEnabled needs webServicePortTls"),
        (
            {"webServicePort": "", "webServicePortTls": "8443"},
            "without webServicePort, brokers need brokerClientTlsEnabled",
        ),
        (
            {"loadManagerClassName": "SimpleLoadManagerImpl"},
            "ModularLoadManagerImpl and ExtensibleLoadManagerImpl are allowed",
        ),
    ],
)
def test_what_a_broker_cannot_run_with(values: dict[str, str], reason: str) -> None:
    """Unknown strategies and contradictions are refused, though each value by itself
    can be parsed.
    """
    with pytest.raises(ConfigError, match=reason):
        settings.check(settings.KEYS.load(None, values))


@dataclass(frozen=True)
class TheirSettings:
    """Of a strategy of third parties."""

    least: int = conf("theirLeast", 1, "The least")
    most: int = conf("theirMost", 2, "The most")

    def contradictions(self) -> list[tuple[tuple[str, ...], str]]:
        """The least is not above the most; 0 finds a bug."""
        if 10 / self.most < self.least:
            return [(("theirLeast", "theirMost"), f"theirLeast = {self.least} is too much")]
        return []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"theirLeast": "6"}, "theirLeast = 6 is too much"),
        ({"theirMost": "0"}, r"TheirSettings cannot check its values: ZeroDivisionError\("),
    ],
)
def test_what_a_strategy_of_third_parties_cannot_run_with(
    values: dict[str, str], reason: str
) -> None:
    """Its own settings say which values contradict each other, as ours do: to a broker, and to what
    runs strategies without one.
    """
    with theirs.registered(settings=TheirSettings):
        for check in (settings.check, strategies_of):
            check(settings.KEYS.load(None, {"theirLeast": "5"}))
            with pytest.raises(ConfigError, match=reason):
                check(settings.KEYS.load(None, values))


def test_defaults_and_free_ports_can_be_used() -> None:
    """The defaults contradict nothing; two free ports are two ports."""
    settings.check(settings.KEYS.load())
    settings.check(settings.KEYS.load(None, {"brokerServicePort": "0", "webServicePort": "0"}))


def a_live(**values: str) -> LiveSettings:
    """Live settings over a file with these values."""
    return LiveSettings(settings.KEYS.load(None, values))


def test_a_changed_file_is_read_again() -> None:
    """Its dynamic keys act, but below stored values; others are named, and act after a restart; one
    that contradicts itself changes nothing.
    """
    live = a_live(**{LOW: "12", "clusterName": "a"})
    avg = live.live(AvgSettings)
    file = settings.KEYS.load(None, {LOW: "13", "clusterName": "b", "webServicePort": "1"})
    changes, later = live.reload(file)
    assert (changes, later) == ([f"{LOW}: 12 -> 13"], ["clusterName", "webServicePort"])
    assert (avg.value.low, live.in_force()["clusterName"]) == (13, "a")
    live.apply({LOW: "14"})
    assert live.reload(settings.KEYS.load(None, {"clusterName": "a"})) == ([], [])
    assert avg.value.low == 14
    live.apply({})
    assert avg.value.low == AvgSettings().low
    with pytest.raises(ConfigError):
        live.reload(settings.KEYS.load(None, {LOW: "99", HIGH: "98"}))
    assert avg.value.low == AvgSettings().low


def test_a_bad_stored_value_takes_out_itself_only() -> None:
    """Its last good value stays in force, at the start the file's; the others act, and the bad ones
    are shown.
    """
    live = a_live(**{LOW: "12"})
    strategies, avg = live.live(StrategySettings), live.live(AvgSettings)
    live.apply({LOW: "much", SHEDDER: "OverloadShedder", "defaultNumberOfNamespaceBundles": "0"})
    assert (avg.value.low, strategies.value.shedder) == (12, "OverloadShedder")
    assert live.rejected[LOW] == f"{LOW} = 'much': a number of at least 0 is allowed"
    assert live.in_force()[REJECTED].count(" is allowed") == 2
    live.apply({LOW: "13"})
    assert (avg.value.low, live.rejected, strategies.value.shedder) == (
        13,
        {},
        StrategySettings().shedder,
    )
    live.apply({LOW: "-1"})
    assert avg.value.low == 13
    assert live.in_force()[LOW] == "13"
    live.apply({})
    assert avg.value.low == 12
    assert REJECTED not in live.in_force()


@pytest.mark.parametrize("value", [None, ["1"], {"a": 1}, "", float("nan")])
def test_stored_values_of_any_type(value: object) -> None:
    """A value that is not a string is refused like one that cannot be parsed; the other values of
    the document act.
    """
    live = a_live()
    live.apply({SHEDDER: value, HIGH: 50, "loadBalancerSheddingEnabled": False})
    strategies = live.live(StrategySettings).value
    assert strategies.of(AvgSettings) == AvgSettings(high=50.0)
    assert replace(strategies, own={}) == StrategySettings(shedding_enabled=False)
    assert list(live.rejected) == [SHEDDER]


def test_stored_values_that_contradict_each_other() -> None:
    """The new ones are taken back, then those in force; values that go together act together, in
    any order.
    """
    live = a_live()
    avg = live.live(AvgSettings)

    def thresholds() -> tuple[float, float]:
        return avg.value.low, avg.value.high

    live.apply({LOW: "50", HIGH: "60"})
    assert thresholds() == (50, 60)
    live.apply({LOW: "70", HIGH: "60"})
    assert thresholds() == (50, 60)
    assert list(live.rejected) == [LOW]
    live.apply({LOW: "50"})  # what it needs is gone
    assert thresholds() == (15, 40)
    assert "is above" in live.rejected[LOW]


def test_unknown_static_and_older_keys_in_the_store() -> None:
    """Unknown keys are another program's, static ones are shown; older spellings act, and give way
    to present ones.
    """
    live = a_live()
    older, present = "loadBalancerBandwithInResourceWeight", "loadBalancerBandwidthInResourceWeight"
    live.apply({"managedLedgerDefaultAckQuorum": "2", "clusterName": "x", older: "0.5"})
    assert list(live.rejected) == ["clusterName"]
    assert live.live(BrokerSettings).value.cluster_name == "standalone"
    assert live.live(StrategySettings).value.bandwidth_in_weight == 0.5
    live.apply({present: "0.25", older: "0.5"})
    assert live.live(StrategySettings).value.bandwidth_in_weight == 0.25
    assert live.changed({older: "0.5", "other": "1"}, older, "2") == {"other": "1", present: "2"}


def test_changing_one_stored_value() -> None:
    """It is refused where it, or another value because of it, could not be in force; bad ones of
    other keys are in nobody's way.
    """
    live = a_live()
    stored: dict[str, object] = {LOW: "50", HIGH: "60", "minUnloadMessage": "bad"}
    live.apply(stored)
    for name, value in (
        (LOW, "61"),
        (HIGH, None),
        (HIGH, "10"),
        ("minUnloadMessage", "-1"),
        ("clusterName", "x"),
    ):
        with pytest.raises(BadInputError):
            live.changed(stored, name, value)
    assert live.changed(stored, "minUnloadMessage", "7") == {
        LOW: "50",
        HIGH: "60",
        "minUnloadMessage": "7",
    }
    assert live.changed(stored, "minUnloadMessage", None) == {LOW: "50", HIGH: "60"}
    assert live.changed({"what": 1}, "what", None) == {}


def test_users_of_a_leaf_hear_of_its_changes_only() -> None:
    """An unchanged leaf calls no listener; a removed listener is not called again."""
    live, heard = a_live(), list[float]()
    forget = live.live(StrategySettings).listen(
        lambda strategies: heard.append(strategies.of(AvgSettings).low)
    )
    live.apply({"maxConcurrentLookupRequest": "9"})
    live.apply({LOW: "9"})
    live.apply({LOW: "9"})
    forget()
    live.apply({LOW: "10"})
    assert heard == [9]
