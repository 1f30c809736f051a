"""The admin API over TLS only: brokers ask each other so, redirects stay with it, and the command
line follows them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, Served, serving
from clusters.running import until
from kit.security.certificates import Authority
from structlog.testing import capture_logs

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.peers import HttpPeers
from loadmanager.cli import main
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.security.tls import client_context

FIRST = f"{ORDERS}/0x00000000_0x40000000"


async def admin(served: Served, *words: str, **files: Path) -> int:
    """Exit status of a command that asks broker 0."""
    options = [f"--{name.replace('_', '-')}={file}" for name, file in files.items()]
    with capture_logs():
        return await asyncio.to_thread(
            main, ["admin", *words, "--url", served.url(0), "--timeout", "60", *options]
        )


async def test_brokers_and_operators_over_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A move from one broker to the other, asked of the wrong one; a lookup; every broker's
    report.
    """
    authority = Authority(tmp_path)
    tls = (authority.server(authority.issue("broker")), authority.client())
    async with serving(2, tls=tls) as served:
        await served.own(FIRST)
        path = f"/admin/v2/namespaces/{FIRST}/unload?destinationBroker={served.broker_id(1)}"
        answer = await served.ask("PUT", path, at=1)
        assert (answer.status, answer.headers["Location"]) == (307, served.url(0) + path)
        assert (await served.ask("PUT", path)).status == 204
        assert served.owners()[FIRST] == served.broker_id(1)

        assert answer.headers["Strict-Transport-Security"].startswith("max-age=")

        found = await served.get("/lookup/v2/topic/persistent/acme/orders/t?authoritative=true")
        assert found["brokerUrl"] == found["httpUrl"] == ""
        assert found["brokerUrlTls"].startswith("pulsar+ssl://127.0.0.1:")
        assert found["httpUrlTls"].startswith("https://127.0.0.1:")
        assert set(await served.get("/loadmanager/v1/addresses")) == {
            served.broker_id(0),
            served.broker_id(1),
        }

        trust = {"tls_trust_certs": authority.trust}
        capsys.readouterr()
        assert await admin(served, "brokers", "report", "--json", **trust) == 0
        reports: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert reports[served.broker_id(1)]["webServiceUrlTls"] == served.url(1)
        assert "webServiceUrl" not in {k for k, v in reports[served.broker_id(1)].items() if v}
        words = ("bundles", "unload", FIRST, "--to", served.broker_id(0))
        assert await admin(served, *words, **trust) == 0
        assert served.owners()[FIRST] == served.broker_id(0)

        assert await admin(served, "brokers", "list") == 1
        assert "is not trusted" in (said := capsys.readouterr().err)
        assert "--tls-trust-certs FILE names the authority that signed its certificate" in said
        nowhere = tmp_path / "nowhere.pem"
        assert await admin(served, "brokers", "list", tls_trust_certs=nowhere) == 2
        assert "nowhere.pem: No such file" in capsys.readouterr().err


async def test_a_command_with_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where clients must have one; without, the broker hangs up, and the command says why."""
    authority = Authority(tmp_path)
    broker, operator = authority.issue("broker"), authority.issue("operator")
    tls = (authority.server(broker, clients=True), authority.client(broker))
    async with serving(1, tls=tls) as served:
        trust = {"tls_trust_certs": authority.trust}
        assert await admin(served, "brokers", "list", **trust) == 1
        assert "wants a certificate that it trusts (--tls-cert and" in capsys.readouterr().err
        files = {**trust, "tls_cert": operator.certificate, "tls_key": operator.key}
        assert await admin(served, "brokers", "list", **files) == 0
    assert served.broker_id(0) in capsys.readouterr().out


async def test_a_broker_that_is_not_the_one(tmp_path: Path) -> None:
    """A broker tells nothing to one whose certificate is a stranger's, or for another name; unless
    it is told not to look at the name. What is meant for TLS is not sent without.
    """
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "x", "stranger")
    elsewhere = authority.issue("broker", hosts=("elsewhere.example.com",))
    tls = (authority.server(elsewhere), _careless(authority))
    async with serving(1, tls=tls) as served:
        await served.own(FIRST)
        owner = served.brokers[0].address
        for context, refused in (
            (authority.client(), True),
            (stranger.client(), True),
            (_careless(authority), False),
        ):
            calls = Calls(dict, context)
            peers = HttpPeers(calls, release_timeout_s=lambda: 5)
            try:
                asked = peers.served_bundles(owner)
                if refused:
                    with pytest.raises(OperationalError, match="cannot be reached"):
                        await asked
                else:
                    assert set(await asked) == {FIRST}
            finally:
                await calls.close()
        plain = BrokerAddress(owner.broker_id, "", "http://127.0.0.1:1")
        with pytest.raises(OperationalError, match="has no webServicePortTls"):
            Calls(dict, authority.client()).url(plain)
        with pytest.raises(OperationalError, match="over TLS only"):
            Calls().url(owner)


def _careless(authority: Authority) -> Any:
    settings = BrokerClientTlsSettings(trust=str(authority.trust), verify_host=False)
    return client_context(settings, TlsSettings())


async def test_from_tls_to_a_port_without(tmp_path: Path) -> None:
    """A client that came over TLS is not sent to a broker without it."""
    authority = Authority(tmp_path)
    tls = (authority.server(authority.issue("broker")), authority.client())
    async with serving(1, tls=tls) as served:
        await served.cluster.report("b:8080")
        await until(lambda: "b:8080" in served.brokers[0].use.brokers.registered)
        answer = await served.ask("GET", "/admin/v2/brokers/health?brokerId=b:8080")
        assert (answer.status, answer.reason) == (503, "b:8080 has no webServicePortTls")
