"""broker.conf: Pulsar's syntax, and every kind of nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadmanager import settings
from loadmanager.adapters.system.settings import SamplerSettings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.runtime.shared.settings import BrokerSettings


def test_properties_syntax(tmp_path: Path) -> None:
    """Comments, the three separators, continued lines and escapes are read as Java reads them; the last of two equal keys wins."""
    path = tmp_path / "broker.conf"
    path.write_text("# c\n! c\n\na=1\nb : 2\nc 3\n  d =x\\\n   y\ne=\\u0041\\t=\nf\na=4\ng=C:\\\\x\n")
    assert settings.read_properties(path) == {"a": "4", "b": "2", "c": "3", "d": "xy", "e": "A\t=", "f": "", "g": "C:\\x"}


def test_values_and_defaults() -> None:
    """Values are typed; empty ones mean the default, or nothing where that is allowed; minutes may have decimals."""
    loaded = settings.load(
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
    assert (loaded.leaf(BrokerSettings).web_port, loaded.leaf(BrokerSettings).load_balancer_enabled) == (0, False)
    assert loaded.leaf(BrokerSettings).default_bundles == 4
    assert loaded.leaf(StrategySettings).shedding_interval_minutes == 0.5
    assert loaded.leaf(StrategySettings).excluded_namespaces == ("a/b", "c/d")
    assert loaded.leaf(SamplerSettings).nic_speed_gbps is None
    assert settings.parse(loaded.runtime()).by_leaf == loaded.by_leaf


def test_bad_values_are_all_named() -> None:
    """Every bad value is named with its key and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        settings.load(
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
    """A misspelt key is told with the key that was probably meant; Pulsar's other keys are just passed over."""
    loaded = settings.load(None, {"loadBalancerSheddingIntervalMinute": "1", "managedLedgerDefaultEnsembleSize": "2"})
    assert settings.unknown_text(loaded.unknown) == (
        "loadBalancerSheddingIntervalMinute (did you mean loadBalancerSheddingIntervalMinutes?), managedLedgerDefaultEnsembleSize"
    )


def test_older_spellings() -> None:
    """An older key is understood, and gives way to the present one whatever their order."""
    assert settings.load(None, {"zookeeperServers": "a:1,b:2/c"}).leaf(ZooKeeperSettings).hosts == "a:1,b:2"
    both = settings.load(None, {"metadataStoreUrl": "zk:x:1/root", "zookeeperServers": "a:1"}).leaf(ZooKeeperSettings)
    assert (both.hosts, both.chroot) == ("x:1", "root")


def test_unreadable_files(tmp_path: Path) -> None:
    """A file that is missing or is no text is refused, naming it."""
    with pytest.raises(ConfigError, match="No such file"):
        settings.read_properties(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"a=\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        settings.read_properties(tmp_path / "binary")
    with pytest.raises(ConfigError, match="key=value"):
        settings.parse_overrides(["novalue"])


def test_keys_without_effect_are_not_dynamic() -> None:
    """A key that does nothing must not be offered for change on running brokers."""
    keys = [known.key for known in settings.known_keys().values()]
    assert any("without effect" in key.doc for key in keys)
    assert [key.name for key in keys if "without effect" in key.doc and key.dynamic] == []
