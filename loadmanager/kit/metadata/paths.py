"""Paths in the metadata store: Pulsar's, and a few of our own below `/loadmanager`."""

from __future__ import annotations

from urllib.parse import quote_plus, unquote_plus

from loadmanager.kit.names import NamespaceName, TopicName

LOAD_BALANCE = "/loadbalance"
BROKERS = "/loadbalance/brokers"
LEADER = "/loadbalance/leader"
BUNDLE_DATA = "/loadbalance/bundle-data"
RESOURCE_QUOTAS = "/loadbalance/resource-quota"
BROKER_TIME_AVERAGE = "/loadbalance/broker-time-average"
LEADER_EPOCHS = "/loadmanager/epochs"
SESSIONS = "/loadmanager/sessions"
"""An ephemeral node for each session that owns bundles; see `sessions.in_session`."""
LOCKS = "/namespace"
UNIT_STATES = "/service_unit_state"
EXTENSIBLE_LEADER = "/loadbalance/extension/leader"
LOAD_DATA = "/loadbalance/extension/broker-load-data"
TOP_BUNDLES = "/loadbalance/extension/top-bundles-load-data"
ADMIN = "/admin"
CLUSTERS = "/admin/clusters"
POLICIES = "/admin/policies"
LOCAL_POLICIES = "/admin/local-policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
TOPIC_POLICIES = "/admin/topic-policies"
RESOURCE_GROUPS = "/admin/resourcegroups"
DYNAMIC_CONFIGURATION = "/admin/configuration"
MANAGED_LEDGERS = "/managed-ledgers"
SCHEMAS = "/loadmanager/schemas"
LOGS = "/loadmanager/logs"
STORAGE = "/loadmanager/storage"
UNWELL = "/loadmanager/unwell"
REFUSALS = "/loadmanager/refusals"
LEDGER_COUNTER = "/loadmanager/ledger-counter"
HEALTH = "/loadmanager/health"
MEMORIES = "/loadmanager/memories"
MEMORY_OF_CYCLES = "/loadmanager/memories/cycles"
WISHES = "/loadmanager/wishes"
PINS = "/loadmanager/wishes/pins"
CORDONS = "/loadmanager/wishes/cordons"
PAUSE = "/loadmanager/wishes/pause"
GOALS = "/loadmanager/wishes/goals"
LIMIT_ENDS = "/loadmanager/wishes/limit-ends"
REFUSED = "/loadmanager/refused"
REFUSED_TOKENS = "/loadmanager/refused/tokens"
SERVICE = "/loadmanager/service"
"""The identity of a sharded service's store; what its members say of themselves is below it."""
SERVICE_MEMBERS = "/loadmanager/service/members"
SERVICE_DOUBLES = "/loadmanager/service/doubles"
SERVICE_COSTS = "/loadmanager/service/costs"
SERVICE_PREPARATIONS = "/loadmanager/service/preparations"
SERVICE_MERGES = "/loadmanager/service/merges"
SERVICE_IDLE = "/loadmanager/service/idle"
"""The shards that might be merged."""
SERVICE_STANDBYS = "/loadmanager/service/standbys"
"""The bundles that each member is to have copies of."""
SERVICE_COPIES = "/loadmanager/service/copies"
"""Those of which it has."""
MEMBERS = "/loadmanager/members"
"""The brokers that left, as leaders remember them."""
FAREWELLS = "/loadmanager/farewells"
ACTED = "/loadmanager/acted"
"""What a daemon beside a Pulsar cluster did lately."""


def encode(name: str) -> str:
    """A topic's or subscription's name as one path element (Pulsar `Codec.encode`).

    Encodes "." and "..", too, which ZooKeeper refuses.
    """
    return name.replace(".", "%2E") if name in (".", "..") else quote_plus(name, safe="*-._")


def decode(element: str) -> str:
    """The inverse of `encode`."""
    return unquote_plus(element)


def last(path: str) -> str:
    return path.rpartition("/")[2]


def lock(bundle: str) -> str:
    """The ephemeral lock of a bundle."""
    return f"{LOCKS}/{bundle}"


def bundle_of_lock(path: str) -> str | None:
    """The bundle of a lock's path; None for the nodes above the locks."""
    bundle = path[len(LOCKS) + 1 :]
    return bundle if path.startswith(f"{LOCKS}/") and bundle.count("/") == 2 else None


def session(session_id: int) -> str:
    """A session's own node."""
    return f"{SESSIONS}/{session_id:x}"


def unit_state(bundle: str) -> str:
    return f"{UNIT_STATES}/{bundle}"


def bundle_of_unit_state(path: str) -> str | None:
    """The bundle of a state record's path; None for the nodes above the records."""
    bundle = path[len(UNIT_STATES) + 1 :]
    return bundle if path.startswith(f"{UNIT_STATES}/") and bundle.count("/") == 2 else None


def broker(broker_id: str) -> str:
    """A broker's registration with its load report."""
    return f"{BROKERS}/{broker_id}"


def resource_quota(bundle: str | None) -> str:
    """A bundle's resource quota; None: the default one."""
    return f"{RESOURCE_QUOTAS}/{'default' if bundle is None else bundle}"


def policies(namespace: NamespaceName) -> str:
    return f"{POLICIES}/{namespace}"


def local_policies(namespace: NamespaceName) -> str:
    """A namespace's local policies: its bundle boundaries and anti-affinity group."""
    return f"{LOCAL_POLICIES}/{namespace}"


def partitioned_topic(topic: TopicName) -> str:
    return f"{PARTITIONED_TOPICS}/{topic.namespace}/{topic.domain}/{encode(topic.local)}"


def topic_policies(topic: TopicName) -> str:
    """A topic's policies; Pulsar keeps them in a system topic instead."""
    return f"{TOPIC_POLICIES}/{topic.namespace}/{topic.domain}/{encode(topic.local)}"


def topic_of_policies(path: str) -> TopicName | None:
    """The inverse of `topic_policies`; None for the nodes above the policies."""
    parts = path[len(TOPIC_POLICIES) + 1 :].split("/")
    if not path.startswith(f"{TOPIC_POLICIES}/") or len(parts) != 4:
        return None
    return TopicName(parts[2], NamespaceName(parts[0], parts[1]), decode(parts[3]))


def resource_group(name: str) -> str:
    return f"{RESOURCE_GROUPS}/{name}"


def managed_ledger(topic: TopicName) -> str:
    """The record that a topic exists; its children are the durable subscriptions."""
    return f"{MANAGED_LEDGERS}/{topic.namespace}/{topic.domain}/{encode(topic.local)}"


def subscription(topic: TopicName, name: str) -> str:
    """The record of a durable subscription."""
    return f"{managed_ledger(topic)}/{encode(name)}"


def log(topic: TopicName) -> str:
    """The number of a stored topic's log; below it, under that number, its record."""
    return f"{LOGS}/{topic.namespace}/{encode(topic.local)}"


def schema(topic: TopicName) -> str:
    """The schema of a topic and its partitions, persistent or not."""
    return f"{SCHEMAS}/{topic.namespace}/{encode(topic.partitioned_topic.local)}"


def pin(bundle: str) -> str:
    return f"{PINS}/{encode(bundle)}"


def refusals(broker_id: str) -> str:
    """The bundles that a broker could not open a moment ago."""
    return f"{REFUSALS}/{encode(broker_id)}"


def cordon(broker_id: str) -> str:
    return f"{CORDONS}/{encode(broker_id)}"


def farewell(broker_id: str) -> str:
    """What a broker says when it stops in order."""
    return f"{FAREWELLS}/{encode(broker_id)}"


def goal(order_id: str) -> str:
    """An order to reach a goal."""
    return f"{GOALS}/{encode(order_id)}"


def limit_end(of: str, path: tuple[str, ...]) -> str:
    """The end of a limit: of the field `path` of the document `of`."""
    return f"{LIMIT_ENDS}/{encode(' '.join((of, *path)))}"
