"""`loadmanager admin groups …`: limits that the topics of several namespaces share."""

from __future__ import annotations

from urllib.parse import quote

import click

from loadmanager.cli.admin.asking import V2, namespace_path
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, unchanged
from loadmanager.cli.admin.past_documents import listed_then
from loadmanager.cli.admin.shapes import Names
from loadmanager.cli.admin.times import at_option
from loadmanager.cli.options import Decorator
from loadmanager.cli.terminal import table
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.metadata import paths

Rates = dict[str, int | None]
RATES = {
    "publish_messages": "publishRateInMsgs",
    "publish_bytes": "publishRateInBytes",
    "dispatch_messages": "dispatchRateInMsgs",
    "dispatch_bytes": "dispatchRateInBytes",
}
"""Option → field of a resource group."""
group = AdminGroup(
    "groups", help="Resource groups, whose namespaces share limits: list, set, delete, join, leave."
)
_group = click.argument("name", metavar="GROUP")
_namespace = click.argument("namespace", metavar="TENANT/NAMESPACE")


def _path(name: str) -> str:
    return f"{V2}/resourcegroups/{quote(name, safe='')}"


def _rate(of: str, unit: str) -> Decorator:
    return click.option(
        f"--{of}-{unit}", type=int, metavar="N", help=f"{unit} per second to {of}; -1: unlimited"
    )


@group.command("list")
@at_option
def groups_list(admin: AdminClient, at: int | None) -> Output:
    """List the resource groups with their limits per second; with --at, as they were."""
    names = admin.get(f"{V2}/resourcegroups", Names)
    groups = {name: admin.get(_path(name), Rates) for name in names}
    if at is not None:
        return listed_then(admin, paths.RESOURCE_GROUPS, groups, at)
    rows = [
        (name, *(_limited(limits.get(field)) for field in RATES.values()))
        for name, limits in sorted(groups.items())
    ]
    headers = ("group", *(option.replace("_", " ") + "/s" for option in RATES))
    return Output(groups, table(headers, rows) if rows else "no resource group")


def _limited(rate: int | None) -> int | None:
    return rate if rate is not None and rate > 0 else None


@group.command("set")
@_group
@_rate("publish", "messages")
@_rate("publish", "bytes")
@_rate("dispatch", "messages")
@_rate("dispatch", "bytes")
def groups_set(admin: AdminClient, name: str, **rates: int | None) -> Output:
    """Create a resource group, or change its limits; those that are not given stay."""
    changes = {RATES[option]: rate for option, rate in rates.items() if rate is not None}
    if not changes:
        raise BadInputError("give a limit, such as --publish-messages 1000")
    names = admin.get(f"{V2}/resourcegroups", Names)
    rates_before = admin.get(_path(name), Rates) if name in names else {}
    limits = {**rates_before, **changes}
    if rates_before == limits:
        return unchanged(f"{name} has these limits already", group=name, limits=limits)
    admin.send("PUT", _path(name), limits)
    return done(f"{name} set", group=name, limits=limits)


@group.command("delete")
@_group
def groups_delete(admin: AdminClient, name: str) -> Output:
    """Delete a resource group that no namespace is in."""
    admin.send("DELETE", _path(name))
    return done(f"{name} deleted")


@group.command("join")
@_namespace
@_group
def groups_join(admin: AdminClient, namespace: str, name: str) -> Output:
    """Let the topics of a namespace share the limits of a group; it leaves its present one."""
    path = f"{namespace_path(namespace)}/resourcegroup"
    if admin.text(path) == name:
        return unchanged(f"{namespace} shares the limits of {name} already", namespace=namespace)
    admin.send("POST", f"{path}/{quote(name, safe='')}")
    return done(f"{namespace} shares the limits of {name}", namespace=namespace, group=name)


@group.command("leave")
@_namespace
def groups_leave(admin: AdminClient, namespace: str) -> Output:
    """Let a namespace leave its resource group."""
    path = f"{namespace_path(namespace)}/resourcegroup"
    present = admin.text(path)
    if not present:
        raise OperationalError(f"{namespace} is in no resource group: nothing was changed")
    admin.send("DELETE", path)
    return done(f"{namespace} left {present}", namespace=namespace, left=present)
