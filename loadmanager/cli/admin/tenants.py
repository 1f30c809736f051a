"""`loadmanager admin tenants …`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import Tenant
from loadmanager.cli.admin.asking import V2
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed, unchanged
from loadmanager.cli.admin.past_documents import listed_then
from loadmanager.cli.admin.shapes import Document, Names
from loadmanager.cli.admin.times import at_option
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata import paths

group = AdminGroup("tenants", help="List, create, update, delete.")
_tenant = click.argument("tenant")
_roles = click.option(
    "--admin-role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="an administrator; repeatable",
)
_clusters = click.option(
    "--cluster", "clusters", multiple=True, help="where it may be; repeatable (default: all)"
)


def _path(tenant: str) -> str:
    return f"{V2}/tenants/{quote(tenant, safe='')}"


@group.command("list")
@at_option
def tenants_list(admin: AdminClient, at: int | None) -> Output:
    """List the tenants with their administrators and clusters; with --at, as they were."""
    names = admin.get(f"{V2}/tenants", Names)
    tenants = {name: admin.ask("GET", _path(name), None, Tenant) for name in names}
    if at is not None:
        present = {name: each for name, (_, each) in tenants.items()}
        return listed_then(admin, paths.POLICIES, present, at)
    rows = [
        (name, " ".join(tenant.admin_roles or []), " ".join(tenant.allowed_clusters or []))
        for name, (tenant, _) in sorted(tenants.items())
    ]
    raw = {name: each for name, (_, each) in tenants.items()}
    return listed(raw, ("tenant", "admin roles", "clusters"), rows, "no tenant")


@group.command("create")
@_tenant
@_roles
@_clusters
def tenants_create(
    admin: AdminClient, tenant: str, *, roles: tuple[str, ...], clusters: tuple[str, ...]
) -> Output:
    """Create a tenant."""
    info: dict[str, Any] = {
        "adminRoles": list(roles),
        "allowedClusters": list(clusters) or admin.get(f"{V2}/clusters", Names),
    }
    admin.send("PUT", _path(tenant), info)
    return done(f"{tenant} created", tenant=tenant, **info)


@group.command("update")
@_tenant
@_roles
@_clusters
def tenants_update(
    admin: AdminClient, tenant: str, *, roles: tuple[str, ...], clusters: tuple[str, ...]
) -> Output:
    """Replace the administrators of a tenant, or its clusters; the others stay."""
    given = {"adminRoles": list(roles), "allowedClusters": list(clusters)}
    changes = {field: values for field, values in given.items() if values}
    if not changes:
        raise BadInputError("nothing to change: give --admin-role or --cluster")
    before = admin.get(_path(tenant), Document)
    info = {**before, **changes}
    if info == before:
        return unchanged(f"{tenant} is so already", tenant=tenant)
    admin.send("POST", _path(tenant), info)
    return done(f"{tenant} changed", tenant=tenant, **info)


@group.command("delete")
@_tenant
def tenants_delete(admin: AdminClient, tenant: str) -> Output:
    """Delete a tenant without namespaces."""
    admin.send("DELETE", _path(tenant))
    return done(f"{tenant} deleted")
