"""`loadmanager fleet`: beside a running Apache Pulsar cluster."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from loadmanager.cli.options import FILE, Command, CommandGroup, host_and_port, log_format
from loadmanager.kit.errors import ConfigError
from loadmanager.steer.commands import one_snapshot, restore, restore_when_silent
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.ports.producing import Producing
from loadmanager.steer.process import run_fleet
from loadmanager.steer.settings_file import ClusterSettings, clusters, read_file

EXAMPLES = """examples:
  loadmanager fleet --pulsar http://broker-1:8080 --token-file /etc/pulsar/admin.token
  loadmanager fleet --pulsar http://broker-1:8080 --mode advise --set shadowStrategies=AvgShedder
  loadmanager fleet --config /etc/loadmanager/fleet.conf
  loadmanager fleet --pulsar http://broker-1:8080 snapshot | loadmanager decide --explain
  loadmanager fleet --config /etc/loadmanager/fleet.conf gained --cluster east --days 7
  loadmanager fleet --config /etc/loadmanager/fleet.conf restore --cluster east
  loadmanager fleet --config /etc/loadmanager/fleet.conf restore --when-silent 180

While it runs:
  curl -s http://127.0.0.1:8090/loadmanager/v1/fleet      what it knows, and how old that is
  curl -s http://127.0.0.1:8090/loadmanager/v1/advice     what it would do, with the commands
  loadmanager admin decisions --url http://127.0.0.1:8090

observe and advise send nothing but reads. Exit status: 0 stopped, 1 failed, 2 the settings are
wrong.
"""


LoadClusters = Callable[[], list[ClusterSettings]]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@click.group(cls=CommandGroup, epilog=EXAMPLES, invoke_without_command=True)
@click.option("--config", type=FILE, metavar="FILE", help="clusters, a section each")
@click.option("--pulsar", metavar="URL[,URL…]", help="HTTP addresses of some brokers")
@click.option("--token-file", metavar="FILE", help="a superuser's token; read for each request")
@click.option(
    "--mode",
    type=click.Choice(("observe", "advise", "approve", "act")),
    help="what it does (default: observe)",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="set a key; may repeat"
)
@click.option("--data-dir", type=FILE, default="data/fleet", help="history, lock, pins and pause")
@click.option(
    "--listen",
    default="127.0.0.1:8090",
    callback=host_and_port,
    metavar="HOST:PORT",
    help="HTTP API; a further cluster has the next port. Orders need a token, or apiSocket",
)
@click.option(
    "--open",
    "to_all",
    is_flag=True,
    help="allow --listen on other addresses than loopback without tokens: whoever reaches it may "
    "read everything",
)
@log_format
@click.pass_context
def command(
    ctx: click.Context,
    *,
    config: Path | None,
    pulsar: str | None,
    token_file: str | None,
    mode: str | None,
    overrides: Sequence[str],
    data_dir: Path,
    listen: tuple[str, int],
    to_all: bool,
    log_format: str | None,
) -> int:
    """Watch Pulsar clusters, say what to move and why, and move it when allowed to."""
    given = {"pulsar": pulsar, "tokenFile": token_file, "mode": mode}
    values = {key: text for key, text in given.items() if text is not None}
    for pair in overrides:
        key, separator, text = pair.partition("=")
        if not separator:
            raise ConfigError(f"--set {pair}: key=value is expected")
        values[key.strip()] = text
    ctx.obj = partial(_clusters, config, values)
    if ctx.invoked_subcommand is not None:
        return 0
    clusters = ctx.obj()
    proven = all(cluster.has_tokens for cluster in clusters)
    if not to_all and not proven and not _is_loopback(listen[0]):
        raise ConfigError(
            f"--listen {listen[0]}: the API asks for no token; choose a loopback address, set "
            "tokenSecretKey or tokenPublicKey, or add --open if everybody who reaches it may read "
            "everything"
        )
    own = (sys.executable, "-m", "loadmanager", *sys.argv[1:])
    options = FleetOptions(
        data_dir, listen, log_format=log_format, own_command=own, producing=_producing(clusters)
    )
    return run_fleet(clusters, options)


@command.command(cls=Command)
@click.option("--cluster", help="which one, if the configuration has several")
@click.pass_obj
def snapshot(load_clusters: LoadClusters, cluster: str | None) -> int:
    """Read a cluster once, and print one line for `loadmanager decide`."""
    click.echo(json.dumps(asyncio.run(one_snapshot(_chosen(load_clusters(), cluster)))))
    return 0


@command.command("gained", cls=Command)
@click.option("--cluster", help="which one, if the configuration has several")
@click.option("--days", default=7, type=click.IntRange(1, 366), help="the last recorded ones")
@click.option("--json", "as_json", is_flag=True, help="every figure of every day, for programs")
@click.pass_context
def gained_(ctx: click.Context, cluster: str | None, days: int, *, as_json: bool) -> int:
    """Say what mode act would have gained on the days that this daemon recorded, as it only
    watched. Exit status 4: none of them tells.
    """
    from loadmanager.cli.gained import report  # numpy: not for the help of other commands

    assert ctx.parent is not None
    chosen = _chosen(ctx.obj(), cluster)
    return report(chosen, ctx.parent.params["data_dir"], days, as_json=as_json)


@command.command("restore", cls=Command)
@click.option("--cluster", help="which one, if the configuration has several")
@click.option(
    "--when-silent",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="wait, and do it each time that a daemon in approve or act, with the same --data-dir, has "
    "given no sign of life for so long",
)
@click.pass_context
def restore_(ctx: click.Context, cluster: str | None, when_silent: float | None) -> int:
    """Switch Pulsar's own shedding and splitting on again, for good or after the daemon died."""
    clusters: list[ClusterSettings] = ctx.obj()
    if when_silent is None:
        asyncio.run(restore(_chosen(clusters, cluster)))
        return 0
    chosen = clusters if cluster is None else [_chosen(clusters, cluster)]
    assert ctx.parent is not None
    asyncio.run(restore_when_silent(chosen, ctx.parent.params["data_dir"], when_silent))
    return 0


def _clusters(config: Path | None, values: dict[str, str]) -> list[ClusterSettings]:
    """Read late: the help of a subcommand needs no cluster."""
    return clusters(read_file(config) if config else {"default": {}}, values)


def _producing(clusters: list[ClusterSettings]) -> Producing | None:
    """What opens the canary's producers, where one is wanted: Pulsar's protocol takes memory."""
    if not any(cluster.fleet.canary_namespace for cluster in clusters):
        return None
    from loadmanager.cli.canary_producer import producing

    return producing


def _chosen(clusters: list[ClusterSettings], cluster: str | None) -> ClusterSettings:
    chosen = [each for each in clusters if cluster in (None, each.name)]
    if len(chosen) != 1:
        names = ", ".join(each.name for each in clusters)
        raise ConfigError(f"--cluster: one of {names} is expected")
    return chosen[0]
