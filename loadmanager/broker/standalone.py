"""A cluster on one machine: a metadata store, the brokers, and their supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from loadmanager.broker.initialize import initialize_cluster
from loadmanager.broker.settings import KEYS, check
from loadmanager.kit.addresses import bracketed
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.files.properties import read_properties, write_private
from loadmanager.kit.free_port import require_free_port
from loadmanager.kit.logger import get_logger
from loadmanager.kit.logs import configure, say
from loadmanager.kit.supervisor import Supervisor
from loadmanager.kit.system.broker_process import BrokerProcess
from loadmanager.kit.system.ending import Ending
from loadmanager.kit.system.folder_lock import locked
from loadmanager.kit.system.notify import NotifySocket
from loadmanager.kit.system.sampler import NET, nic_limit
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.zookeeper.local import LocalStore, local_store
from loadmanager.member.settings import BrokerSettings

STOP_MARGIN_S = 5.0
STORE_S = 30.0
"""The metadata store starts or stops within this."""
LOCK = "standalone.lock"
HOST = "127.0.0.1"
PORTS = 1 << 16
TLS_PORTS = ("brokerServicePortTls", "webServicePortTls")
"""Keys with a port of broker 0, if they are set; broker i takes that port plus i."""
BOTH = ", for standalone has a port without TLS beside each one with it"
PORT_ADVICE = (
    "choose another --pulsar-port, --http-port or --zookeeper-port (broker i takes the first two "
    "plus i)"
)
NIC_SPEED = "loadBalancerOverrideBrokerNicSpeedGbps"
NIC_SPEED_ASSUMED = "10"
"""Clients of a cluster on one machine mostly come over loopback, which is no slower."""
NAMESPACE = "public/default"
NAMESPACE_BUNDLES = 16

log = get_logger("standalone")

DEFAULTS = {
    "clusterName": "standalone",
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    # The brokers share the machine: each reports its own usage of the one core that it can use.
    "loadBalancerSamplingScope": "process",
    "metadataStoreSessionTimeoutMillis": "6000",
    # A person who tries out a cluster wants to see it react.
    "loadBalancerHostUsageCheckIntervalMinutes": "0.05",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "statsUpdateFrequencyInSecs": "5",
    "brokerShutdownTimeoutMs": "10000",
}
"""Other defaults than those of broker.conf; a config file and --set override them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """The number of brokers to start, and their ports: broker i on `pulsar_port + i` and `http_port
    + i`.
    """

    brokers: int
    pulsar_port: int
    http_port: int
    zookeeper_port: int
    data_dir: Path
    config: Path | None
    overrides: Mapping[str, str]
    log_format: str | None
    zookeeper: str | None = None
    """The kind of the metadata store, of `kit.zookeeper.local`; None: the folder decides."""
    restart: bool = True
    """Start a broker or the metadata store again when it dies."""


def run_standalone(options: StandaloneOptions) -> int:
    """Run until SIGINT or SIGTERM; returns the exit status.

    Raises `ConfigError` or `OperationalError` when it cannot start.
    """
    as_json = (
        not sys.stderr.isatty() if options.log_format is None else options.log_format == "json"
    )
    _require_ports(options)
    loaded = KEYS.load(None, _settings(options, 0))
    check(loaded)
    if options.brokers > 1 and loaded.leaf(BrokerSettings).advertised_listeners:
        raise ConfigError(
            "advertisedListeners has the addresses of one broker; this is a cluster of "
            f"{options.brokers}: choose --brokers 1"
        )
    configure(loaded.leaf(BrokerSettings).log_level, json=as_json)
    broker_s = loaded.leaf(BrokerSettings).shutdown_timeout_ms / 1000
    with Ending(lambda: broker_s + 2 * STOP_MARGIN_S + STORE_S) as ending:
        return asyncio.run(_run_until_signalled(options, ending, as_json=as_json))


def with_nic_speed(
    options: StandaloneOptions, sampling: SamplerSettings, net: Path = NET
) -> StandaloneOptions:
    """The same, with a speed of the network card where the system knows none: brokers that share
    their machine need not each warn of it.
    """
    _, unknown = nic_limit(sampling, net)
    if not unknown:
        return options
    log.info(
        f"the network card is taken for one of {NIC_SPEED_ASSUMED} Gbit/s", reason=unknown[0].reason
    )
    return replace(options, overrides={**options.overrides, NIC_SPEED: NIC_SPEED_ASSUMED})


async def _run_until_signalled(options: StandaloneOptions, ending: Ending, *, as_json: bool) -> int:
    """Run; a signal ends it also before the metadata store is ready."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    ending.listen(task.cancel)
    try:
        return await _run(options, ending, as_json=as_json)
    except asyncio.CancelledError:
        if not ending.signalled:
            raise
        return 0


async def _run(options: StandaloneOptions, ending: Ending, *, as_json: bool) -> int:
    started_s = time.monotonic()
    with locked(options.data_dir, LOCK, "choose another --data-dir"):
        _require_free_ports(options)
        sampling = KEYS.load(None, _settings(options, 0)).leaf(SamplerSettings)
        options = with_nic_speed(options, sampling)
        store = local_store(
            options.zookeeper, port=options.zookeeper_port, data_dir=options.data_dir
        )
        with (
            tempfile.TemporaryDirectory(prefix="loadmanager-") as folder,
            NotifySocket(Path(folder, "notify")) as notify,
        ):
            brokers = [_broker(options, index, notify.path) for index in range(options.brokers)]
            supervisor = Supervisor(store, brokers, restart=options.restart)
            async with store:
                await initialize_cluster(
                    KEYS.load(None, _settings(options, 0)), {NAMESPACE: NAMESPACE_BUNDLES}
                )
                ending.listen(supervisor.on_signal)
                return await supervisor.run(
                    notify.ready(),
                    lambda: welcome(options, store, time.monotonic() - started_s, as_json=as_json),
                )


def _broker(options: StandaloneOptions, index: int, notify: Path) -> BrokerProcess:
    settings, keys = _settings(options, index), KEYS.by_name()
    shutdown_timeout_ms = KEYS.load(None, settings).leaf(BrokerSettings).shutdown_timeout_ms
    config = options.data_dir / f"broker-{index}.conf"
    secrets = {name for name in settings if name in keys and keys[name].key.secret}
    write_private(config, {name: settings[name] for name in sorted(secrets)})
    return BrokerProcess(
        f"broker {index}",
        {name: text for name, text in settings.items() if name not in secrets},
        config=config if secrets else None,
        notify=notify,
        log_format=options.log_format,
        stop_timeout_s=shutdown_timeout_ms / 1000 + STOP_MARGIN_S,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _is_any(settings: Mapping[str, str]) -> bool:
    """Whether brokers listen on all addresses of the machine: then they have no other one."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(settings["bindAddress"]).is_unspecified
    return False


def _settings(options: StandaloneOptions, index: int) -> dict[str, str]:
    given = read_properties(options.config) if options.config else {}
    chosen = {
        **DEFAULTS,
        "loadManagerHistoryDirectory": str(options.data_dir / "history"),
        "loadManagerStorageDirectory": str(options.data_dir / "topics"),
        "loadManagerMetadataStoreDirectory": str(options.data_dir),
        **{name: text for name, text in given.items() if text.strip()},
        **options.overrides,
        "metadataStoreUrl": f"zk:{HOST}:{options.zookeeper_port}",
        "brokerServicePort": str(options.pulsar_port + index),
        "webServicePort": str(options.http_port + index),
    }
    own = {name for name, text in {**given, **options.overrides}.items() if text.strip()}
    if "bindAddress" in own and "advertisedAddress" not in own and not _is_any(chosen):
        chosen["advertisedAddress"] = chosen["bindAddress"]
    tls = {name: chosen[name] for name in TLS_PORTS if _is_number(chosen.get(name, ""))}
    return chosen | {name: str(int(text) + index) for name, text in tls.items()}


def _broker_ports(options: StandaloneOptions) -> dict[str, range]:
    """The option or key that decides it → the ports of the brokers."""
    given = _settings(options, 0)
    firsts = {"--pulsar-port": options.pulsar_port, "--http-port": options.http_port}
    firsts |= {name: int(given[name]) for name in TLS_PORTS if _is_number(given.get(name, ""))}
    return {name: range(first, first + options.brokers) for name, first in firsts.items()}


def _require_ports(options: StandaloneOptions) -> None:
    store = options.zookeeper_port
    wanted = _broker_ports(options) | {"--zookeeper-port": range(store, store + 1)}
    by: dict[int, str] = {}
    for name, ports in wanted.items():
        for port in ports:
            if not 0 < port < PORTS:
                raise ConfigError(f"port {port}: 1 to {PORTS - 1} is allowed; {PORT_ADVICE}")
            other = by.setdefault(port, name)
            if other != name:
                also = BOTH if name in TLS_PORTS else ""
                by_both = f"by {other} and {name}{also}"
                raise ConfigError(f"port {port} is needed twice, {by_both}; {PORT_ADVICE}")


def _require_free_ports(options: StandaloneOptions) -> None:
    host = _settings(options, 0)["bindAddress"]
    for port in chain.from_iterable(_broker_ports(options).values()):
        require_free_port(host, port, f"is another cluster running? Else {PORT_ADVICE}")


def broker_urls(options: StandaloneOptions) -> list[tuple[str, str]]:
    """Where each broker is reached, by Pulsar's protocol and by HTTP: what it advertises."""
    host = bracketed(_settings(options, 0)["advertisedAddress"].strip() or socket.getfqdn())
    return [
        (
            f"pulsar://{host}:{options.pulsar_port + index}",
            f"http://{host}:{options.http_port + index}",
        )
        for index in range(options.brokers)
    ]


ACCESS = (
    ' --token "$TOKEN"',
    ' -H "Authorization: Bearer $TOKEN"',
    ", with the token of a role that may do this in $TOKEN",
)
"""For commands, for curl, and of both: what a cluster asks for whose clients prove who they are."""


def first_steps(options: StandaloneOptions) -> str:
    """Commands to begin with."""
    web = broker_urls(options)[0][1]
    secured = _settings(options, 0).get("authenticationEnabled", "").strip().lower() == "true"
    token, header, note = ACCESS if secured else ("", "", "")
    return f"""Try in a second terminal{note}:
  {_command()} admin --url {web}{token} bundles list
  curl{header} {web}/lookup/v2/topic/persistent/public/default/my-topic
  curl{header} {web}/admin/v2/brokers/leaderBroker"""


def welcome(
    options: StandaloneOptions, store: LocalStore, seconds: float, *, as_json: bool
) -> None:
    """Say that the cluster is ready, and how to use it, without waiting for who reads it: the
    process has the metadata store.
    """
    head = f"loadmanager is ready after {seconds:.1f} s"
    brokers = broker_urls(options)
    if as_json:
        log.info(head, zookeeper=f"{HOST}:{options.zookeeper_port}", brokers=brokers)
        return
    web = brokers[0][1]
    pulsar = "pulsar://" + ",".join(url.removeprefix("pulsar://") for url, _ in brokers)
    lines = "\n".join(f"  broker {i}    {'    '.join(urls)}" for i, urls in enumerate(brokers))
    say(
        f"""
{head}.

  metadata    zk:{HOST}:{options.zookeeper_port}    ({store.title})
{lines}

The page:  {web}/ui

{first_steps(options)}
  stock Pulsar clients: {pulsar}   (README.md has a ten-line example)

Ctrl-C stops everything.
"""
    )


def _command() -> str:
    """This installation's `loadmanager`, as a terminal in this folder can call it."""
    script, folder = Path(sys.executable).with_name("loadmanager"), Path.cwd()
    if not script.exists():
        return "loadmanager"
    return str(script.relative_to(folder) if script.is_relative_to(folder) else script)
