"""Permissions of roles on topics: the grants of namespaces and topics, as Pulsar stores them in
`auth_policies` (`PulsarAuthorizationProvider`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadmanager.kit.errors import BadInputError
from loadmanager.kit.names import TopicName

FIELD = "auth_policies"
NAMESPACE, TOPICS, SUBSCRIPTIONS = "namespace_auth", "destination_auth", "subscription_auth_roles"
PRODUCE, CONSUME = "produce", "consume"
ACTIONS = frozenset({PRODUCE, CONSUME, "functions", "sources", "sinks", "packages"})
"""What can be granted. Only `produce` and `consume` have an effect here."""
ROLE_BYTES_MAX = 1024
ROLES_MAX = 10_000
"""Roles with grants on one namespace or topic."""

Roles = Mapping[str, frozenset[str]]
"""Role → what it may do."""


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of one namespace."""

    namespace: Roles = field(default_factory=dict)
    topics: Mapping[str, Roles] = field(default_factory=dict)
    """Full name of a topic → its roles."""
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Subscription → the only roles that may consume from it."""

    @staticmethod
    def of(policies: Mapping[str, Any]) -> Grants:
        """The grants in a namespace's policies. What is not of Pulsar's form grants nothing."""
        stored = policies.get(FIELD)
        stored = stored if isinstance(stored, dict) else {}
        topics = stored.get(TOPICS)
        subscriptions = stored.get(SUBSCRIPTIONS)
        return Grants(
            _roles(stored.get(NAMESPACE)),
            {name: _roles(roles) for name, roles in topics.items()}
            if isinstance(topics, dict)
            else {},
            {name: _texts(roles) for name, roles in subscriptions.items()}
            if isinstance(subscriptions, dict)
            else {},
        )

    def allows(
        self,
        role: str,
        actions: Iterable[str],
        topic: TopicName | None,
        *,
        subscription: str = "",
        wildcards: bool = False,
    ) -> bool:
        """True if a role may do one of the actions; with a topic of the namespace, or with any."""
        if subscription and role not in self.subscriptions.get(subscription, (role,)):
            return False
        wanted = frozenset(actions)
        names = () if topic is None else (str(topic), str(topic.partitioned_topic))
        granted = [self.namespace, *(self.topics.get(name, {}) for name in names)]
        return any(_granted(roles, role, wildcards) & wanted for roles in granted)


def _granted(roles: Roles, role: str, wildcards: bool) -> frozenset[str]:
    exact = roles.get(role, frozenset())
    if not wildcards:
        return exact
    matching = [actions for pattern, actions in roles.items() if _matches(pattern, role)]
    return exact.union(*matching)


def _matches(pattern: str, role: str) -> bool:
    """Pulsar's wildcards: one `*`, at the end or at the beginning."""
    if pattern.endswith("*"):
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and role.endswith(pattern[1:])


def _roles(stored: object) -> Roles:
    if not isinstance(stored, dict):
        return {}
    return {role: _texts(actions) for role, actions in stored.items()}


def _texts(stored: object) -> frozenset[str]:
    return (
        frozenset(text for text in stored if isinstance(text, str))
        if isinstance(stored, list)
        else frozenset()
    )


def check_role(role: str) -> str:
    """The role. Raises `BadInputError` for an empty or oversize one."""
    if not role or len(role.encode()) > ROLE_BYTES_MAX or not role.isprintable():
        raise BadInputError(f"a role has 1 to {ROLE_BYTES_MAX} printable bytes")
    return role


def check_actions(actions: object) -> list[str]:
    """Actions to grant, in order. Raises `BadInputError` for others than Pulsar's."""
    if not isinstance(actions, list) or not actions or not set(map(str, actions)) <= ACTIONS:
        raise BadInputError(f"a list of actions is expected: {', '.join(sorted(ACTIONS))}")
    return sorted(set(actions))


def granted(roles: Mapping[str, Any], role: str, actions: list[str] | None) -> dict[str, Any]:
    """The roles with the actions of one role; None: without that role."""
    changed = {name: value for name, value in roles.items() if name != role}
    if actions is not None:
        if len(changed) >= ROLES_MAX:
            raise BadInputError(f"at most {ROLES_MAX} roles can have permissions here")
        changed[role] = actions
    return changed
