"""Pulsar's own balancing, which must be off while the daemon acts: which of its switches are on,
how they are switched, and how Pulsar gets it back from a daemon that ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.steer.pulsar.client import PulsarClient

SHEDDING = "loadBalancerSheddingEnabled"
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
OWN_BALANCING = (SHEDDING, SPLITTING)
"""Pulsar's own switches that must be off while somebody else moves bundles."""

log = get_logger("fleet")


def switches_on(settings: Mapping[str, str]) -> list[str]:
    """Pulsar's own switches that are on in these settings, which is the default."""
    return [name for name in OWN_BALANCING if settings.get(name, "true") != "false"]


def switch_command(name: str, *, on: bool) -> str:
    """The `pulsar-admin` command line that switches one of Pulsar's own on or off."""
    value = str(on).lower()
    return f"pulsar-admin brokers update-dynamic-config --config {name} --value {value}"


async def switch_on(client: PulsarClient, cluster: str) -> None:
    """Have Pulsar balance itself. Raises `OperationalError` if a switch, or all, stay off."""
    problems = []
    for name in OWN_BALANCING:
        try:
            await client.send("POST", f"/admin/v2/brokers/configuration/{name}/true")
        except OperationalError as error:
            problems.append(str(error))
        else:
            log.info("Pulsar's own is on again", cluster=cluster, setting=name)
    if problems:
        raise OperationalError("; ".join(problems))


async def hand_back(
    client: PulsarClient, cluster: str, off: Sequence[str], *, restore: bool
) -> None:
    """Have Pulsar balance itself again if its switches are `off`, or say how an operator does."""
    if not off:
        return
    commands = "; ".join(switch_command(name, on=True) for name in off)
    if not restore:
        log.warning("Pulsar's own stays off", cluster=cluster, switch_on=commands)
        return
    try:
        await switch_on(client, cluster)
    except LoadManagerError as error:
        log.error("Pulsar's own stays off", error=str(error), do=commands)
