"""Isolation and anti-affinity, by Pulsar's documentation."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies import anti_affinity
from loadmanager.engine.policies.isolation import (
    EXPRESSION_LENGTH_MAX,
    EXPRESSIONS_MAX,
    SIZE_MAX,
    AutoFailover,
    IsolationPolicies,
    IsolationPolicy,
    Work,
    _compiled,
    decode_policies,
    decode_policy,
    matches_broker,
)
from loadmanager.engine.strategies import cycle, filters
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason

POLICIES = b"""{"gold": {"namespaces": ["gold/.*"], "primary": ["p1.*"], "secondary": ["s\\\\d"],
  "auto_failover_policy": {"policy_type": "min_available",
                           "parameters": {"min_limit": "2", "usage_threshold": "80"}}}}"""


def test_primaries_secondaries_and_the_rest() -> None:
    """A policy's namespaces go to its primaries, and to secondaries while primaries are too few;
    other namespaces go to brokers that are primaries of no policy.
    """
    policies = decode_policies(POLICIES)
    assert policies.rejected("gold/a", ["p1:80", "s1:80", "x:80"], {}) == {
        "x:80": Reason("Isolation", "the policy does not name it")
    }
    assert policies.rejected("gold/a", ["p1:80", "p12:80", "s1:80"], {}) == {
        "s1:80": Reason("Isolation", "a secondary, and there are enough primaries")
    }
    assert policies.rejected("iron/a", ["p1:80", "s1:80", "x:80"], {}) == {
        "p1:80": Reason("Isolation", "it is primary for other namespaces")
    }
    disabled = {"x:80": LocalBrokerData(persistent_topics_enabled=False)}
    found = policies.rejected("iron/a", ["x:80"], disabled)
    assert found == {"x:80": Reason("PersistentTopicsDisabled")}


@pytest.mark.parametrize("raw", [b"[]", b'{"a": {"primary": [1]}}', b'{"a": {"primary": ["("]}}'])
def test_bad_policies(raw: bytes) -> None:
    """Wrong types and invalid expressions are refused."""
    with pytest.raises(BadInputError):
        decode_policies(raw)


@pytest.mark.parametrize(
    "expression",
    [r"(?=a)b", r"(?<!a)b", r"(a)\1", "a++", "(", "(a{1000}){1000}", "(ab|cd){1000}" * 3],
)
def test_what_re2_cannot_do_is_refused_with_its_name(expression: str) -> None:
    """The error names the policy, and the parts of Java's syntax that RE2 does not have."""
    raw = json.dumps({"gold": {"namespaces": [expression]}}).encode()
    with pytest.raises(
        BadInputError, match=r"policy .gold..* cannot be used.*RE2.*lookahead.*backreference"
    ):
        decode_policies(raw)


def test_expressions_are_bounded() -> None:
    """In length, and in number over all policies."""
    longest = {"namespaces": ["x" * EXPRESSION_LENGTH_MAX]}
    decode_policies(json.dumps({"p": longest}).encode())
    with pytest.raises(BadInputError, match=r"'p'.*characters"):
        decode_policies(
            json.dumps({"p": {"primary": ["x" * (EXPRESSION_LENGTH_MAX + 1)]}}).encode()
        )
    many = {name: {"secondary": ["x"] * (EXPRESSIONS_MAX // 2)} for name in "ab"}
    decode_policies(json.dumps(many).encode())
    with pytest.raises(BadInputError, match=f"{EXPRESSIONS_MAX} are allowed"):
        decode_policies(json.dumps({**many, "c": {"primary": ["x"]}}).encode())


def test_the_size_of_all_expressions_together_is_bounded() -> None:
    """Each of them may be used, but not so many; what is refused takes no room from others."""
    large = ["(x|y|z|d#){1,190}.*" + "n" * number for number in range(1, 1_000)]
    with pytest.raises(BadInputError, match=r"policy 'a'.*too large"):
        decode_policies(json.dumps({"a": {"namespaces": large}}).encode())
    work = Work()
    some = {"namespaces": large[: SIZE_MAX // 1_500]}
    decode_policy("a", json.dumps(some).encode(), work)
    with pytest.raises(BadInputError, match="too large"):
        decode_policy("b", json.dumps(some).encode(), work)
    decode_policy("c", json.dumps({"namespaces": ["gold/.*"]}).encode(), work)


def test_plain_expressions_are_not_too_large() -> None:
    """As many as are allowed, of names as long as people give."""
    plain = [f"tenant-{number}/namespace-[0-9]+-of-.*" for number in range(EXPRESSIONS_MAX)]
    decode_policies(json.dumps({"p": {"namespaces": plain}}).encode())


@pytest.mark.parametrize("expression", ["(x|y|z|d#){1,190}.*", "(.{200}){9}", "("])
def test_policies_that_are_refused_cost_little(expression: str) -> None:
    """However many there are: after some of them, no expression is compiled any more."""
    work, refused = Work(), 0
    _compiled.cache_clear()
    for number in range(2_000):
        expressions = [f"{expression}{'x' * 200}{number}{letter}" for letter in "ab"] * 70
        with suppress(BadInputError):
            decode_policy("p", json.dumps({"namespaces": expressions}).encode(), work)
            continue
        refused += 1
    assert refused >= 1_990
    assert _compiled.cache_info().misses < 1_500


def test_expressions_match_in_full() -> None:
    """As Java's `matches`: a longer text does not match, and anchors change nothing."""
    policies = decode_policies(
        b'{"p": {"namespaces": ["a/b", "^c/d$", "e/.*|f/g"], "primary": ["h"]}}'
    )
    assert [name for name in ("a/b", "c/d", "e/x", "f/g") if policies.of(name) is None] == []
    assert [
        name for name in ("a/bb", "xa/b", "c/d\n", "f/gh", "e") if policies.of(name) is not None
    ] == []
    assert matches_broker(policies["p"].primary, "h:8080")
    assert not matches_broker(policies["p"].primary, "hh:8080")


def test_an_expression_without_a_colon_matches_hosts_only() -> None:
    """A host that the expression does not match gets no bundle because of its port."""
    assert not matches_broker([".*0"], "b7:8080")
    assert matches_broker([".*0"], "b10:8081")
    assert matches_broker(["b7:80.*"], "b7:8080")
    assert not matches_broker(["b7:80.*"], "b7:9080")


def test_matching_takes_time_linear_in_the_text() -> None:
    """Expressions that keep a backtracking engine busy for years."""
    hostile = ["(a+)+", "(a|a)*b", "(.*a){30}", "(a?){200}a{200}"]
    policies = decode_policies(json.dumps({"p": {"namespaces": hostile}}).encode())
    began_s = time.process_time()
    assert policies.of("a" * 2_000 + "-") is None
    assert time.process_time() - began_s < 10


def test_documented_anti_affinity_sequence() -> None:
    """Two domains of two brokers: the namespaces of a group go to D1B1, D2B3, D1B2, D2B4 (up to the
    order within a domain).
    """
    domains = {"D1": ["b1:80", "b2:80"], "D2": ["b3:80", "b4:80"]}
    groups = {f"t/n{number}": "g" for number in range(4)}
    bundles: dict[str, list[str]] = {broker: [] for names in domains.values() for broker in names}
    chosen = []
    for number in range(4):
        reports = {broker: LocalBrokerData(bundles=served) for broker, served in bundles.items()}
        snapshot = ClusterSnapshot(
            now_ms=0, reports=reports, anti_affinity_groups=groups, failure_domains=domains
        )
        bundle = f"t/n{number}/0x00000000_0xffffffff"
        (placement,), _ = cycle.place(
            snapshot, [bundle], StrategySettings(), Memories(), random.Random(number)
        )
        assert placement.broker is not None
        assert set(placement.candidates) | set(placement.rejected) == set(bundles)
        bundles[placement.broker].append(bundle)
        chosen.append(placement.broker)
    domain = {broker: name for name, brokers in domains.items() for broker in brokers}
    assert len(set(chosen)) == 4
    assert [domain[broker] for broker in chosen] in (
        ["D1", "D2", "D1", "D2"],
        ["D2", "D1", "D2", "D1"],
        ["D1", "D2", "D2", "D1"],
        ["D2", "D1", "D1", "D2"],
    )


def test_versions_and_load_managers() -> None:
    """With preferLaterVersions only the newest version gets bundles; an unreadable version switches
    off this filter and the one of load managers (Pulsar's rule).
    """

    def placed(versions: dict[str, str], **settings: object) -> set[str]:
        reports = {
            broker: LocalBrokerData(
                broker_version_string=version,
                load_manager_class_name="x.ModularLoadManagerImpl"
                if broker != "old"
                else "x.Other",
            )
            for broker, version in versions.items()
        }
        snapshot = ClusterSnapshot(now_ms=0, reports=reports)
        (placement,), _ = cycle.place(
            snapshot,
            ["t/n/0x00000000_0xffffffff"],
            StrategySettings(**settings),
            Memories(),
            random.Random(0),
        )  # type: ignore[arg-type]
        return set(placement.candidates)

    versions = {"a": "3.0.1", "b": "3.0.10", "c": "3.0.10-SNAPSHOT", "old": "4.0.0"}
    assert placed(versions) == {"a", "b", "c"}
    assert placed(versions, prefer_later_versions=True) == {"b"}
    assert placed({**versions, "a": "unknown"}, prefer_later_versions=True) == {
        "a",
        "b",
        "c",
        "old",
    }


def test_versions_in_the_extensible_manager() -> None:
    """Placements go on without the filter while a version is not readable; TransferShedder, which
    asks strictly, finds no broker then (Pulsar's rule).
    """

    def able(versions: dict[str, str], *, strict: bool = False) -> list[str]:
        load_data = {name: BrokerLoadData() for name in ("a", "b", "c")}
        snapshot = ClusterSnapshot(
            now_ms=0, extensible=True, reports={}, load_data=load_data, versions=versions
        )
        settings = StrategySettings(prefer_later_versions=True)
        return list(filters.extensible(snapshot, "t/n", settings, strict=strict)[0])

    assert able({"a": "4.0.1", "b": "4.0.0", "c": "4.0.1"}) == ["a", "c"]
    unreadable = {"a": "4.0.1", "b": "latest", "c": "4.0.0"}
    assert (able(unreadable), able(unreadable, strict=True)) == (["a", "b", "c"], [])


def test_excluded_namespaces_go_round() -> None:
    """Bundles of excluded namespaces are dealt out in turn."""
    snapshot = ClusterSnapshot(
        now_ms=0, reports={name: LocalBrokerData() for name in ("a", "b", "c")}
    )
    settings = StrategySettings(excluded_namespaces=("t/n",), distribute_evenly=False)
    bundles = [f"t/n/0x{number:08x}_0x{number + 1:08x}" for number in range(5)]
    placements, _ = cycle.place(snapshot, bundles, settings, Memories(), random.Random(0))
    assert [placement.broker for placement in placements] == ["a", "b", "c", "a", "b"]


def test_a_broker_that_is_no_candidate_does_not_count() -> None:
    """As in Pulsar: what the present broker serves of the group counts if it may serve the bundle
    by its isolation policy, too.
    """
    counts = {"b1": 2, "b2": 1, "b3": 1}
    assert anti_affinity.may_unload("b1", ["b1", "b2", "b3"], counts)
    assert not anti_affinity.may_unload("b1", ["b2", "b3"], counts)


NAMES = st.sampled_from(["b1", "b2", "b10", "c1"])
EXPRESSIONS = st.lists(st.sampled_from(["b1", "b.*", "c1", ".*0", "none"]), max_size=2)


@given(
    policies=st.dictionaries(
        st.sampled_from("pqr"),
        st.builds(
            IsolationPolicy,
            namespaces=st.lists(st.sampled_from(["t/a", "t/.*", "u/a"]), max_size=2),
            primary=EXPRESSIONS,
            secondary=EXPRESSIONS,
            auto_failover_policy=st.builds(
                AutoFailover, parameters=st.fixed_dictionaries({"min_limit": st.integers(0, 3)})
            ),
        ),
    ),
    clusters=st.lists(st.dictionaries(NAMES, st.booleans(), min_size=1), min_size=1, max_size=3),
)
def test_who_may_serve_is_everyone_without_a_reason_not_to(
    policies: dict[str, IsolationPolicy], clusters: list[dict[str, bool]]
) -> None:
    """What is kept of one cluster does not show in the next one."""
    kept = IsolationPolicies(dict(sorted(policies.items())))
    for cluster in clusters:
        reports = {
            f"{host}:80": LocalBrokerData(persistent_topics_enabled=persistent)
            for host, persistent in cluster.items()
        }
        snapshot = ClusterSnapshot(now_ms=0, reports=reports, isolation_policies=kept)
        for namespace in ("t/a", "t/b", "u/a", "v/a"):
            left, reasons = filters.may_serve(snapshot, namespace)
            fresh = IsolationPolicies(kept).rejected(namespace, sorted(reports), reports)
            assert dict(reasons) == fresh
            assert list(left) == [broker for broker in sorted(reports) if broker not in fresh]
