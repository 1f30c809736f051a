"""`loadmanager admin namespaces …`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from loadmanager.broker.admin.documents import BundlesData
from loadmanager.cli.admin.asking import (
    V2,
    bundles_of,
    count_of,
    namespace_path,
    namespaces_of,
    owners,
    query,
    ranges,
)
from loadmanager.cli.admin.bundles import owners_then
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done
from loadmanager.cli.admin.past_documents import document_then
from loadmanager.cli.admin.shapes import Document, Names
from loadmanager.cli.admin.times import at_option
from loadmanager.cli.terminal import word
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName

group = AdminGroup("namespaces", help="List, create, delete; bundles, policies, unload.")
_namespace = click.argument("namespace", metavar="TENANT/NAMESPACE")


@group.command("list")
@click.argument("tenant", required=False)
@at_option
def namespaces_list(admin: AdminClient, tenant: str | None, at: int | None) -> Output:
    """List the namespaces of a tenant, or of all tenants; with --at, those of then: by the recorded
    changes, and by the owners of bundles.
    """
    if at is not None:
        return _namespaces_at(admin, tenant, at)
    names = namespaces_of(admin, tenant)
    return Output(names, list(map(word, names)) or "no namespace")


def _namespaces_at(admin: AdminClient, tenant: str | None, at_ms: int) -> Output:
    from loadmanager.cli.admin.names_then import nothing_then
    from loadmanager.cli.admin.past_documents import namespaces_then
    from loadmanager.cli.admin.past_owners import bundles_at  # it takes time

    bundles, past = bundles_at(admin, at_ms)
    served = {bundle.bundle.rpartition("/")[0] for bundle in bundles if bundle.owner}
    made = set[str]()
    tenants = {*admin.get(f"{V2}/tenants", Names), *(name.partition("/")[0] for name in served)}
    for each in sorted(tenants if tenant is None else {tenant}):
        made |= namespaces_then(admin, each, at_ms)
    names = sorted(name for name in served | made if tenant in (None, name.partition("/")[0]))
    lines = list(map(word, names)) or ["no namespace is recorded of then"]
    status = 0 if names else 1
    if tenant is not None and not names:
        lines.append(nothing_then(admin, tenant, at_ms))
    return Output(names, (lines, past.notes), status=status, missing=past.missing)


@group.command("create")
@_namespace
@click.option("--bundles", type=int, metavar="N", help="N bundles of equal size")
@click.option(
    "--boundaries",
    metavar="B,B,...",
    help="boundaries of the bundles, such as 0x00000000,0x80000000,0xffffffff",
)
@click.option("--create-tenant", is_flag=True, help="create the tenant first if it does not exist")
def namespaces_create(
    admin: AdminClient,
    namespace: str,
    bundles: int | None,
    boundaries: str | None,
    create_tenant: bool,
) -> Output:
    """Create a namespace."""
    body: dict[str, Any] = {}
    if boundaries and bundles is not None:
        raise BadInputError("--bundles and --boundaries exclude each other")
    if boundaries:
        bounds = boundaries.split(",")
        body["bundles"] = {"boundaries": bounds, "numBundles": len(bounds) - 1}
    elif bundles is not None:
        body["bundles"] = {"numBundles": bundles}
    path, tenant = namespace_path(namespace), NamespaceName.parse(namespace).tenant
    if create_tenant and tenant not in admin.get(f"{V2}/tenants", Names):
        admin.send(
            "PUT",
            f"{V2}/tenants/{tenant}",
            {"adminRoles": [], "allowedClusters": admin.get(f"{V2}/clusters", Names)},
        )
    admin.send("PUT", path, body or None)
    count = admin.get(f"{path}/bundles", BundlesData).num_bundles
    return done(
        f"{namespace} created with {count_of(count, 'bundle')}", namespace=namespace, bundles=count
    )


@group.command("delete")
@_namespace
@click.option("--force", is_flag=True, help="delete its topics, too")
def namespaces_delete(admin: AdminClient, namespace: str, force: bool) -> Output:
    """Delete a namespace."""
    admin.send("DELETE", namespace_path(namespace) + query(force=force))
    return done(f"{namespace} deleted")


@group.command("bundles")
@_namespace
@at_option
def namespaces_bundles(admin: AdminClient, namespace: str, at: int | None) -> Output:
    """List the bundles of a namespace as ranges; with --at, those that had owners then, and what
    of its hash space had none.
    """
    if at is not None:
        from loadmanager.cli.admin.past_owners import uncovered  # it takes time

        then = owners_then(admin, (namespace,), at)
        owned = [row["bundle"] for row in then.data if row["owner"] is not None]
        without = [f"{each} had no owner then" for each in uncovered(owned)]
        return replace(then, shown=(*then.shown, without))
    path = f"{namespace_path(namespace)}/bundles"
    bundles, raw = admin.ask("GET", path, None, BundlesData)
    return Output(raw, list(map(word, ranges(bundles))))


@group.command("policies")
@_namespace
@at_option
def namespaces_policies(admin: AdminClient, namespace: str, at: int | None) -> Output:
    """Show the policies of a namespace, its limits among them; with --at, as they were."""
    if at is not None:
        present = admin.get_any(namespace_path(namespace), Document)
        path = paths.policies(NamespaceName.parse(namespace))
        return document_then(admin, path, present, at)
    policies = admin.get(namespace_path(namespace), Document)
    return Output(policies, json.dumps(policies, indent=2).splitlines())


@group.command("unload")
@_namespace
def namespaces_unload(admin: AdminClient, namespace: str) -> Output:
    """Unload all bundles of a namespace."""
    brokers, missing = owners(admin)
    owned = [bundle for bundle in bundles_of(admin, namespace) if bundle in brokers]
    admin.send("PUT", f"{namespace_path(namespace)}/unload")
    if not owned:
        text = f"{namespace}: no bundle has an owner: nothing to unload"
        if missing:
            text = f"{namespace}: no broker that answers serves a bundle of it"
        return Output({"unloaded": owned}, text, status=1, missing=missing)
    return done(
        f"{namespace}: {count_of(len(owned), 'bundle')} unloaded; the next lookups place them",
        unloaded=owned,
    )
