"""The differences of our answers from Pulsar's, and why. A row that does not occur fails the test.

The reasons are those of `docs/explanation/deviations.md` and `limits.md`, which have the details.
"""

from __future__ import annotations

from clients import commands
from clients.commands import NONE, NS, P, T
from clients.compare import MISSING, Expected

NOTHING = f"\\({MISSING[1:-1]}\\)"

KEY_SHARED = "Key_Shared is refused, as by a Pulsar in which an operator has disabled it"
SCHEMA = "a topic's schema never changes"

JAVA = [
    Expected(("key_shared",), KEY_SHARED, ours="NotAllowedException"),
    Expected(
        ("JSON optional field added", "AVRO optional field added"),
        SCHEMA,
        ours="IncompatibleSchemaException",
    ),
    Expected(("compacted reader",), "no compaction", ("triggered",), "ServerSideErrorException"),
    Expected(("terminated topic",), "topics are not terminated"),
    Expected(("subscription properties",), "properties of clients and subscriptions are not kept"),
]
GO = [
    Expected(("key_shared",), KEY_SHARED, ours="NotAllowedError"),
    Expected(
        ("failover",),
        "without partitions, the first consumer by name is active; Pulsar goes by hashes",
        ours="a",
    ),
]

QUOTA = "no backlog quota by default; the file of standalone Pulsar has one of 10 GB"
STATS = (f"topics stats {T}*", f"topics stats {P}-partition-0", f"topics partitioned-stats {P}*")
NO_CREATION = "over HTTP, only `create` makes a topic"
SPLITS_NOTHING = "a split that divides nothing is 409"
ADMIN = [
    Expected(("brokers list {cluster}",), "three brokers", ours="broker\nbroker\nbroker"),
    Expected(("ns-isolation-policy brokers {cluster}",), "three brokers"),
    Expected(("brokers version",), "a version of its own", ours=r"\d+\.\d+\.\d+(\.dev\d+)?"),
    Expected(
        ("brokers namespaces {cluster} --url {broker}",),
        "a broker has no namespace of its own for heartbeats",
    ),
    Expected(("tenants list",), "no system tenant", ours="public"),
    Expected(
        ("brokers list-dynamic-config", "brokers get-runtime-config"),
        "the keys that have an effect",
    ),
    Expected(
        ("brokers update-dynamic-config --config loadBalancerSheddingEnabled --value notabool",),
        "bad dynamic values are refused",
        ours="412",
    ),
    Expected(
        ("brokers get-internal-config",),
        "ZooKeeper, where standalone Pulsar has RocksDB; no ledgers",
    ),
    Expected(("clusters get {cluster}",), "no TLS", ("out.brokerClient*",), NOTHING),
    Expected(
        (
            "clusters create*",
            "clusters update*",
            "clusters delete other",
            "clusters get-peer-clusters*",
        ),
        "one cluster, which cannot be changed",
        ours="501",
    ),
    Expected(
        ("broker-stats mbeans", "broker-stats allocator-stats*"), "of Java and Netty", ours="501"
    ),
    Expected(
        ("broker-stats load-report",),
        "standalone Pulsar has no load manager that reports",
        ("out*",),
    ),
    Expected((f"namespaces policies {NS}",), SCHEMA, ("out.is_allow_auto_update_schema",), NOTHING),
    Expected(("resourcegroups delete rg #3",), "Pulsar fails with 500", ours="404"),
    Expected(
        tuple(
            f"namespaces split-bundle -b 0x00000000_0x20000000 --split-algorithm-name {name} {NS}"
            for name in ("topic_count_equally_divide", "specified_positions_divide -sb 268435456")
        ),
        SPLITS_NOTHING,
        ours="409",
    ),
    Expected(
        (f"namespaces get-topic-positions -b 0x40000000_0x80000000 {NS}",),
        "answered for a bundle without an owner, too",
        ours="0",
    ),
    Expected((f"topics create-subscription -s a {NONE}",), NO_CREATION, ("status",), "404"),
    Expected(
        (
            f"topics subscriptions {NONE}",
            f"topics stats {NONE}",
            f"topics unload {NONE}",
            f"topics get-partitioned-topic-metadata {NONE}",
            f"topicPolicies set-publish-rate -m 5 {NONE}",
            f"topics delete {NONE}",
        ),
        f"{NO_CREATION}: Pulsar has made it with the subscription",
    ),
    Expected(
        (
            f"topics stats {T} #2",
            f"topics stats {T} #3",
            f"topics stats {P}-partition-0",
            f"topics partitioned-stats {P}*",
        ),
        "sizes are those of the files, with 48 bytes of head an entry",
        ("*storageSize", "*backlogSize"),
    ),
    Expected(STATS, QUOTA, ("*backlogQuotaLimitSize",), "-1"),
    Expected(
        (
            f"topics create non-persistent://{NS}/n",
            f"topics stats non-persistent://{NS}/n",
            f"topics delete non-persistent://{NS}/n",
        ),
        "a non-persistent topic exists while it has clients",
    ),
    Expected(
        (f"topics list {NS} #2",),
        "partitions that are not persistent are listed, topics without them are not",
    ),
    Expected(("schemas metadata*", "schemas compatibility*"), SCHEMA, ours="501"),
    Expected(
        (f"topics delete {T}-subscribed", f"topics delete -f {T}-subscribed"),
        "a topic with subscriptions is deleted by force only",
    ),
    Expected((f"topics terminate {T}-again",), "not served; pulsar-admin makes it 500", ours="500"),
    Expected(
        tuple(commands.NOT_SERVED.split("\n")[1:-1]),
        "a policy that nobody would obey, or what needs a disk, is refused",
        ours="501",
    ),
]
