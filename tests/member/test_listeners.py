"""advertisedListeners, internalListenerName and bindAddresses."""

from __future__ import annotations

import pytest

from loadmanager.kit.addresses import (
    AdvertisedListener,
    BrokerAddress,
    listeners_document,
    read_listeners,
)
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.member.listeners import Bind, advertised, binds
from loadmanager.member.settings import BrokerSettings

INSIDE, OUTSIDE = "inside:pulsar://broker-0:6650", "outside:pulsar://example.com:6660"


def _settings(*listeners: str, internal: str = "", bound: tuple[str, ...] = ()) -> BrokerSettings:
    return BrokerSettings(
        advertised_listeners=listeners, internal_listener=internal, bind_addresses=bound
    )


def test_the_internal_listener_comes_first() -> None:
    """It is the first one, or the one that is named; a listener may have an HTTP address, too."""
    web = "outside:http://example.com:8080"
    assert list(advertised(_settings(INSIDE, OUTSIDE))) == ["inside", "outside"]
    found = advertised(_settings(INSIDE, OUTSIDE, web, internal="outside"))
    assert list(found.items()) == [
        ("outside", AdvertisedListener("pulsar://example.com:6660", "http://example.com:8080")),
        ("inside", AdvertisedListener("pulsar://broker-0:6650")),
    ]
    assert advertised(_settings()) == {}


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        (("pulsar://broker-0:6650",), "'pulsar://broker-0:6650' is not of the form"),
        (("inside",), "not of the form"),
        (("inside:pulsar://broker-0",), "not of the form"),
        (("inside:pulsar://broker-0:0",), "not of the form"),
        (("inside:pulsar://broker-0:99999",), "not of the form"),
        (("inside:pulsar://[::1:6650",), "not of the form"),
        (("inside:ftp://broker-0:6650",), "not of the form"),
        (("inside:pulsar://broker-0:6650/x",), "not of the form"),
        (("inside:http://broker-0:8080",), "inside has no pulsar:// or pulsar+ssl:// address"),
        ((INSIDE, "inside:pulsar://broker-1:6650"), "inside has two pulsar addresses"),
        ((INSIDE, "outside:pulsar://broker-0:6650"), "broker-0:6650 belongs to two listeners"),
    ],
)
def test_wrong_listeners_are_refused(listeners: tuple[str, ...], said: str) -> None:
    """The text names the key and the entry."""
    with pytest.raises(ConfigError, match="advertisedListeners") as refused:
        advertised(_settings(*listeners))
    assert said in str(refused.value)


def test_the_internal_listener_must_exist() -> None:
    """Unless there are no listeners at all: Pulsar's own file names one."""
    with pytest.raises(ConfigError, match="internalListenerName = 'outside'"):
        advertised(_settings(INSIDE, internal="outside"))
    assert advertised(_settings(internal="internal")) == {}


def test_addresses_to_listen_on() -> None:
    """Each belongs to a listener; no port is bound twice."""
    bound = ("outside:pulsar://0.0.0.0:6660", "outside:http://[::]:8090")
    assert binds(_settings(INSIDE, OUTSIDE, bound=bound)) == [
        Bind("outside", "pulsar", "0.0.0.0", 6660),
        Bind("outside", "http", "::", 8090),
    ]
    for wrong, said in (
        ("other:pulsar://0.0.0.0:6660", "listener other is not among advertisedListeners"),
        ("outside:pulsar://0.0.0.0:6650", "port 6650 is there twice"),
        ("0.0.0.0:6660", "not of the form"),
    ):
        with pytest.raises(ConfigError, match="bindAddresses") as refused:
            binds(_settings(INSIDE, OUTSIDE, bound=(wrong,)))
        assert said in str(refused.value)


def test_addresses_of_a_listener() -> None:
    """A client that names one gets its addresses; an unknown name is Pulsar's error."""
    listeners = {
        "inside": AdvertisedListener("pulsar://broker-0:6650"),
        "outside": AdvertisedListener("pulsar://example.com:6660", "http://example.com:8080"),
    }
    address = BrokerAddress("b:80", "pulsar://broker-0:6650", "http://b:80", listeners)
    assert address.of("") is address
    assert address.of("inside").web_url == "http://b:80"
    assert address.of("outside").service_url == "pulsar://example.com:6660"
    assert address.of("outside").web_url == "http://example.com:8080"
    with pytest.raises(OperationalError, match="the broker do not have other listener"):
        address.of("other")
    assert read_listeners(listeners_document(listeners)) == listeners


def test_a_listener_with_tls() -> None:
    """Pulsar's four addresses of a listener; one with TLS alone is enough."""
    urls = ("pulsar+ssl://a:6651", "https://a:8443", "pulsar://a:6650", "http://a:8080")
    found = advertised(_settings(*(f"a:{url}" for url in urls), "b:pulsar+ssl://b:6651"))
    assert found["a"] == AdvertisedListener(urls[2], urls[3], urls[0], urls[1])
    assert found["b"] == AdvertisedListener(service_url_tls="pulsar+ssl://b:6651")
    assert listeners_document(found)["a"] == {
        "brokerServiceUrl": urls[2],
        "brokerServiceUrlTls": urls[0],
        "brokerHttpUrl": urls[3],
        "brokerHttpsUrl": urls[1],
    }
    assert read_listeners(listeners_document(found)) == found
    address = BrokerAddress("b:80", "pulsar://x:1", "http://b:80", found)
    assert address.of("a").service_url_tls == urls[0]
    assert address.of("a").web(secure=True) == urls[1]
    assert address.of("b").service_url == ""
    with pytest.raises(OperationalError, match="b:80 has no webServicePortTls"):
        address.of("b").web(secure=True)
    assert address.of("b").web(secure=False) == "http://b:80"


@pytest.mark.parametrize("document", [None, 1, {"a": 1}, {"a": {}}, {"a": {"brokerServiceUrl": 1}}])
def test_documents_of_others(document: object) -> None:
    """What another broker wrote wrongly is left out."""
    assert read_listeners(document) == {}
