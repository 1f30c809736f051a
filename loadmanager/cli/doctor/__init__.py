"""`loadmanager doctor`: what is wrong with this host, this cluster, these settings; what to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from loadmanager.broker.settings import KEYS
from loadmanager.cli.admin import contexts
from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import CREDENTIALS, URL, client, given_token
from loadmanager.cli.doctor import asking, cluster, configuration, here, host, security, zookeeper
from loadmanager.cli.doctor.findings import Diagnosis, Severity, ordered, problem
from loadmanager.cli.options import FILE, Command, overrides
from loadmanager.cli.terminal import show, table
from loadmanager.kit.errors import ConfigError, LoadManagerError
from loadmanager.kit.files.properties import read_properties
from loadmanager.kit.settings import HIDDEN, Settings
from loadmanager.kit.zookeeper.ensemble import ServerShown, read
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings

EXAMPLES = """examples:
  loadmanager doctor                                  this host, and the cluster at localhost:8080
  loadmanager doctor --url http://broker-1:8080 --json
  loadmanager doctor --url https://broker-1:8080 --tls-trust-certs ca.pem --security
  loadmanager doctor --config /etc/loadmanager/broker.conf      this host and a file; asks nobody

Exit status: 0 nothing to do, 1 at least one problem, 2 bad usage, 3 warnings only.
"""
TIMEOUT_S = 5.0
STATUS = {Severity.PROBLEM: 1, Severity.WARNING: 3, Severity.FINE: 0}


class _Doctor(Command):
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, last = super().get_params(ctx)  # the last one is --help
        return [*own, *CREDENTIALS, last]


@click.command(cls=_Doctor, epilog=EXAMPLES)
@click.option(
    "--url", help=f"HTTP address of any broker (default: as `admin use` says, else {URL})"
)
@click.option("--config", type=FILE, metavar="FILE", help="look at this broker.conf")
@overrides
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=60),
    default=TIMEOUT_S,
    metavar="S",
    help="seconds to wait for each answer",
)
@click.option("--security", "secure", is_flag=True, help="also say how far the cluster is secured")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(
    *,
    url: str | None,
    config: Path | None,
    overrides: dict[str, str],
    timeout: float,
    secure: bool,
    as_json: bool,
) -> int:
    """Say what is wrong with this host, its cluster and the settings, and what to do.

    With --config and without --url it looks at this host and the file, and asks no broker and no
    ZooKeeper. Dead brokers and servers cost a few times --timeout, however many there are.
    """
    findings: list[Diagnosis] = []
    alone = config is not None or bool(overrides)
    if url is not None and overrides and config is None:
        raise click.UsageError(
            "--set changes what --config says; with --url alone, the brokers tell their settings"
        )
    settings = _file(config, overrides, findings) if alone else None
    machine = host.read(settings)
    findings += host.check(machine)
    if settings is not None:
        findings += configuration.check(settings)
    if alone:
        findings += host.check_nic(machine)
    if url is not None or not alone:
        stored = contexts.load()
        asks = partial(
            client, url or stored.url or URL, timeout_s=timeout, trust=stored.trust_of(url)
        )
        stranger = asks(anonymous=True) if secure else None
        findings += _cluster(asks(), machine, stranger, timeout_s=timeout, alone=alone)
    findings = ordered(findings)
    worst = findings[0].level if findings else Severity.FINE
    if as_json:
        print(json.dumps(_document(findings), indent=2))
    else:
        _print(findings)
        if secure:
            show(security.score(findings))
    return STATUS[worst]


def _file(
    config: Path | None, overrides: dict[str, str], findings: list[Diagnosis]
) -> Settings | None:
    """The settings; None, with a finding, when a broker would not start with them.

    Raises `ConfigError` for a file that cannot be read.
    """
    if config is not None:
        read_properties(config)
    try:
        return KEYS.load(config, overrides)
    except ConfigError as error:
        advice = "give --set a value that is allowed; the other checks of settings are left out"
        if config is not None:
            advice = (
                f"loadmanager config check {config} lists all that is wrong; the other checks of "
                "settings are left out"
            )
        subject = "--set" if config is None else str(config)
        findings.append(problem(configuration.PART, subject, str(error), advice))
        return None


def _cluster(
    admin: AdminClient,
    machine: host.Host,
    stranger: AdminClient | None,
    *,
    timeout_s: float,
    alone: bool,
) -> Iterator[Diagnosis]:
    """`stranger`: a client that does not say who it is, to find out how secure the cluster is.
    `alone`: this machine was looked at by the settings of a file.
    """
    answers = asking.read(admin)
    yield from cluster.check(answers)
    if not alone:
        yield from here.check_speed(machine, answers.brokers.values(), here.names())
    yield from here.check(machine, answers.leaders_view, here.names())
    if stranger is not None:
        yield from security.check(answers.brokers, stranger, given_token(), answers.left_out)
    running = next(
        (broker.settings for broker in answers.brokers.values() if broker.settings), None
    )
    if running is None:
        return
    hidden = {name for name, text in running.items() if text == HIDDEN}
    shown = {name: text for name, text in running.items() if name not in hidden}
    try:
        settings = KEYS.load(None, shown)
    except ConfigError as error:
        text = f"this doctor does not understand the settings of the brokers: {error}"
        advice = "use the doctor of the same version as the brokers"
        yield problem(configuration.PART, admin.url, text, advice)
        return
    yield from configuration.check(settings, len(answers.brokers), hidden)
    store = settings.leaf(ZooKeeperSettings)
    servers = _servers(admin, store.hosts, timeout_s)
    yield from zookeeper.check(servers, store.session_timeout_ms)


def _servers(admin: AdminClient, hosts: str, timeout_s: float) -> list[ServerShown]:
    """The servers as a broker reaches them: this host may not. Brokers of version 0.3.0 cannot be
    asked; then this host asks.
    """
    try:
        return admin.get(f"{OWN}/ensemble", list[ServerShown])
    except LoadManagerError:
        return read(hosts, timeout_s)


def _document(findings: list[Diagnosis]) -> dict[str, object]:
    return {
        "worst": findings[0].level.value if findings else Severity.FINE.value,
        "findings": [
            {**dataclasses.asdict(finding), "level": finding.level.value} for finding in findings
        ],
    }


def _print(findings: list[Diagnosis]) -> None:
    rows = [
        (
            finding.level.value,
            f"{finding.part}: {finding.subject}",
            finding.text,
            finding.advice,
        )
        for finding in findings
    ]
    problems, warnings = (
        sum(finding.level is level for finding in findings)
        for level in (Severity.PROBLEM, Severity.WARNING)
    )
    counted = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((problems, "problem"), (warnings, "warning"))
        if count
    ]
    end = " and ".join(counted) or "nothing to do"
    show(table(("level", "where", "finding", "advice"), rows), end)
