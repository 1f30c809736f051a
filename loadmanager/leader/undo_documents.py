"""Puts stored documents back as they were before a change. Pure.

Only the fields that a change left behind are put back, and only while they are as it left them.
What cannot be put back says what can be done instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from loadmanager.engine.moves.move import Move
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Document
from loadmanager.kit.metadata.store import Node
from loadmanager.leader.audit import HIDDEN
from loadmanager.leader.documents.undo import NotUndone, UndoPlan, UndoStep

ADMIN = "loadmanager admin"
NAMED_MAX = 20


class CannotUndoError(ConflictError):
    """Why a change cannot be undone. `changed`: its document is not as it left it."""

    def __init__(self, why: str, *, changed: bool = False) -> None:
        super().__init__(why)
        self.changed = changed


@dataclass(frozen=True, slots=True)
class DocumentRule:
    """What may be put back of the documents below a root."""

    root: str
    below: int
    """How many names follow the root; -1: any number."""
    why: str = ""
    """Why nothing is put back; empty: the fields are."""
    made: str = ""
    """Why a document that was made is not deleted; empty: it is."""
    deleted: str = ""
    """Why a document that was deleted is not made again; empty: it is."""
    emptied: bool = False
    """Whether a document that was made stays, without any field."""
    fixed: dict[str, str] = field(default_factory=dict)
    """Field → why it is not put back."""


_BUNDLES = f"bundles were divided anew: `{ADMIN} bundles merge` and `bundles split` do that"
_GONE = "what was deleted with it does not come back"
RULES = (
    DocumentRule(paths.DYNAMIC_CONFIGURATION, 0, emptied=True),
    DocumentRule(paths.RESOURCE_GROUPS, 1),
    DocumentRule(paths.TOPIC_POLICIES, 4, deleted=f"its topic was deleted: {_GONE}", emptied=True),
    DocumentRule(
        paths.POLICIES,
        2,
        made=f"a namespace was made: `{ADMIN} namespaces delete` deletes it with its topics",
        deleted=f"a namespace was deleted: {_GONE}; `{ADMIN} namespaces create` makes another",
        fixed={"bundles": _BUNDLES, "deleted": f"the namespace was being deleted: {_GONE}"},
    ),
    DocumentRule(
        paths.POLICIES,
        1,
        made=f"a tenant was made: `{ADMIN} tenants delete` deletes it",
        deleted=f"a tenant was deleted: `{ADMIN} tenants create` makes it again",
    ),
    DocumentRule(
        paths.LOCAL_POLICIES,
        2,
        made="it was made with its namespace",
        deleted=f"a namespace was deleted: {_GONE}",
        fixed={"bundles": _BUNDLES},
    ),
    DocumentRule(
        paths.PARTITIONED_TOPICS,
        -1,
        why=f"partitions are not taken away: `{ADMIN} topics delete` deletes the topic",
    ),
    DocumentRule(
        paths.MANAGED_LEDGERS,
        -1,
        why="a topic or a subscription is made or deleted for good: "
        f"`{ADMIN} topics create` and `topics delete` do that",
    ),
    DocumentRule(
        paths.SCHEMAS, -1, why="messages of a schema may be stored: upload the one to have"
    ),
    DocumentRule(
        paths.REFUSED, -1, why=f"`{ADMIN} tokens allow` and `tokens refuse` decide about tokens"
    ),
    DocumentRule(paths.RESOURCE_QUOTAS, -1),
    DocumentRule(paths.PINS, 1),
    DocumentRule(paths.CORDONS, 1),
    DocumentRule(paths.PAUSE, 0),
    DocumentRule(paths.LIMIT_ENDS, 1),
    DocumentRule(
        paths.GOALS, 1, why=f"`{ADMIN} goals stop` ends an order; moves have ids of their own"
    ),
)
ISOLATION = "namespaceIsolationPolicies"


def _rule_of(path: str) -> DocumentRule:
    """Raises `CannotUndoError` for a document that none is about."""
    if path.startswith(f"{paths.CLUSTERS}/") and path.endswith(f"/{ISOLATION}"):
        return DocumentRule(path, 0, emptied=True)
    for rule in RULES:
        below = path.removeprefix(rule.root)
        if (
            path.startswith(rule.root)
            and below[:1] in ("", "/")
            and rule.below in (-1, below.count("/"))
        ):
            return rule
    raise CannotUndoError("documents of this kind are not put back")


def fields_of(text: str | None) -> Document | None:
    """The fields that the record of a change has; None: there was no document.

    Raises `CannotUndoError` for a text that was cut off, and for secrets.
    """
    if text is None:
        return None
    try:
        fields = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise CannotUndoError("it is too long: its record was cut off") from None
    if not isinstance(fields, dict):
        raise CannotUndoError("its record is no JSON object")
    if HIDDEN in fields.values():
        raise CannotUndoError("it holds a secret, which no record has")
    return fields


def put_back(change: ChangeShown, now: Document | None) -> Document | None:
    """The document as it was before a change; `now`: as it is. None: it does not exist.

    Raises `CannotUndoError`.
    """
    assert change.path is not None
    rule = _rule_of(change.path)
    if rule.why:
        raise CannotUndoError(rule.why)
    before, after = fields_of(change.before), fields_of(change.after)
    why = rule.made if before is None else rule.deleted if after is None else ""
    if why:
        raise CannotUndoError(why)
    for name in sorted({*(before or ()), *(after or ())}):
        if name in rule.fixed:
            raise CannotUndoError(rule.fixed[name])
    if before == after:
        why = "it changed nothing" if before is not None else "its record does not say what was"
        raise CannotUndoError(why)
    if before is None and rule.emptied:  # others may have set more fields of it since
        before = {}
    if before is None or after is None or now is None:
        if now != after:
            raise CannotUndoError("it is not as this change left it", changed=True)
        return before
    other = sorted(
        name for name in {**before, **after} if now.get(name, _ABSENT) != after.get(name, _ABSENT)
    )
    if other:
        text = f"{', '.join(other)} is not as this change left it"
        raise CannotUndoError(text, changed=True)
    return {**{name: it for name, it in now.items() if name not in after}, **before}


_ABSENT = object()


SetKey = Callable[[Mapping[str, object], str, str | None], dict[str, object]]
"""The dynamic settings with one key set or removed. Raises `BadInputError`."""


@dataclass(slots=True)
class EarlierMoves:
    """Moves of earlier terms, from archives."""

    by_move: dict[str, Move] = field(default_factory=dict)
    """Id of a move → the move."""
    by_decision: dict[str, list[Move]] = field(default_factory=dict)
    """Id of a decision → the moves that it made; `decided`: the kinds of its records."""
    decided: dict[str, set[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Ids of decisions that no archive has."""
    silent: Sequence[str] = ()
    """Brokers whose part is missing."""
    cut_off: bool = False
    """Whether the archives have more moves than were looked at."""
    unreadable: Sequence[str] = ()
    """The records that cannot be read, each with its part."""
    lost: Mapping[str, Sequence[int]] = field(default_factory=dict, init=False)
    """Broker → when it was lost, the oldest first; also with the whole cluster."""

    def notes(self) -> Iterator[str]:
        """What was left out."""
        yield from (f"a record is left out: {each}" for each in self.unreadable[:NAMED_MAX])

    def lost_after(self, broker: str, at_ms: int) -> int | None:
        """When a broker was lost first after a moment; None: it was not, or no record says it."""
        return next((it for it in self.lost.get(broker, ()) if it >= at_ms), None)

    def why_unknown(self, why: str) -> str:
        """`why`, with what is missing."""
        if self.silent:
            why += f"; {', '.join(self.silent[:NAMED_MAX])} did not answer"
        return f"{why}; only the last ones were looked at" if self.cut_off else why


@dataclass(frozen=True, slots=True)
class UndoOrder:
    """What is to be undone, as far as it was order, and what else must be asked."""

    ids: Sequence[str]
    changes: Mapping[str, Sequence[ChangeShown]]
    """Id → the change; several if brokers chose the same id."""
    silent: Sequence[str]
    """Brokers that did not answer."""
    set_key: SetKey
    earlier: EarlierMoves = field(default_factory=EarlierMoves)


@dataclass(slots=True)
class Draft:
    """A plan while it is made."""

    nodes: dict[str, Node | None] = field(default_factory=dict)
    """Path → the document as it is stored."""
    documents: dict[str, Document | None] = field(default_factory=dict)
    """Path → as it will be."""
    groups: set[str] = field(default_factory=set)
    """The documents of resource groups that namespaces will be in again."""
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Bundle → its owner, and where it will be."""
    steps: list[UndoStep] = field(default_factory=list)
    cannot: list[NotUndone] = field(default_factory=list)
    changed: list[ChangeShown] = field(default_factory=list)
    """Changes whose documents are not as they left them."""
    notes: list[str] = field(default_factory=list, init=False)
    """What may be missing."""
    needless: bool = field(default=False, init=False)
    """Whether what the steps come to is there already."""

    @property
    def seal(self) -> str:
        return sha256(msgspec.json.encode(self.steps)).hexdigest()[:12]

    def is_cordoned(self, broker: str, cordons: Mapping[str, object]) -> bool:
        """Whether a broker will be cordoned; `cordons`: those of now."""
        path = paths.cordon(broker)
        if path in self.documents:
            return self.documents[path] is not None
        return broker in cordons

    def plan(self) -> UndoPlan:
        return UndoPlan(
            seal=self.seal,
            steps=self.steps,
            cannot=self.cannot,
            notes=self.notes,
            needless=self.needless,
        )

    def refuse(self, id_: str, what: str | None, of: str | None, why: str) -> None:
        self.cannot.append(NotUndone(id=id_, what=what, of=of, why=why))
