"""Names, hashes and ranges, against Pulsar's vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.bundles.ranges import (
    FULL_UPPER,
    BundleRange,
    NamespaceBundles,
    equal_boundaries,
    format_boundaries,
    parse_boundaries,
    split_bundle_name,
    topic_hash,
)
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import (
    NAME_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
    NamespaceName,
    TopicName,
    check_name,
)

NS = NamespaceName("public", "default")


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("persistent://public/default/my-topic", 0x2BAD45F7),
        ("persistent://public/default/my-topic-partition-0", 0x3D4B4235),
        ("persistent://public/default/my-topic-partition-1", 0x4A4C72A3),
        ("non-persistent://public/default/my-topic", 0x831E214A),
    ],
)
def test_topic_hash(topic: str, value: int) -> None:
    """A topic's hash is the CRC-32 of its full name, as Pulsar's."""
    assert topic_hash(topic) == value


def test_topic_names() -> None:
    """Short forms get Pulsar's defaults, partitions know their topic, and text and
    name round-trip.
    """
    assert str(TopicName.parse("my-topic")) == "persistent://public/default/my-topic"
    assert str(TopicName.parse("t/n/x")) == "persistent://t/n/x"
    partition = TopicName.parse("non-persistent://t/n/x-partition-12")
    assert (partition.partition, partition.persistent) == (12, False)
    assert str(partition.partitioned_topic) == "non-persistent://t/n/x"
    assert partition.partitioned_topic.partition_name(12) == partition
    assert TopicName.parse("persistent://t/n/a/b").local == "a/b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka://a/b/c",
        "persistent://a/b",
        "persistent://a//c",
        "persistent://a/b/",
        "a/b",
        "persistent://a b/c/d",
    ],
)
def test_bad_topic_names(text: str) -> None:
    """An invalid topic name is refused; the error contains it."""
    with pytest.raises(BadInputError):
        TopicName.parse(text)


@pytest.mark.parametrize(
    ("count", "texts"),
    [
        (1, ["0x00000000", "0xffffffff"]),
        (3, ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]),
        (4, ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]),
        (
            7,
            [
                "0x00000000",
                "0x24924924",
                "0x49249248",
                "0x6db6db6c",
                "0x92492490",
                "0xb6db6db4",
                "0xdb6db6d8",
                "0xffffffff",
            ],
        ),
    ],
)
def test_equal_boundaries(count: int, texts: list[str]) -> None:
    """The boundaries of N bundles are multiples of 2³² // N."""
    assert format_boundaries(equal_boundaries(count)) == texts
    assert parse_boundaries(texts) == equal_boundaries(count)


@pytest.mark.parametrize("count", [0, -1, (1 << 32) + 1])
def test_impossible_numbers_of_bundles(count: int) -> None:
    """A namespace has 1 to 2³² bundles."""
    with pytest.raises(BadInputError):
        equal_boundaries(count)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["0x00000000"],
        ["0x1", "0xffffffff"],
        ["0x0", "0x5", "0x5", "0xffffffff"],
        ["0x0", "x"],
        ["0x0", None],
        ["0x0", "0xfffffffe"],
    ],
)
def test_bad_boundaries(texts: list[str]) -> None:
    """Boundaries ascend strictly from 0 to 0xffffffff."""
    with pytest.raises(BadInputError):
        parse_boundaries(texts)


@given(count=st.integers(1, 300), value=st.integers(0, FULL_UPPER))
def test_every_hash_is_in_exactly_one_bundle(count: int, value: int) -> None:
    """The ranges of a namespace cover the hash space without overlap."""
    bundles = NamespaceBundles(NS, equal_boundaries(count))
    containing = [f"{NS}/{span}" for span in bundles.ranges if value in span]
    assert containing == [bundles.bundle_of_hash(value)]


@given(data=st.data(), count=st.integers(1, 20))
def test_split_keeps_the_space_covered(data: st.DataObject, count: int) -> None:
    """A split replaces one range by pieces that cover it, and touches no other."""
    before = NamespaceBundles(NS, equal_boundaries(count))
    parent = data.draw(st.sampled_from(before.ranges))
    added = data.draw(
        st.lists(st.integers(parent.lower + 1, parent.upper - 1), min_size=1, max_size=5)
    )
    after = before.split(parent, added)
    assert set(before.ranges) - {parent} <= set(after.ranges)
    assert len(after.ranges) == len(before.ranges) + len(set(added))


def test_bad_splits() -> None:
    """A boundary outside its bundle is refused, and so is a bundle that does not exist."""
    bundles = NamespaceBundles(NS, equal_boundaries(4))
    with pytest.raises(BadInputError):
        bundles.split(BundleRange(0, 0x40000000), [0])
    with pytest.raises(BadInputError):
        bundles.split(BundleRange(0, 0x40000000), [])
    with pytest.raises(ConflictError):
        bundles.split(BundleRange(0, 0x80000000), [5])
    with pytest.raises(
        ConflictError, match="there it has 0x00000000_0x40000000, 0x40000000_0x80000000"
    ):
        bundles.require("0x00000000_0x80000000")


def test_range_texts() -> None:
    """Ranges read what Java's decode reads and write Pulsar's form; names split at
    the last slash.
    """
    assert str(BundleRange.parse("0_4294967295")) == "0x00000000_0xffffffff"
    assert split_bundle_name("a/b/0x00000000_0xffffffff") == ("a/b", "0x00000000_0xffffffff")
    assert not BundleRange(5, 6).splittable
    for text in ("0x1", "0x5_0x5", "0x6_0x5", "0x0_0x100000000", "a_b"):
        with pytest.raises(BadInputError):
            BundleRange.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * TOPIC_NAME_BYTES_MAX,
        "persistent://public/default/" + "ü" * 500,
        "persistent://public/default/\ud800",
        "x-partition-" + "9" * 900,
        "x-partition-" + "9" * 5000,
        "x-partition-2147483648",
        "y" * 100_000,
    ],
)
def test_names_that_no_topic_may_have(text: str) -> None:
    """Refused with a short text: longer than the limit in bytes, not UTF-8, a partition's index
    beyond int32.
    """
    with pytest.raises(BadInputError) as caught:
        TopicName.parse(text)
    assert len(str(caught.value)) < 300


def test_limits_of_names_are_allowed() -> None:
    """The greatest names and index are taken; encoded they fit into a path by far."""
    local = "ü" * ((TOPIC_NAME_BYTES_MAX - len("persistent://a/b/")) // 2)
    topic = TopicName.parse(f"persistent://a/b/{local}")
    assert len(paths.subscription(topic, "ü" * (NAME_BYTES_MAX // 2))) < 5_000
    assert TopicName.parse("x-partition-2147483647").partition == 2147483647
    assert TopicName.parse("x-partition-\u0663").partition == -1
    assert check_name("ü" * (NAME_BYTES_MAX // 2), "name")
    with pytest.raises(BadInputError):
        check_name("ü" * (NAME_BYTES_MAX // 2) + "x", "name")
