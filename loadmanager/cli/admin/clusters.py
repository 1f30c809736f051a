"""`loadmanager admin clusters …`: the clusters of a daemon beside Pulsar."""

from __future__ import annotations

from loadmanager.cli.admin.asking import OWN, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, listed
from loadmanager.cli.admin.times import at_option, clock
from loadmanager.steer.documents import ClustersShown, ClusterSummary

EXAMPLES = """examples:
  loadmanager admin --url http://127.0.0.1:8090 clusters list
  loadmanager admin --url http://127.0.0.1:8090 clusters list --at 'yesterday 03:12'
"""
HEADERS = ("cluster", "port", "mode", "state", "brokers", "usage", "goals", "read", "why")

group = AdminGroup("clusters", help="The clusters of a fleet daemon.", epilog=EXAMPLES)


@group.command("list")
@at_option
def clusters_list(admin: AdminClient, at: int | None) -> Output:
    """List all clusters of the daemon that is asked, the worst first. Those that ask for other
    tokens are last, by name and port alone. A broker has no such list.

    With --at, the clusters of now as the daemon recorded them then: brokers and usage; modes, holds
    and goals are not recorded.
    """
    answer, raw = admin.ask("GET", f"{OWN}/clusters{query(at=at)}", None, ClustersShown)
    output = listed(raw, HEADERS, [_row(cluster) for cluster in answer.clusters], "no clusters")
    if at is None:
        return output
    recorded = any(it.state == "leads" for it in answer.clusters)
    return Output(raw, (output.shown, f"as recorded at {clock(at)}"), status=0 if recorded else 1)


def _row(cluster: ClusterSummary) -> tuple[str | int | None, ...]:
    if cluster.state is None:
        return (cluster.name, cluster.port, *[None] * 6, "it asks for another token")
    lowest, highest = cluster.lowest_usage, cluster.highest_usage
    usage = "" if lowest is None or highest is None else f"{lowest:.0%} – {highest:.0%}"
    usage += f" ({cluster.modelled} by the model)" if cluster.modelled else ""
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
