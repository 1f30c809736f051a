"""The permissions that grants give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.policies.permissions import (
    ACTIONS,
    CONSUME,
    FIELD,
    PRODUCE,
    ROLES_MAX,
    Grants,
    check_actions,
    check_role,
    granted,
)
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.names import TopicName

TOPIC = TopicName.parse("persistent://acme/orders/new-partition-3")
POLICIES = {
    FIELD: {
        "namespace_auth": {"writer": ["produce"], "team-*": ["consume"], "*-admin": ["produce"]},
        "destination_auth": {
            "persistent://acme/orders/new": {"parent": ["consume"]},
            "persistent://acme/orders/new-partition-3": {"part": ["produce", "consume"]},
        },
        "subscription_auth_roles": {"audit": ["auditor"]},
    }
}


@pytest.mark.parametrize(
    ("role", "action", "wildcards", "allowed"),
    [
        ("writer", PRODUCE, False, True),
        ("writer", CONSUME, False, False),
        ("parent", CONSUME, False, True),
        ("parent", PRODUCE, False, False),
        ("part", PRODUCE, False, True),
        ("team-a", CONSUME, False, False),
        ("team-a", CONSUME, True, True),
        ("team-a", PRODUCE, True, False),
        ("db-admin", PRODUCE, True, True),
        ("team-*", CONSUME, False, True),
        ("nobody", CONSUME, True, False),
    ],
)
def test_grants(role: str, action: str, wildcards: bool, allowed: bool) -> None:
    """Of the namespace, of the topic, of the topic that a partition belongs to; wildcards only
    where they are asked for.
    """
    assert Grants.of(POLICIES).allows(role, [action], TOPIC, wildcards=wildcards) is allowed


def test_namespaces_without_a_topic() -> None:
    """Only the namespace's own grants count."""
    grants = Grants.of(POLICIES)
    assert grants.allows("writer", [PRODUCE, CONSUME], None)
    assert not grants.allows("part", [PRODUCE, CONSUME], None)


def test_subscriptions_of_some_roles() -> None:
    """A subscription with roles of its own is for them alone."""
    grants = Grants.of({FIELD: {**POLICIES[FIELD], "namespace_auth": {"a": ["consume"]}}})
    assert grants.allows("a", [CONSUME], TOPIC, subscription="other")
    assert not grants.allows("a", [CONSUME], TOPIC, subscription="audit")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["namespace_auth", "destination_auth", "subscription_auth_roles"])
                | st.text(max_size=3),
                inner,
                max_size=3,
            )
        ),
    )
)
def test_what_is_no_grant_grants_nothing(stored: object) -> None:
    """Whatever an operator wrote into the store."""
    assert not Grants.of({FIELD: stored}).allows("somebody else", ACTIONS, TOPIC, wildcards=False)


def test_granting() -> None:
    """Replaces what the role had; None takes it away."""
    assert granted({"a": ["produce"]}, "a", ["consume"]) == {"a": ["consume"]}
    assert granted({"a": ["produce"], "b": []}, "a", None) == {"b": []}
    full = {str(number): ["produce"] for number in range(ROLES_MAX)}
    assert len(granted(full, "0", ["consume"])) == ROLES_MAX
    with pytest.raises(BadInputError):
        granted(full, "one more", ["consume"])


@pytest.mark.parametrize("actions", [None, [], "produce", ["fly"], [1], [["produce"]], {}])
def test_actions_that_do_not_exist(actions: object) -> None:
    """Are refused."""
    with pytest.raises(BadInputError, match="consume"):
        check_actions(actions)


@pytest.mark.parametrize("role", ["", "x" * 1025, "a\nb"])
def test_roles_that_cannot_be(role: str) -> None:
    """Are refused."""
    with pytest.raises(BadInputError):
        check_role(role)
