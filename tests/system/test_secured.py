"""The stock Python client on a broker over TLS, with tokens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pulsar
import pytest
from clusters.processes import NAMESPACE
from clusters.standalone import wait_for
from kit.security.certificates import Authority
from kit.security.tokens import ADMIN, SECRET, token
from system.secured import TOPIC, Secured

pytestmark = [pytest.mark.system, pytest.mark.client, pytest.mark.zookeeper]

FORGED = jwt.encode({"sub": ADMIN}, b"another secret key of 32 bytes..", algorithm="HS256")
EXPIRED = token(ADMIN, lives_s=-60)
REFUSED = "loadmanager_authentication_failures_total{"
OVER = ("binary", "http")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker of this module."""
    with Secured(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@contextlib.contextmanager
def client(
    secured: Secured,
    credentials: str,
    *,
    url: str = "",
    trust: Path | None = None,
    timeout_s: int = 60,
) -> Iterator[pulsar.Client]:
    """A client with a token, or without one."""
    made = pulsar.Client(
        url or secured.url,
        authentication=pulsar.AuthenticationToken(credentials) if credentials else None,
        tls_trust_certs_file_path=str(trust or secured.authority.trust),
        tls_validate_hostname=True,
        operation_timeout_seconds=timeout_s,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        yield made
    finally:
        made.close()


def test_who_may_produces_and_consumes(secured: Secured) -> None:
    """Looked up over the binary protocol, and over HTTPS."""
    for url in (secured.url, secured.web_url):
        with (
            client(secured, token("writer"), url=url) as writing,
            client(secured, token("reader"), url=url) as reading,
        ):
            consumer = reading.subscribe(TOPIC, f"by {url.partition(':')[0]}")
            producer = writing.create_producer(TOPIC)
            for number in range(10):
                producer.send(str(number).encode())
            got = [consumer.receive(60_000) for _ in range(10)]
            assert [message.data() for message in got] == [b"%d" % each for each in range(10)]
            for message in got:
                consumer.acknowledge(message)


def refusals(secured: Secured, over: str) -> int:
    """Connections, or requests, of clients that did not prove who they are; a page that took long
    is kept for a moment.
    """
    _, metrics = secured.request(0, "GET", "/metrics")
    lines = [line for line in metrics.splitlines() if line.startswith(REFUSED)]
    (line,) = [line for line in lines if f'over="{over}"' in line]
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.parametrize("credentials", [FORGED, EXPIRED, "x.y.z", ""])
def test_who_proves_nothing_is_refused(secured: Secured, credentials: str) -> None:
    """Over the binary protocol the client reads no error before CONNECTED: it comes again until its
    own timeout, and is refused each time.
    """
    before = {over: refusals(secured, over) for over in OVER}
    with (
        client(secured, credentials, timeout_s=1) as refused,
        pytest.raises((pulsar.Timeout, pulsar.ConnectError)),
    ):
        refused.create_producer(TOPIC)
    wait_for(lambda: refusals(secured, "binary") > before["binary"], "it is counted")
    with (
        client(secured, credentials, url=secured.web_url) as refused,
        pytest.raises(pulsar.ConnectError),
    ):
        refused.create_producer(TOPIC)
    wait_for(lambda: refusals(secured, "http") > before["http"], "it is counted")


def test_who_has_no_permission_is_refused(secured: Secured) -> None:
    """A reader may not produce, a writer not consume, a stranger nothing; a superuser all."""
    for role in ("reader", "stranger"):
        with client(secured, token(role)) as refused, pytest.raises(pulsar.AuthorizationError):
            refused.create_producer(TOPIC)
    for role in ("writer", "stranger"):
        with client(secured, token(role)) as refused, pytest.raises(pulsar.AuthorizationError):
            refused.subscribe(TOPIC, "s")
    with client(secured, token(ADMIN)) as admitted:
        consumer = admitted.subscribe(TOPIC, "s")
        admitted.create_producer(TOPIC).send(b"x")
        assert consumer.receive(60_000).data() == b"x"


def _may_subscribe(client: pulsar.Client) -> bool:
    try:
        client.subscribe(TOPIC, "leaving").close()
    except pulsar.AuthorizationError:
        return False
    return True


def _send_on(producer: pulsar.Producer) -> None:
    """Until the client says that it cannot, or for long."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        producer.send(b"after")


def test_a_permission_that_is_taken_away(secured: Secured) -> None:
    """The stock client's producer is closed, its next messages are not taken, and it may not attach
    another one.
    """
    secured.permit("leaving", ["produce", "consume"])
    with client(secured, token("leaving")) as leaving:
        wait_for(lambda: _may_subscribe(leaving), "the broker hears of the permission")
        consumer = leaving.subscribe(TOPIC, "leaving")
        producer = leaving.create_producer(TOPIC, send_timeout_millis=8_000)
        producer.send(b"before")
        assert consumer.receive(60_000).data() == b"before"
        path = f"/admin/v2/namespaces/{NAMESPACE}/permissions/leaving"
        assert secured.request(0, "DELETE", path)[0] == 204
        with pytest.raises(pulsar.PulsarException):
            _send_on(producer)
        with pytest.raises(pulsar.AuthorizationError):
            leaving.create_producer(TOPIC)


def test_a_client_that_does_not_trust_the_broker(secured: Secured, tmp_path: Path) -> None:
    """It sends nothing."""
    stranger = Authority(tmp_path, "stranger").trust
    with (
        client(secured, token(ADMIN), trust=stranger) as wary,
        pytest.raises(pulsar.PulsarException),
    ):
        wary.create_producer(TOPIC)


def test_no_token_and_no_key_is_told(secured: Secured) -> None:
    """Not in the log of the broker that was asked all this, nor on its real `/metrics`."""
    status, metrics = secured.request(0, "GET", "/metrics")
    assert status == 200
    assert "loadmanager_bundles" in metrics
    log = secured.log_of("broker-0").read_text(errors="replace")
    assert "ready" in log
    key = secured.settings(0)["tokenSecretKey"].rpartition(",")[2]
    for secret in (key, SECRET.decode(), FORGED, EXPIRED, token(ADMIN), token("writer")):
        assert secret not in log
        assert secret not in metrics
