"""The state record of a bundle in the extensible manager, and the changes of it that are legal.

The record is Pulsar's `ServiceUnitStateData`; the table is that of its `ServiceUnitState` for the
channel in the metadata store. **Invariant:** the owner of a bundle is the session that the record
names in the states Owned, Releasing and Splitting; in every other state nobody owns the bundle.

Deviations: the record names the owner's session, too; an automatic repair never makes a broker the
owner, as Pulsar's override does: it assigns the bundle, and the broker takes it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from loadmanager.engine.ownership.states import IllegalTransitionError
from loadmanager.kit.addresses import HOST_MAX
from loadmanager.kit.errors import BadInputError

NUMBER_MAX = 2**63 - 1


class UnitState(Enum):
    """The state of a bundle in its record."""

    INIT = "Init"
    """There is no record."""
    FREE = "Free"
    """Nobody owns the bundle; the next lookup assigns it."""
    ASSIGNING = "Assigning"
    """The destination is about to take the bundle. Nobody owns it."""
    OWNED = "Owned"
    """The destination owns the bundle."""
    RELEASING = "Releasing"
    """The source still owns the bundle, and is to give it up: to the destination, if there is one.
    """
    SPLITTING = "Splitting"
    """The source still owns the bundle, and replaces it by its children."""
    DELETED = "Deleted"
    """The bundle was split. The record goes after a while."""


IN_FLIGHT = (UnitState.ASSIGNING, UnitState.RELEASING, UnitState.SPLITTING)
"""States that do not last."""

UNIT_TRANSITIONS: Mapping[UnitState, tuple[UnitState, ...]] = {
    # OWNED at once: the child of a split, which its parent's owner creates
    UnitState.INIT: (UnitState.ASSIGNING, UnitState.OWNED),
    UnitState.FREE: (UnitState.ASSIGNING, UnitState.INIT),
    UnitState.ASSIGNING: (UnitState.OWNED,),
    UnitState.OWNED: (UnitState.RELEASING, UnitState.SPLITTING),
    UnitState.RELEASING: (UnitState.ASSIGNING, UnitState.FREE),
    UnitState.SPLITTING: (UnitState.DELETED,),
    UnitState.DELETED: (UnitState.INIT,),
}
"""From → the states that may follow."""

REPAIRS: Mapping[UnitState, tuple[UnitState, ...]] = {
    UnitState.ASSIGNING: (UnitState.ASSIGNING, UnitState.FREE),
    # OWNED: the owner itself, which restores its record or begins a new life
    UnitState.OWNED: (UnitState.ASSIGNING, UnitState.FREE, UnitState.OWNED),
    UnitState.RELEASING: (UnitState.ASSIGNING, UnitState.FREE, UnitState.RELEASING),
    UnitState.SPLITTING: (UnitState.ASSIGNING, UnitState.FREE, UnitState.OWNED),
}
"""What `force` adds: the owner's session is over, or the record got stuck."""


class StateRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One version of a bundle's record."""

    state: UnitState
    dst_broker: str | None = None
    source_broker: str | None = None
    split_service_unit_to_dest_broker: dict[str, str | None] | None = None
    force: bool = False
    timestamp: int = 0
    """Milliseconds since the epoch, by the writer's clock."""
    version_id: int = 1
    """Grows by one with every change, until the record is removed."""
    owner_session: int = 0
    """The session that owns the bundle, in the states that have an owner. Not in Pulsar."""
    opening: bool | msgspec.UnsetType = msgspec.UNSET
    """True: the owner is about to serve the bundle. Only written where that may take long."""
    traceparent: str | msgspec.UnsetType = msgspec.UNSET
    """The trace that an order is part of, as W3C writes it; only if it is traced. Not in Pulsar."""

    @property
    def owner(self) -> tuple[str, int] | None:
        """brokerId and session of the owner; None: nobody owns the bundle, or no session is named,
        as in a record that was written by hand.
        """
        if self.state is UnitState.OWNED:
            broker = self.dst_broker
        elif self.state in (UnitState.RELEASING, UnitState.SPLITTING):
            broker = self.source_broker
        else:
            return None
        return (broker, self.owner_session) if broker and self.owner_session else None


_DECODER = msgspec.json.Decoder(StateRecord)


def decode_record(value: bytes) -> StateRecord:
    """A record from its JSON. Raises `BadInputError`."""
    try:
        record = _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"malformed state record: {error}") from None
    if any(len(name or "") > HOST_MAX for name in (record.dst_broker, record.source_broker)):
        raise BadInputError(f"a broker's name is longer than {HOST_MAX} characters")
    if not all(
        0 <= number < NUMBER_MAX for number in (record.timestamp, record.version_id)
    ) or not (-NUMBER_MAX <= record.owner_session <= NUMBER_MAX):
        raise BadInputError("a number is out of range")
    if record.state is UnitState.INIT:
        raise BadInputError("a record that exists is not in the state Init")
    return record


def encode_record(record: StateRecord) -> bytes:
    """The JSON of a record."""
    return msgspec.json.encode(record)


# The changes. `before` is the present record, None if there is none.


def assigned(
    before: StateRecord | None, broker: str, now_ms: int, *, force: bool = False
) -> StateRecord:
    """A broker is to take a bundle that nobody owns; `force`: or whose owner's session is over."""
    return _next(before, UnitState.ASSIGNING, now_ms, force=force, dst_broker=broker)


def owned(before: StateRecord, session: int, now_ms: int, *, opening: bool = False) -> StateRecord:
    """The broker that the bundle is assigned to owns it."""
    return _next(
        before,
        UnitState.OWNED,
        now_ms,
        dst_broker=before.dst_broker,
        source_broker=before.source_broker,
        owner_session=session,
        opening=opening or msgspec.UNSET,
    )


def opened(before: StateRecord, now_ms: int) -> StateRecord:
    """The owner serves the bundle from now on."""
    return _next(
        before,
        UnitState.OWNED,
        now_ms,
        force=True,
        dst_broker=before.dst_broker,
        source_broker=before.source_broker,
        owner_session=before.owner_session,
    )


def child(broker: str, session: int, now_ms: int, *, opening: bool = False) -> StateRecord:
    """The record of a child of a split, owned by the parent's owner."""
    return _next(
        None,
        UnitState.OWNED,
        now_ms,
        dst_broker=broker,
        owner_session=session,
        opening=opening or msgspec.UNSET,
    )


def owned_again(
    before: StateRecord, broker: str, session: int, now_ms: int, *, opening: bool = False
) -> StateRecord:
    """The owner begins a new life in the same session, or restores its record."""
    return _next(
        before,
        UnitState.OWNED,
        now_ms,
        force=True,
        dst_broker=broker,
        owner_session=session,
        opening=opening or msgspec.UNSET,
    )


def releasing(
    before: StateRecord, destination: str | None, now_ms: int, *, force: bool = False
) -> StateRecord:
    """The owner is to give up the bundle. `force`: it is told again, perhaps with another
    destination. Raises `IllegalTransitionError` if the destination is the owner.
    """
    source = before.source_broker if before.state is UnitState.RELEASING else before.dst_broker
    if destination is not None and destination == source:
        raise IllegalTransitionError(f"{destination} owns the bundle already")
    return _next(
        before,
        UnitState.RELEASING,
        now_ms,
        force=force,
        dst_broker=destination,
        source_broker=source,
        owner_session=before.owner_session,
    )


def handed_over(before: StateRecord, now_ms: int) -> StateRecord:
    """The owner has given up the bundle, and the destination is to take it."""
    if not before.dst_broker:
        raise IllegalTransitionError("a bundle is released without a destination: nobody gets it")
    return _next(
        before,
        UnitState.ASSIGNING,
        now_ms,
        dst_broker=before.dst_broker,
        source_broker=before.source_broker,
    )


def freed(before: StateRecord, now_ms: int, *, force: bool = False) -> StateRecord:
    """Free the bundle: from now on nobody owns it."""
    source = before.dst_broker if before.state is UnitState.OWNED else before.source_broker
    return _next(before, UnitState.FREE, now_ms, force=force, source_broker=source)


def splitting(before: StateRecord, children: list[str], now_ms: int) -> StateRecord:
    """The owner is about to replace the bundle by children, given by their ranges."""
    return _next(
        before,
        UnitState.SPLITTING,
        now_ms,
        source_broker=before.dst_broker,
        split_service_unit_to_dest_broker=dict.fromkeys(children),
        owner_session=before.owner_session,
    )


def deleted(before: StateRecord, now_ms: int) -> StateRecord:
    """The bundle was replaced by its children."""
    return _next(
        before,
        UnitState.DELETED,
        now_ms,
        source_broker=before.source_broker,
        split_service_unit_to_dest_broker=before.split_service_unit_to_dest_broker,
    )


def _next(
    before: StateRecord | None, state: UnitState, now_ms: int, *, force: bool = False, **fields: Any
) -> StateRecord:
    """The record after a change. Raises `IllegalTransitionError` if no table allows it."""
    state_before = UnitState.INIT if before is None else before.state
    legal = UNIT_TRANSITIONS[state_before]
    if state not in legal and not (force and state in REPAIRS.get(state_before, ())):
        raise IllegalTransitionError(
            f"state record: {state_before.value} -> {state.value} is not legal"
        )
    version = 1 if before is None else before.version_id + 1
    return StateRecord(state=state, force=force, timestamp=now_ms, version_id=version, **fields)
