"""`loadmanager admin`: operate a running cluster over the brokers' HTTP API."""

from __future__ import annotations

from loadmanager.cli.admin.command import AdminGroup
from loadmanager.cli.options import Later, LaterGroup

EXAMPLES = """examples:
  loadmanager admin use staging --url http://10.0.0.5:8080
  loadmanager admin status
  loadmanager admin findings
  loadmanager admin find 10.0.3.7
  loadmanager admin brokers list --at 'yesterday 03:12'
  loadmanager admin history acme/orders --since 2d
  loadmanager admin trend acme/orders --since 6h
  loadmanager admin compare --since 10m
  loadmanager admin namespaces create acme/orders --bundles 16 --create-tenant
  loadmanager admin bundles list acme/orders
  loadmanager admin bundles show acme/orders/0x00000000_0x10000000
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

SUBJECTS = {
    "status": (
        "status.status",
        (
            "Say in a few lines how the cluster is: who is missing, load, moves, limits, last "
            "decision."
        ),
    ),
    "top": (
        "status.top",
        "Show the busiest brokers and bundles and the last decisions, again and again.",
    ),
    "findings": (
        "findings.findings",
        (
            "Show what the leader finds wrong now: sensors, limits, clocks, flapping, leaders, "
            "hot topics, backlogs that grow, bundles that nobody serves, brokers that are lost."
        ),
    ),
    "find": (
        "find.find",
        (
            "Find topics, producers, consumers and subscriptions by a part of a name, an address "
            "or a role, and with --refused who was refused something."
        ),
    ),
    "history": (
        "story.history",
        (
            "Tell what is recorded of a thing, the oldest first: owners, moves, splits, "
            "reasons, changes; without a name, of the whole cluster but its clients."
        ),
    ),
    "interrupted": (
        "interrupted.interrupted",
        (
            "Name the clients that a move, or the loss, stop or standstill of a broker, "
            "interrupted: how long each waited until it was attached again, and who is not back; "
            "the worst first."
        ),
    ),
    "trend": (
        "trend.trend",
        (
            "Show how the load of a broker, bundle, topic, namespace or tenant went, or of all: "
            "the last hour, or any time."
        ),
    ),
    "compare": (
        "compare.compare",
        (
            "Compare two moments: brokers, leaders, owners, load, traffic, settings, and what is "
            "missing."
        ),
    ),
    "brokers": ("brokers.group", "Live brokers: list, leader, health, report, cordon, forget."),
    "tenants": ("tenants.group", "List, create, update, delete."),
    "namespaces": ("namespaces.group", "List, create, delete; bundles, policies, unload."),
    "bundles": ("bundles.group", "List with owners, show, move, pin, unload, split, merge."),
    "topics": (
        "topics.group",
        "List, lookup, create, delete, unload, partitions, stats, backlogs, busiest, silent.",
    ),
    "limits": ("limits.limits", "Rate limits: list, why, show, set, remove."),
    "groups": (
        "groups.group",
        "Resource groups, whose namespaces share limits: list, set, delete, join, leave.",
    ),
    "isolation": (
        "limits.isolation",
        "List, set, delete rules for which brokers serve which namespaces.",
    ),
    "settings": (
        "settings.group",
        "Keys of broker.conf that change while the brokers run: list, set, unset.",
    ),
    "decisions": (
        "decisions.decisions",
        "Show the last decisions with their reasons, newest first, also those of earlier leaders.",
    ),
    "dry-run": (
        "leader.dry_run",
        "Show what a shedding cycle would do now; `plans execute` carries out exactly that.",
    ),
    "what-if": (
        "what_if.what_if",
        (
            "Say how the last hour, or a time before it, would have been with other brokers or "
            "other traffic."
        ),
    ),
    "plans": ("plans.group", "The plans of dry runs and of the daemon: list, show, execute."),
    "goals": ("goals.group", "Plans of many moves towards a goal: propose, approve, show, stop."),
    "clusters": ("clusters.group", "The clusters of a fleet daemon."),
    "watch": (
        "watching.watch",
        "Show decisions, moves, owners, brokers and leaders as they change, until Ctrl-C.",
    ),
    "audit": (
        "audit.audit",
        "Show the last changes: when, who, what, and the values that became others.",
    ),
    "undo": (
        "undo.undo",
        (
            "Undo changes of `admin audit` and moves of `admin decisions`; without --yes or "
            "--plan, show what that would do, and what cannot be undone."
        ),
    ),
    "roles": ("revoking.roles", "What a role has begun: disconnect."),
    "tokens": ("revoking.tokens", "Tokens that brokers refuse: list, refuse, allow."),
    "moves": ("moves.group", "The leader's queue of moves: list, cancel, pause, resume."),
    "drain": (
        "restarting.drain",
        "Cordon a broker, and move all its bundles away at the pace of the queue of moves.",
    ),
    "rolling-restart": (
        "restarting.rolling_restart",
        "Restart brokers one after the other: drain, restart, wait until ready, uncordon.",
    ),
    "use": (
        "use.use",
        "Name a cluster by its --url, or choose one that has a name; later commands go to it.",
    ),
}
"""Subject, in the order of `--help` → its module in this package with its name there, and what a
list says of it.
"""


class _Subjects(AdminGroup, LaterGroup):
    """The subjects of `admin`."""


def _later(place: str, about: str) -> Later:
    module, _, name = place.partition(".")
    return Later(f"{__name__}.{module}", about, name)


command = _Subjects(
    "admin",
    {name: _later(*subject) for name, subject in SUBJECTS.items()},
    help="Look at a running cluster and change it.",
    epilog=EXAMPLES,
)
