"""`loadmanager admin clusters …`: the clusters of a daemon beside Pulsar."""

from __future__ import annotations

from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, listed
from loadmanager.cli.admin.times import clock
from loadmanager.steer.documents import ClustersShown, ClusterSummary

EXAMPLES = """examples:
  loadmanager admin --url http://127.0.0.1:8090 clusters list
"""
HEADERS = ("cluster", "port", "mode", "state", "brokers", "usage", "goals", "read", "why")

group = AdminGroup("clusters", help="The clusters of a fleet daemon.", epilog=EXAMPLES)


@group.command("list")
def clusters_list(admin: AdminClient) -> Output:
    """List all clusters of the daemon that is asked, the worst first. Those that ask for other
    tokens are last, by name and port alone. A broker has no such list.
    """
    answer, raw = admin.ask("GET", f"{OWN}/clusters", None, ClustersShown)
    return listed(raw, HEADERS, [_row(cluster) for cluster in answer.clusters], "no clusters")


def _row(cluster: ClusterSummary) -> tuple[str | int | None, ...]:
    if cluster.state is None:
        return (cluster.name, cluster.port, *[None] * 6, "it asks for another token")
    lowest, highest = cluster.lowest_usage, cluster.highest_usage
    usage = "" if lowest is None or highest is None else f"{lowest:.0%} – {highest:.0%}"
    return (
        cluster.name,
        cluster.port,
        cluster.mode,
        cluster.state,
        cluster.brokers,
        usage,
        cluster.open_goals,
        None if cluster.read_at is None else clock(cluster.read_at),
        cluster.why or cluster.held,
    )
