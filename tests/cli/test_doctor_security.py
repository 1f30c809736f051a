"""`loadmanager doctor --security`: points of the page on security, on settings and on brokers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from broker.admin.serving import serving
from kit.security.tokens import ADMIN, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager import cli
from loadmanager.broker import settings
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.bootstrap import SETTINGS, ZOOKEEPER
from loadmanager.cli.doctor import configuration, security
from loadmanager.cli.doctor.asking import BrokerFacts
from loadmanager.cli.doctor.findings import Diagnosis, Severity

ENDS = "loadmanager_tls_certificate_ends_seconds"


def _left(values: dict[str, str]) -> set[str]:
    """The points that are not as they should be."""
    points = [point.diagnosis() for point in security._of_settings(values)]
    return {point.subject for point in points if point.level is not Severity.FINE}


def test_what_bootstrap_makes_is_secure(tmp_path: Path) -> None:
    """All but the disk; a default broker has nothing. What names files is not looked at here."""
    file = tmp_path / "secure.conf"
    file.write_text((SETTINGS + ZOOKEEPER).format(at="/nowhere"))
    loaded = settings.KEYS.load(file)
    assert _left(loaded.runtime()) == {"backlogQuotaDefaultLimitGB"}
    assert len(_left(settings.KEYS.load().runtime())) > 9
    found = [each.subject for each in configuration.check(loaded, 3)]
    assert not {name for name in found if "File" in name or "token" in name}


@pytest.mark.parametrize(("days", "level"), [(15, Severity.FINE), (13, Severity.WARNING)])
def test_certificates_that_end(days: int, level: Severity) -> None:
    """Within two weeks."""
    metrics = {ENDS: {"web": days * 86_400.0, "x": 1e9}, "loadmanager_time_seconds": {"": 0.0}}
    (point,) = security._of_certificates({"b": BrokerFacts(broker="b", metrics=metrics)})
    assert point.diagnosis().level is level


AUTHENTICATED = {"authenticationEnabled": "true", "authorizationEnabled": "true"}


@pytest.mark.parametrize(
    "key", ["anonymousUserRole", "authorizationEnabled", "superUserRoles", "authenticateMetrics"]
)
def test_what_counts_for_nothing_without_authentication(key: str) -> None:
    """Nobody is kept out by roles that nobody must prove."""
    values = {
        "authorizationEnabled": "true",
        "superUserRoles": "a,b",
        "authenticateMetricsEndpoint": "true",
    }
    assert any(subject.startswith(key) for subject in _left(values))
    assert not any(subject.startswith(key) for subject in _left(AUTHENTICATED | values))
    assert "anonymousUserRole" in _left({**AUTHENTICATED, **values, "anonymousUserRole": "me"})


def test_superusers_are_named() -> None:
    """One role that is written twice is one; whose each is, no setting says."""
    one = _points(b=AUTHENTICATED | {"superUserRoles": "admin, admin,"})["superUserRoles"]
    assert one.level is Severity.WARNING
    two = _points(b=AUTHENTICATED | {"superUserRoles": "broker, admin"})["superUserRoles"]
    assert (two.level, two.text.startswith("admin, broker may do everything")) == (
        Severity.FINE,
        True,
    )


@pytest.mark.parametrize(
    ("addresses", "fine"),
    [
        ("", True),
        ("outside:pulsar+ssl://0.0.0.0:6660,outside:https://0.0.0.0:8081", True),
        ("outside:pulsar+ssl://0.0.0.0:6660, outside:http://0.0.0.0:8081", False),
        ("a:PULSAR://[::]:6660", False),
    ],
)
def test_listeners_without_tls(addresses: str, fine: bool) -> None:
    """Of `bindAddresses`, too."""
    assert ("bindAddresses" not in _left({"bindAddresses": addresses})) is fine


class _Shut(AdminClient):
    """A cluster that answers no stranger."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", timeout_s=1)


def _points(left_out: int = 0, **brokers: dict[str, str]) -> dict[str, Diagnosis]:
    facts = {name: BrokerFacts(broker=name, settings=values) for name, values in brokers.items()}
    return {each.subject: each for each in security.check(facts, _Shut(), "", left_out)}


def test_the_broker_that_differs_is_named() -> None:
    """Whichever it is; one that all share is told once, without names."""
    good = AUTHENTICATED | {"brokerServicePort": "", "backlogQuotaDefaultLimitGB": "what?"}
    bad = good | {"authenticationEnabled": "false"}
    for brokers in ({"b1": good, "b2": bad, "b3": good}, {"b1": bad, "b2": good, "b3": good}):
        points = _points(**brokers)
        name = next(name for name, values in brokers.items() if values is bad)
        point = points["authenticationEnabled"]
        assert point.level is Severity.PROBLEM
        assert point.text.endswith(f"; so on {name}, not on all brokers")
        assert points["brokerServicePort"].level is Severity.FINE
        assert "so on" not in points["backlogQuotaDefaultLimitGB"].text
    many = _points(**{f"b{index}": bad for index in range(1, 9)}, c=good)
    assert "so on b1, b2, b3, b4, b5 and 3 more," in many["authenticationEnabled"].text


def test_brokers_without_an_answer_are_not_secure() -> None:
    """Nor are those that were not asked, and none at all."""
    assert _points(b1=AUTHENTICATED)["settings"].level is Severity.FINE
    silent = _points(b1=AUTHENTICATED, b2={})["settings"]
    assert (silent.level, "b2 did not say" in silent.text) == (Severity.PROBLEM, True)
    assert _points(3, b1=AUTHENTICATED)["settings"].level is Severity.PROBLEM
    assert {name: each.level for name, each in _points().items()} == {"settings": Severity.PROBLEM}


async def test_all_brokers_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Are scored, through one of them."""
    values = VALUES | {"backlogQuotaDefaultLimitGB": "<broker>"}
    async with serving(2, values=values, verifier=verifier(), token=token(ADMIN)) as served:
        for url in (served.url(0), served.url(1)):
            words = ["doctor", "--url", url, "--token", token(ADMIN), "--security", "--json"]
            capsys.readouterr()
            with capture_logs():
                await asyncio.to_thread(cli.main, words)
            findings = json.loads(capsys.readouterr().out)["findings"]
            points = {each["subject"]: each for each in findings if each["part"] == "security"}
            point = points["backlogQuotaDefaultLimitGB"]
            assert f"so on {served.broker_id(0)}, not" in point["text"]
            assert point["level"] == "warning"


@pytest.mark.parametrize("credentials", ["", "x", "a.b.c", "a.W10.c", "a.e30.c"])
def test_tokens_without_an_end(credentials: str) -> None:
    """And what is no token."""
    assert security._of_token(credentials).diagnosis().level is Severity.WARNING


async def test_a_stranger_at_the_door(capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor tries without a token, and counts the points."""
    async with serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        words = ["doctor", "--url", served.url(), "--token", token(ADMIN), "--security"]
        with capture_logs():
            await asyncio.to_thread(cli.main, words)
            said = capsys.readouterr().out
            await asyncio.to_thread(cli.main, [*words, "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        points = {each["subject"]: each for each in findings if each["part"] == "security"}
        good = sum(each["level"] == "fine" for each in points.values())
        assert f"security: {good} of {len(points)} points are as they should be" in said
        assert points["GET /admin/v2/tenants"]["text"] == "answers 401 without a token"
        assert points["GET /metrics"]["level"] == "warning"
        assert points["webServicePort"]["level"] == "problem"
