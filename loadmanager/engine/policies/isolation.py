"""Namespace isolation: which brokers may serve a namespace.

Pulsar's rules (`NamespaceIsolationPolicies`, `LoadManagerShared.applyNamespacePolicies`).
Deviation: the regular expressions are RE2's, whose matching takes time linear in the text, so that
no expression stops a broker. Java's lookaround, backreferences and possessive quantifiers are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import BrokerColumns
from loadmanager.engine.load.reports import LocalBrokerData, decode_tolerant
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason

PRIMARY_ELSEWHERE = Reason("Isolation", "it is primary for other namespaces")
NOT_NAMED = Reason("Isolation", "the policy does not name it")
SECONDARY = Reason("Isolation", "a secondary, and there are enough primaries")
NOT_PERSISTENT = Reason("PersistentTopicsDisabled")
DIGITS_MAX = 9
EXPRESSION_LENGTH_MAX = 2_100
"""Characters of one expression: the longest name of a namespace has 2,049."""
EXPRESSIONS_MAX = 2_000
"""Expressions of all policies together."""
EXPRESSION_BYTES_MAX = 65_536
"""Memory that RE2 may use for one expression."""
SIZE_MAX = 200_000
"""Instructions of the compiled expressions of all policies together: the time of a match grows with
them. A plain expression has little more than it has characters.
"""
REFUSED_SIZE_MAX = 4 * SIZE_MAX
"""Instructions that may be compiled for policies that are refused."""
UNUSABLE_SIZE = 2_000
"""An expression that cannot be compiled counts as so many."""
MATCHES_MAX = 10_000
"""So many namespaces, and brokers for each policy, are kept beside what they matched."""
_PORT = re.compile(r"(.+):[0-9]+")


class AutoFailover(msgspec.Struct):
    """`min_available`: secondaries serve, too, while fewer than `min_limit` primaries are there."""

    policy_type: str = "min_available"
    parameters: dict[str, str | int] = {}

    @property
    def min_limit(self) -> int:
        """The number of primaries that is enough."""
        return int(self.parameters.get("min_limit", 1))


class IsolationPolicy(msgspec.Struct):
    """Regular expressions, each of which must match in full: namespaces, and hosts of primary and
    secondary brokers.
    """

    namespaces: list[str] = []
    primary: list[str] = []
    secondary: list[str] = []
    auto_failover_policy: AutoFailover = msgspec.field(default_factory=AutoFailover)

    @property
    def expressions(self) -> list[str]:
        """Every regular expression of the policy."""
        return [*self.namespaces, *self.primary, *self.secondary]


NO_POLICIES: Mapping[str, IsolationPolicy] = {}
_BY_NAME = msgspec.json.Decoder(dict[str, msgspec.Raw])
_POLICY = msgspec.json.Decoder(IsolationPolicy)


def decode_policies(raw: bytes) -> IsolationPolicies:
    """Policies from their JSON. Raises as `decode_policy` does."""
    work = Work()
    return IsolationPolicies(
        {name: decode_policy(name, raw, work) for name, raw in split_policies(raw).items()}
    )


def split_policies(raw: bytes) -> dict[str, bytes]:
    """The JSON of each policy by name, in order of name.

    Raises `BadInputError` unless `raw` is a JSON object.
    """
    try:
        return {name: bytes(value) for name, value in sorted(_BY_NAME.decode(raw).items())}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"isolation policies: {error}") from None


class Work:
    """The work of matching the expressions of all policies together. Bounded, as is the work of
    finding that out.
    """

    def __init__(self, policies: Iterable[IsolationPolicy] = ()) -> None:
        self._number = self._size = self._refused = 0
        for policy in policies:
            self.add(policy)

    def add(self, policy: IsolationPolicy) -> None:
        """Count a policy. Raises `BadInputError`, and counts nothing, if it is too much, or if an
        expression cannot be used.
        """
        number, size = self._number + len(policy.expressions), 0
        if number > EXPRESSIONS_MAX:
            raise BadInputError(f"{number} regular expressions; {EXPRESSIONS_MAX} are allowed")
        try:
            for expression in policy.expressions:
                if self._refused > REFUSED_SIZE_MAX:
                    raise BadInputError("too many others cannot be used; it is not looked at")
                size += UNUSABLE_SIZE  # counts if the next line raises
                size += _compiled(expression).programsize - UNUSABLE_SIZE
                if self._size + size > SIZE_MAX:
                    raise BadInputError(
                        f"the regular expressions of all policies together are too large: they "
                        f"have more than {SIZE_MAX} instructions"
                    )
        except BadInputError:
            self._refused += size
            raise
        self._number, self._size = number, self._size + size


def decode_policy(name: str, raw: bytes, work: Work) -> IsolationPolicy:
    """One policy from its JSON, counted.

    Raises `BadInputError` naming the policy for a wrong type, and as `Work.add`: for an expression
    that is too long, needs too much memory, or is not in RE2's syntax, and for too much work.
    """
    try:
        policy = decode_tolerant(_POLICY, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"isolation policy {name!r}: {error}") from None
    limit = str(policy.auto_failover_policy.parameters.get("min_limit", 1))
    if not (limit.isascii() and limit.isdecimal()) or len(limit) > DIGITS_MAX:
        raise BadInputError(
            f"isolation policy {name!r}: min_limit must be a whole number of at most "
            f"{DIGITS_MAX} digits"
        )
    try:
        work.add(policy)
    except BadInputError as error:
        raise BadInputError(f"isolation policy {name!r}: {error}") from None
    return policy


@lru_cache(maxsize=EXPRESSIONS_MAX)
def _compiled(expression: str) -> Any:
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise BadInputError(
            f"the regular expression {expression[:40]!r}… has {len(expression)} characters; "
            f"{EXPRESSION_LENGTH_MAX} are allowed"
        )
    import re2  # of the extra `broker`: a member of a service has no policies of Pulsar's

    options = re2.Options()
    options.max_mem = EXPRESSION_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "unknown"
        raise BadInputError(
            f"the regular expression {expression[:80]!r} cannot be used: {reason}. "
            "The syntax is RE2's: no lookahead or lookbehind, no backreferences, no "
            "possessive quantifiers"
        ) from None


def _matches(expression: str, text: str) -> bool:
    return _compiled(expression).fullmatch(text) is not None


def matches_broker(expressions: Sequence[str], broker: str) -> bool:
    """True if an expression matches a broker's host. One with a colon may match its id, too
    (`host:port`).

    Deviation: Pulsar matches hosts only.
    """
    port = _PORT.fullmatch(broker)
    host = port[1] if port else broker
    return any(
        _matches(expression, host) or (":" in expression and _matches(expression, broker))
        for expression in expressions
    )


class IsolationPolicies(Mapping[str, IsolationPolicy]):
    """Isolation policies by name, in order of name, which nobody changes.

    They keep what matched, so that placements match each namespace and each broker once.
    """

    def __init__(self, policies: Mapping[str, IsolationPolicy] = NO_POLICIES) -> None:
        self._policies = dict(policies)
        everyone = [each for policy in self._policies.values() for each in policy.primary]
        self._primaries = _Matching(everyone)
        self._of_each = {
            id(policy): (_Matching(policy.primary), _Matching(policy.secondary))
            for policy in self._policies.values()
        }
        self._policy_of: dict[str, IsolationPolicy | None] = {}
        self._rows: tuple[object, dict[int, NDArray[np.bool_]]] = (None, {})

    def __getitem__(self, name: str) -> IsolationPolicy:
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def of(self, namespace: str) -> IsolationPolicy | None:
        """The first policy, in order of name, that covers a namespace.

        Deviation: Pulsar takes the first in hash order.
        """
        if namespace not in self._policy_of:
            if len(self._policy_of) >= MATCHES_MAX:
                self._policy_of.clear()
            covering = (
                policy
                for policy in self._policies.values()
                if any(_matches(expression, namespace) for expression in policy.namespaces)
            )
            self._policy_of[namespace] = next(covering, None)
        return self._policy_of[namespace]

    def rejected(
        self, namespace: str, brokers: Sequence[str], reports: Mapping[str, LocalBrokerData]
    ) -> dict[str, Reason]:
        """The brokers that may not serve a namespace, and why."""
        reasons: dict[str, Reason] = {}
        policy = self.of(namespace)
        if policy is None:
            primary_of_any = self._primaries
            for broker in brokers:
                if primary_of_any[broker]:
                    reasons[broker] = PRIMARY_ELSEWHERE
                elif broker in reports and not reports[broker].persistent_topics_enabled:
                    reasons[broker] = NOT_PERSISTENT
            return reasons
        primary, secondary = self._of_each[id(policy)]
        enough = sum(map(primary.__getitem__, brokers)) >= policy.auto_failover_policy.min_limit
        for broker in brokers:
            if primary[broker]:
                continue
            if not secondary[broker]:
                reasons[broker] = NOT_NAMED
            elif enough:
                reasons[broker] = SECONDARY
        return reasons

    def allowed(self, namespace: str, columns: BrokerColumns) -> NDArray[np.bool_]:
        """`[row]`, not to be changed: true for brokers that `rejected` does not name, topics'
        persistence aside.
        """
        return self._allowed_by(self.of(namespace), columns)

    def allowed_by_each(self, columns: BrokerColumns) -> list[NDArray[np.bool_]]:
        """The same for each policy, and for namespaces without one."""
        return [self._allowed_by(policy, columns) for policy in (*self._policies.values(), None)]

    def allowed_without(
        self, namespace: str, columns: BrokerColumns, lost: int
    ) -> NDArray[np.bool_]:
        """The same if the broker of a row were lost: secondary brokers may serve then that do not
        now.
        """
        policy = self.of(namespace)
        if policy is None:
            rows = self._allowed_by(None, columns).copy()
        else:
            rows = self._of_each[id(policy)][0].rows(columns.names)
            rows[lost] = False
            self._add_secondary(policy, columns, rows)
        rows[lost] = False
        return rows

    def _allowed_by(
        self, policy: IsolationPolicy | None, columns: BrokerColumns
    ) -> NDArray[np.bool_]:
        of, rows_of = self._rows
        if of is not columns.row_of:
            of, rows_of = self._rows = columns.row_of, {}
        rows = rows_of.get(id(policy))
        if rows is None:
            if policy is None:
                rows = ~self._primaries.rows(columns.names)
            else:
                rows = self._of_each[id(policy)][0].rows(columns.names)
                self._add_secondary(policy, columns, rows)
            rows_of[id(policy)] = rows
        return rows

    def _add_secondary(
        self, policy: IsolationPolicy, columns: BrokerColumns, rows: NDArray[np.bool_]
    ) -> None:
        """Where these are too few primary brokers, secondary ones may serve as well."""
        if np.count_nonzero(rows) < policy.auto_failover_policy.min_limit:
            rows |= self._of_each[id(policy)][1].rows(columns.names)


class _Matching(dict[str, bool]):
    """brokerId → whether any of some expressions matches it; each broker is matched once."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._expressions = expressions

    def __missing__(self, broker: str) -> bool:
        if len(self) >= MATCHES_MAX:
            self.clear()
        matches = self[broker] = matches_broker(self._expressions, broker)
        return matches

    def rows(self, brokers: Sequence[str]) -> NDArray[np.bool_]:
        """True for the brokers that match."""
        return np.fromiter(map(self.__getitem__, brokers), np.bool_, len(brokers))


def with_matches(policies: Mapping[str, IsolationPolicy]) -> IsolationPolicies:
    """These policies, as those that keep what matched."""
    return policies if isinstance(policies, IsolationPolicies) else IsolationPolicies(policies)
