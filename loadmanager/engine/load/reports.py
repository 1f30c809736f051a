"""Load data as Pulsar writes it: JSON with camelCase names, typed
(`org.apache.pulsar.policies.data.loadbalancer`).

Decoding is tolerant: fields may be missing, unknown ones are ignored, whole numbers may be floats.
A figure that is not a number counts as missing: Pulsar writes `"NaN"` for a share of nothing.
Throughputs are bytes/s, rates messages/s, CPU is in percent of one core, bandwidth in kbit/s,
memory in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Annotated, Any, TypeVar

import msgspec

from loadmanager.kit.errors import BadInputError

T = TypeVar("T")

NUMBER_MAX = 1e18
MISSING = (None, "NaN", "Infinity", "-Infinity")
"""What may stand in the place of a figure."""
LIMIT_MIN = 1e-9
Number = Annotated[float, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
"""A figure of a report; bounded, so that sums of figures are finite."""
Count = Annotated[int, msgspec.Meta(ge=-int(NUMBER_MAX), le=int(NUMBER_MAX))] | Number
"""A count, which some writers write as a float."""


_SINGLE = Struct("f")


def _single(number: float) -> float:
    """A number in single precision. What the four operations make of two of these, rounded to it
    again, is what they make in single precision.
    """
    single: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    return single


class Json(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object with camelCase names."""


class ResourceUsage(Json):
    """One resource: how much is used and how much there is, in the same unit."""

    usage: Number = 0.0
    limit: Number = 0.0

    @property
    def percent(self) -> float:
        """Usage in percent, in single precision as in Pulsar; 0 unless the limit is positive."""
        if not self.limit > LIMIT_MIN:
            return 0.0
        return _single(_single(_single(self.usage) / _single(self.limit)) * 100)


class NamespaceBundleStats(Json):
    """Traffic of one bundle."""

    msg_rate_in: Number = 0.0
    msg_throughput_in: Number = 0.0
    msg_rate_out: Number = 0.0
    msg_throughput_out: Number = 0.0
    consumer_count: Count = 0
    producer_count: Count = 0
    topics: Count = 0
    cache_size: Count = 0

    @property
    def rate(self) -> float:
        """Messages/s in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        """Bytes/s in and out."""
        return self.msg_throughput_in + self.msg_throughput_out


class LocalBrokerData(Json):
    """A broker's load report in the modular manager, at `/loadbalance/brokers/<brokerId>`."""

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    cpu: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    direct_memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_in: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_out: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    msg_throughput_in: Number = 0.0
    msg_throughput_out: Number = 0.0
    msg_rate_in: Number = 0.0
    msg_rate_out: Number = 0.0
    last_update: Count = 0
    last_stats: Mapping[str, NamespaceBundleStats] = msgspec.field(default_factory=dict)
    num_topics: Count = 0
    num_bundles: Count = 0
    num_consumers: Count = 0
    num_producers: Count = 0
    bundles: list[str] = msgspec.field(default_factory=list)
    last_bundle_gains: list[str] = msgspec.field(default_factory=list)
    last_bundle_losses: list[str] = msgspec.field(default_factory=list)
    broker_version_string: str | None = None
    protocols: dict[str, str] = msgspec.field(default_factory=dict)
    advertised_listeners: dict[str, Any] = msgspec.field(default_factory=dict)
    load_report_type: str = "LocalBrokerData"
    broker_id: str | None = None
    load_manager_class_name: str | None = None
    start_timestamp: Count = 0
    disks: dict[str, ResourceUsage] | msgspec.UnsetType = msgspec.UNSET
    """See `PublishedClients`; Pulsar's brokers do not say it."""

    def __post_init__(self) -> None:
        """Pulsar reads a set of bundles: one that is named twice counts once."""
        if len(set(self.bundles)) < len(self.bundles):
            self.bundles = list(dict.fromkeys(self.bundles))

    def carries(self, bundle: str) -> bool:
        """Whether the broker serves the bundle."""
        return bundle in self.last_stats or bundle in self.bundles

    @property
    def rate(self) -> float:
        """Messages/s in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        """Bytes/s in and out."""
        return self.msg_throughput_in + self.msg_throughput_out


class TimeAverageMessageData(Json):
    """Averages over samples: the mean of the first `max_samples`, exponential from then on."""

    max_samples: Count = 0
    num_samples: Count = 0
    msg_throughput_in: Number = 0.0
    msg_throughput_out: Number = 0.0
    msg_rate_in: Number = 0.0
    msg_rate_out: Number = 0.0

    @property
    def rate(self) -> float:
        """Messages/s in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        """Bytes/s in and out."""
        return self.msg_throughput_in + self.msg_throughput_out


class BundleData(Json):
    """Short- and long-term averages of one bundle, at `/loadbalance/bundle-data/<bundle>`."""

    short_term_data: TimeAverageMessageData = msgspec.field(
        default_factory=lambda: TimeAverageMessageData(max_samples=NUM_SHORT_SAMPLES)
    )
    long_term_data: TimeAverageMessageData = msgspec.field(
        default_factory=lambda: TimeAverageMessageData(max_samples=NUM_LONG_SAMPLES)
    )
    topics: Count = 0


NUM_SHORT_SAMPLES = 10
NUM_LONG_SAMPLES = 1000
DEFAULT_RATE = 50.0
DEFAULT_THROUGHPUT_BYTES_PER_S = 50_000.0


def default_bundle_data() -> BundleData:
    """The averages of an unseen bundle: 50 messages/s and 50,000 bytes/s in each direction.

    Its first sample replaces them.
    """

    def averages(samples: int) -> TimeAverageMessageData:
        return TimeAverageMessageData(
            max_samples=samples,
            msg_throughput_in=DEFAULT_THROUGHPUT_BYTES_PER_S,
            msg_throughput_out=DEFAULT_THROUGHPUT_BYTES_PER_S,
            msg_rate_in=DEFAULT_RATE,
            msg_rate_out=DEFAULT_RATE,
        )

    return BundleData(
        short_term_data=averages(NUM_SHORT_SAMPLES), long_term_data=averages(NUM_LONG_SAMPLES)
    )


class TimeAverageBrokerData(Json):
    """Sums of the averages of a broker's bundles, at
    `/loadbalance/broker-time-average/<brokerId>`.
    """

    short_term_msg_throughput_in: Number = 0.0
    short_term_msg_throughput_out: Number = 0.0
    short_term_msg_rate_in: Number = 0.0
    short_term_msg_rate_out: Number = 0.0
    long_term_msg_throughput_in: Number = 0.0
    long_term_msg_throughput_out: Number = 0.0
    long_term_msg_rate_in: Number = 0.0
    long_term_msg_rate_out: Number = 0.0


class BrokerLookupData(Json):
    """A broker's registration in the extensible manager, at `/loadbalance/brokers/<brokerId>`."""

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    advertised_listeners: dict[str, Any] = msgspec.field(default_factory=dict)
    protocols: dict[str, str] = msgspec.field(default_factory=dict)
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    load_manager_class_name: str | None = None
    start_timestamp: Count = 0
    broker_version: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class BrokerLoadData(Json):
    """A broker's load report in the extensible manager."""

    cpu: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    direct_memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_in: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_out: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    msg_throughput_in: Number = 0.0
    msg_throughput_out: Number = 0.0
    msg_rate_in: Number = 0.0
    msg_rate_out: Number = 0.0
    bundle_count: Count = 0
    topics: Count = 0
    max_resource_usage: Number = 1.0
    weighted_max_ema: Number = msgspec.field(default=1.0, name="weightedMaxEMA")
    msg_throughput_ema: Number = msgspec.field(default=0.0, name="msgThroughputEMA")
    updated_at: Count = 0
    reported_at: Count = 0


class PublishedClients(Json):
    """What a broker's load data says beside Pulsar's: its disks, and the clients of those of its
    bundles that have most of them. Every broker knows it of the others, so that any of them can
    lead and tell how many clients wait when one is lost.
    """

    updated_at: Count = 0
    bundle_clients: dict[str, Count] = msgspec.field(default_factory=dict)
    disks: dict[str, ResourceUsage] | msgspec.UnsetType = msgspec.UNSET
    """What is stored there, such as `history, topics` → how full that disk of it is, in MiB."""


DISKS_MAX = 10


def disks_of(report: LocalBrokerData | PublishedClients | None) -> dict[str, ResourceUsage]:
    """The disks of a broker that tells them; of a stranger's, so many as ours have at most."""
    if report is None or isinstance(report.disks, msgspec.UnsetType):
        return {}
    return {name: report.disks[name] for name in sorted(report.disks)[:DISKS_MAX]}


class TopBundle(Json):
    """One entry of a top-bundles report."""

    bundle_name: str = ""
    stats: NamespaceBundleStats = msgspec.field(default_factory=NamespaceBundleStats)


class TopBundlesLoadData(Json):
    """A broker's most loaded bundles in ascending order, in the extensible manager."""

    top_bundles_load_data: list[TopBundle] = msgspec.field(default_factory=list)


_BROKER_LOOKUP_DATA = msgspec.json.Decoder(BrokerLookupData)
_BROKER_LOAD_DATA = msgspec.json.Decoder(BrokerLoadData)
_PUBLISHED_CLIENTS = msgspec.json.Decoder(PublishedClients)
_TOP_BUNDLES = msgspec.json.Decoder(TopBundlesLoadData)
_LOCAL_BROKER_DATA = msgspec.json.Decoder(LocalBrokerData)
_BUNDLE_DATA = msgspec.json.Decoder(BundleData)


def decode_local_broker_data(value: bytes) -> LocalBrokerData:
    """A load report from its JSON; raises `BadInputError` naming the malformed field."""
    return _decode(_LOCAL_BROKER_DATA, value, "load report")


def decode_broker_lookup_data(value: bytes) -> BrokerLookupData:
    """A registration in the extensible manager from its JSON.

    Raises `BadInputError` naming the malformed field.
    """
    return _decode(_BROKER_LOOKUP_DATA, value, "registration")


def decode_broker_load_data(value: bytes) -> BrokerLoadData:
    """A load report of the extensible manager from its JSON.

    Raises `BadInputError` naming the malformed field.
    """
    return _decode(_BROKER_LOAD_DATA, value, "load report")


def decode_published_clients(value: bytes) -> PublishedClients:
    """The clients in a load report of the extensible manager; none in that of a broker that does
    not say them. Raises `BadInputError` naming the malformed field.
    """
    return _decode(_PUBLISHED_CLIENTS, value, "load report")


def decode_top_bundles(value: bytes) -> TopBundlesLoadData:
    """A broker's most loaded bundles from their JSON; raises `BadInputError` naming the malformed
    field.
    """
    return _decode(_TOP_BUNDLES, value, "top bundles")


def decode_bundle_data(value: bytes) -> BundleData:
    """Bundle data from its JSON; raises `BadInputError` naming the malformed field."""
    return _decode(_BUNDLE_DATA, value, "bundle data")


def _decode(decoder: msgspec.json.Decoder[T], value: bytes, what: str) -> T:
    try:
        return decode_tolerant(decoder, value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"malformed {what}: {error}") from None


def decode_tolerant(decoder: msgspec.json.Decoder[T], value: bytes) -> T:
    """Decode JSON in which null, or what Java writes for a figure that is not a number, may stand
    for a missing value. Raises as the decoder does.
    """
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        text = str(error)
        if ("got `null`" not in text and "got `str`" not in text) or value.strip() == b"null":
            raise
        return decoder.decode(msgspec.json.encode(_present(msgspec.json.decode(value))))


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _present(inner) for key, inner in value.items() if inner not in MISSING}
    return (
        [_present(inner) for inner in value if inner is not None]
        if isinstance(value, list)
        else value
    )
