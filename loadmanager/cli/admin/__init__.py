"""`loadmanager admin`: operate a running cluster over the brokers' HTTP API."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from loadmanager.cli.admin import (
    audit,
    brokers,
    bundles,
    clusters,
    contexts,
    decisions,
    find,
    findings,
    goals,
    groups,
    leader,
    limits,
    moves,
    namespaces,
    plans,
    restarting,
    revoking,
    settings,
    status,
    story,
    tenants,
    topics,
    undo,
    watching,
    what_if,
)
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, given_trust, given_url, listed
from loadmanager.kit.errors import BadInputError, OperationalError

EXAMPLES = """examples:
  loadmanager admin use staging --url http://10.0.0.5:8080
  loadmanager admin status
  loadmanager admin findings
  loadmanager admin find 10.0.3.7
  loadmanager admin brokers list --at 'yesterday 03:12'
  loadmanager admin history acme/orders --since 2d
  loadmanager admin namespaces create acme/orders --bundles 16 --create-tenant
  loadmanager admin bundles list acme/orders
  loadmanager admin bundles move acme/orders/0x00000000_0x10000000 --to 127.0.0.1:8082 --pin 2h
  loadmanager admin topics lookup persistent://acme/orders/new --json
  loadmanager admin limits set acme/orders publishRate --messages 1000
  loadmanager admin limits why persistent://acme/orders/new
  loadmanager admin settings set loadBalancerSheddingEnabled false
  loadmanager admin isolation set gold --namespaces 'gold/.*' --primary 'big-.*'
  loadmanager admin decisions --bundle acme/orders/0x00000000_0x10000000 --since 2h
  loadmanager admin dry-run --strategy TransferShedder
  loadmanager admin what-if --without 127.0.0.1:8081 --times 1.5
  loadmanager admin goals propose --even 5 --by 06:00 --max-moves 40
  loadmanager admin watch
  loadmanager admin audit --since 2h
  loadmanager admin undo --since 1h --role deploy
  loadmanager admin drain 127.0.0.1:8081 --stop

--url may name any broker: it redirects a request to the broker that can answer it.
Exit status: 0 done; 1 nothing was done: refused, not there, so already, or a broker did not answer;
2 the command line is wrong.
"""

command = AdminGroup("admin", help="Look at a running cluster and change it.", epilog=EXAMPLES)
for subject in (
    status.status,
    status.top,
    findings.findings,
    find.find,
    story.history,
    brokers.group,
    tenants.group,
    namespaces.group,
    bundles.group,
    topics.group,
    limits.limits,
    groups.group,
    limits.isolation,
    settings.group,
    decisions.decisions,
    leader.dry_run,
    what_if.what_if,
    plans.group,
    goals.group,
    clusters.group,
    watching.watch,
    audit.audit,
    undo.undo,
    revoking.roles,
    revoking.tokens,
    moves.group,
    restarting.drain,
    restarting.rolling_restart,
):
    command.add_command(subject)


@command.command()
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="remove the name")
def use(_admin: AdminClient, name: str | None, *, remove: bool) -> Output:
    """Name a cluster by its --url, or choose one that has a name; later commands go to it.

    Without a name, lists the names.
    """
    stored = contexts.load()
    if name is None and (remove or given_url() is not None):
        raise BadInputError("a name is missing: loadmanager admin use NAME")
    if name is None:
        rows = [
            (name, url, "in use" if name == stored.current else "")
            for name, url in sorted(stored.urls.items())
        ]
        return listed(
            msgspec.to_builtins(stored), ("name", "url", ""), rows, "no cluster has a name"
        )
    if remove:
        contexts.remove(stored, name)
        return Output({"removed": name}, f"{name} is removed; in use: {stored.current or 'none'}")
    url = given_url()
    if url is not None:
        contexts.check_name(name)
        stored.urls[name] = AdminClient(url, timeout_s=1).url
        stored.trusts.pop(name, None)
        if given_trust():
            stored.trusts[name] = str(Path(given_trust()).resolve())
    elif name not in stored.urls:
        names = ", ".join(sorted(stored.urls)) or "none yet"
        raise OperationalError(f"{name} is not the name of a cluster; add --url (names: {names})")
    stored.current = name
    contexts.save(stored)
    return Output({"name": name, "url": stored.url}, f"{name} ({stored.url}) is in use now")
