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
from loadmanager.cli.bootstrap import SETTINGS, ZOOKEEPER
from loadmanager.cli.doctor import configuration, security
from loadmanager.cli.doctor.asking import BrokerFacts
from loadmanager.cli.doctor.findings import Severity

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
