"""Requests to brokers that several `loadmanager admin` commands make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

from loadmanager.broker.admin.documents import BundlesData, Partitions
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.shapes import Document, Names, Runtime
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.text import count_of as count_of  # noqa: PLC0414 - for all commands

V2 = "/admin/v2"
OWN = "/loadmanager/v1"
"""What loadmanager has beyond Pulsar."""
PARTITIONS_MAX = 100
"""So many partitions of a topic are asked for, the first ones."""
AT_ONCE = 16
"""Brokers that `ask_each` waits for at a time."""


def ask_each(
    admin: AdminClient,
    brokers: Sequence[str],
    ask: Callable[[AdminClient, str], Any],
    *,
    timeout_s: float | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Broker → answer, and broker → why it did not answer; several are asked at a time.
    `timeout_s`: if that is less than the command allows.
    """

    def answer(broker: str) -> Any:
        try:
            return ask(admin.at(broker, timeout_s=timeout_s), broker)
        except OperationalError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = dict(zip(brokers, threads.map(answer, brokers), strict=True))
    missing = {
        broker: str(error) for broker, error in answers.items() if isinstance(error, Exception)
    }
    return {name: it for name, it in answers.items() if name not in missing}, missing


def namespace_path(text: str) -> str:
    """The path of a namespace in the admin API."""
    return f"{V2}/namespaces/{NamespaceName.parse(text)}"


def topic_path(text: str) -> str:
    """Domain, namespace and encoded name of a topic, as a path contains them."""
    topic = TopicName.parse(text)
    return f"{topic.domain}/{topic.namespace}/{quote(topic.local, safe='')}"


def partitions_of(admin: AdminClient, topic: str) -> list[str]:
    """The partitions of a topic, as far as one is asked of them; none: it has none, or is one."""
    name = TopicName.parse(topic)
    if name.partition >= 0:
        return []
    path = f"{V2}/{topic_path(topic)}/partitions"
    try:
        count = admin.get(path, Partitions).partitions
    except AnsweredError:  # whoever asks for the topic itself is told why
        return []
    return [f"{name}-partition-{number}" for number in range(min(count, PARTITIONS_MAX))]


def cluster_of(admin: AdminClient) -> str:
    """The cluster of the broker; the metadata store may record other clusters, too."""
    return admin.get(f"{V2}/brokers/configuration/runtime", Runtime)["clusterName"]


def brokers_of(admin: AdminClient) -> list[str]:
    """The live brokers."""
    return admin.get(f"{V2}/brokers", Names)


def query(**values: Any) -> str:
    """The query string of the values that are given: not None, False or empty."""
    given = {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != ""
    }
    texts = {name: "true" if value is True else str(value) for name, value in given.items()}
    return "?" + urlencode(texts, safe=":/") if texts else ""


def traffic_text(rate: float, mib_s: float) -> str:
    """Messages/s and MiB/s, published and delivered together."""
    return f"{rate:,.0f} messages/s and {mib_s:,.1f} MiB/s in and out"


def namespaces_of(admin: AdminClient, tenant: str | None = None) -> list[str]:
    """The namespaces of a tenant, or of all."""
    tenants = [tenant] if tenant else admin.get(f"{V2}/tenants", Names)
    return [
        namespace
        for name in tenants
        for namespace in admin.get(f"{V2}/namespaces/{quote(name, safe='')}", Names)
    ]


def ranges(bundles: BundlesData) -> list[str]:
    """The ranges between the boundaries in an answer."""
    bounds = bundles.boundaries
    return [f"{low}_{high}" for low, high in zip(bounds, bounds[1:], strict=False)]


def bundles_of(admin: AdminClient, namespace: str) -> list[str]:
    """The names of a namespace's bundles."""
    bundles = admin.get(f"{namespace_path(namespace)}/bundles", BundlesData)
    return [f"{namespace}/{bundle_range}" for bundle_range in ranges(bundles)]


def owners(admin: AdminClient) -> tuple[dict[str, str], dict[str, str]]:
    """Bundle → broker that owns it, and broker → why it did not answer."""
    cluster = cluster_of(admin)
    bundles_of, missing = ask_each(
        admin, brokers_of(admin), lambda at, broker: owned(at, cluster, broker)
    )
    return {bundle: broker for broker, bundles in bundles_of.items() for bundle in bundles}, missing


def owned(at: AdminClient, cluster: str, broker: str) -> list[str]:
    """The bundles of a broker, of which `at` is the client."""
    path = f"{V2}/brokers/{quote(cluster, safe='')}/{quote(broker, safe=':')}/ownedNamespaces"
    return list(at.get(path, Document))


def unload_bundle(admin: AdminClient, bundle: str, destination: str | None) -> None:
    """Unload a bundle, to a broker if one is named."""
    namespace, bundle_range = split_bundle_name(bundle)
    admin.send(
        "PUT",
        f"{namespace_path(namespace)}/{quote(bundle_range, safe='')}/unload"
        + query(destinationBroker=destination),
    )
