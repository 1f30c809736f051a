"""The addresses on which a broker listens, and its warnings about them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.broker import settings
from loadmanager.broker.listeners import (
    address_of,
    bind_all,
    restricted,
    urls_of,
    warn_if_restricted,
)
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.kit.errors import ConfigError
from loadmanager.member.settings import BrokerSettings

CONF = Path(__file__).parents[2] / "pulsar_conf" / "4.2.4.conf"
OPEN = {"loadManagerAllowUnauthenticatedAccess": "true"}


def listening(**values: str) -> tuple[set[str], dict[str, str], list[str]]:
    """The addresses that a broker listens on, those that it advertises, and what it warns of."""
    loaded = settings.KEYS.load(None, {"brokerServicePort": "0", "webServicePort": "0", **values})
    asked = loaded.leaf(BrokerSettings)
    broker = restricted(asked, loaded.leaf(AccessSettings))
    with contextlib.ExitStack() as stack, capture_logs() as logs:
        ports = bind_all(broker, stack)
        warn_if_restricted(asked, broker)
        hosts = {port.sock.getsockname()[0] for port in ports}
        return hosts, urls_of(address_of(broker, ports)), [entry["event"] for entry in logs]


@pytest.mark.parametrize(
    ("values", "host"),
    [
        ({}, "127.0.0.1"),
        ({"bindAddress": "0.0.0.0"}, "127.0.0.1"),
        ({"bindAddress": "::"}, "::1"),
        ({"authorizationEnabled": "true"}, "127.0.0.1"),
    ],
)
def test_loopback_without_authentication(values: dict[str, str], host: str) -> None:
    """The default, and what Pulsar's own file has; one warning says what to do."""
    hosts, urls, warnings = listening(**values)
    assert hosts == {host}
    assert len(warnings) == 1
    assert "loadManagerAllowUnauthenticatedAccess=true" in warnings[0]
    assert host in urls["web_url"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_loopback_as_it_was_asked_for(host: str) -> None:
    """Stays, without a warning."""
    hosts, _, warnings = listening(bindAddress=host, advertisedAddress="b.example.com")
    assert all(found.startswith("127.") for found in hosts)
    assert not warnings


@pytest.mark.parametrize("values", [OPEN, {"authenticationEnabled": "true"}])
def test_open_as_it_was_asked_for(values: dict[str, str]) -> None:
    """With authentication, or when an operator says so; nothing is changed."""
    hosts, urls, warnings = listening(**values, advertisedAddress="b.example.com")
    assert hosts == {"0.0.0.0"}
    assert urls["web_url"].startswith("http://b.example.com:")
    assert not warnings


def test_listeners_are_restricted_too() -> None:
    """`bindAddresses` name other addresses; the advertised ones stay."""
    values = {
        "advertisedListeners": "a:pulsar://a.example.com:6650",
        "bindAddresses": "a:pulsar://0.0.0.0:26997",
        "bindAddress": "127.0.0.1",
    }
    hosts, urls, warnings = listening(**values)
    assert hosts == {"127.0.0.1"}
    assert len(warnings) == 1
    assert urls["service_url"] == "pulsar://a.example.com:6650"
    assert listening(**values, **OPEN)[0] == {"127.0.0.1", "0.0.0.0"}


def test_pulsars_own_file() -> None:
    """Unchanged, it starts on loopback."""
    loaded = settings.KEYS.load(CONF, {"brokerServicePort": "0", "webServicePort": "0"})
    assert loaded.leaf(BrokerSettings).bind_address == "0.0.0.0"
    broker = restricted(loaded.leaf(BrokerSettings), loaded.leaf(AccessSettings))
    assert broker.bind_address == "127.0.0.1"


@pytest.mark.parametrize("address", ["fd01::10", "[fd01::10]"])
def test_a_literal_address_of_ipv6(address: str) -> None:
    """Stands in brackets in URLs, and so in the broker's name."""
    _, urls, _ = listening(advertisedAddress=address, **OPEN)
    assert urls["web_url"].startswith("http://[fd01::10]:")
    assert urls["service_url"].startswith("pulsar://[fd01::10]:")


@pytest.mark.parametrize("host", ["x" * 600, "two words", "ö", "a/b"])
def test_an_address_that_others_could_not_read_is_refused(host: str) -> None:
    """Its reports and locks would count as damaged everywhere."""
    with pytest.raises(ConfigError, match="advertisedAddress = "):
        listening(advertisedAddress=host)
