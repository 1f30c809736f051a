"""State records of the extensible manager: which changes are legal, and their JSON."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.ownership import state_records as records
from loadmanager.engine.ownership.state_records import REPAIRS, UNIT_TRANSITIONS, UnitState
from loadmanager.engine.ownership.states import IllegalTransitionError
from loadmanager.kit.errors import BadInputError

PULSARS = {
    UnitState.FREE: {UnitState.ASSIGNING},
    UnitState.OWNED: {UnitState.SPLITTING, UnitState.RELEASING},
    UnitState.ASSIGNING: {UnitState.OWNED},
    UnitState.RELEASING: {UnitState.ASSIGNING, UnitState.FREE},
    UnitState.SPLITTING: {UnitState.DELETED},
    UnitState.DELETED: {UnitState.INIT},
}
OF_STATE = {
    state: records.StateRecord(
        state=state, dst_broker="b", source_broker="a", owner_session=7, version_id=4
    )
    for state in UnitState
}
CHANGES = {
    UnitState.ASSIGNING: lambda before, force: records.assigned(before, "c", 9, force=force),
    UnitState.RELEASING: lambda before, force: records.releasing(before, "c", 9, force=force),
    UnitState.FREE: lambda before, force: records.freed(before, 9, force=force),
}


def test_the_table_is_pulsars() -> None:
    """That of the channel in the metadata store, and what a split and a removal need."""
    ours = {state: set(after) for state, after in UNIT_TRANSITIONS.items()}
    assert ours.pop(UnitState.INIT) == {UnitState.ASSIGNING, UnitState.OWNED}
    assert ours.pop(UnitState.FREE) - {UnitState.INIT} == PULSARS[UnitState.FREE]
    assert ours == {state: after for state, after in PULSARS.items() if state is not UnitState.FREE}


@pytest.mark.parametrize("before", [state for state in UnitState if state is not UnitState.INIT])
@pytest.mark.parametrize("after", CHANGES)
@pytest.mark.parametrize("force", [False, True])
def test_illegal_changes_are_refused(before: UnitState, after: UnitState, *, force: bool) -> None:
    """A change is made if the table or, by force, the table of repairs allows it."""
    legal = after in UNIT_TRANSITIONS[before] or (force and after in REPAIRS.get(before, ()))
    if legal:
        record = CHANGES[after](OF_STATE[before], force)
        assert (record.state, record.version_id, record.timestamp) == (after, 5, 9)
    else:
        with pytest.raises(IllegalTransitionError):
            CHANGES[after](OF_STATE[before], force)


def test_a_transfer() -> None:
    """Owned by A, then ordered to B, then assigned to B, then owned by B."""
    record = records.owned(records.assigned(None, "a", 1), 10, 2)
    assert record.owner == ("a", 10)
    record = records.releasing(record, "b", 3)
    assert (record.owner, record.dst_broker, record.source_broker) == (("a", 10), "b", "a")
    record = records.handed_over(record, 4)
    assert (record.state, record.owner, record.source_broker) == (UnitState.ASSIGNING, None, "a")
    record = records.owned(record, 20, 5)
    assert (record.owner, record.source_broker, record.version_id) == (("b", 20), "a", 5)


def test_a_release_without_destination() -> None:
    """Nobody gets the bundle, until a lookup assigns it."""
    record = records.releasing(records.owned(records.assigned(None, "a", 1), 10, 2), None, 3)
    with pytest.raises(IllegalTransitionError):
        records.handed_over(record, 4)
    record = records.freed(record, 4)
    assert (record.state, record.source_broker, record.owner) == (UnitState.FREE, "a", None)
    assert records.assigned(record, "b", 5).source_broker is None


def test_nobody_releases_a_bundle_to_its_owner() -> None:
    """Nor when the order is repeated."""
    record = records.child("a", 1, 1)
    with pytest.raises(IllegalTransitionError):
        records.releasing(record, "a", 2)
    with pytest.raises(IllegalTransitionError):
        records.releasing(records.releasing(record, "b", 2), "a", 3, force=True)


def test_a_split() -> None:
    """The parent's record ends Deleted; the children begin Owned, with the parent's session."""
    parent = records.splitting(records.child("a", 10, 1), ["x", "y"], 2)
    assert parent.owner == ("a", 10)
    parent = records.deleted(parent, 3)
    assert parent.owner is None
    assert parent.split_service_unit_to_dest_broker == {"x": None, "y": None}


def test_the_json_is_pulsars() -> None:
    """Names and values of `ServiceUnitStateData`, and the owner's session."""
    record = records.releasing(records.child("a:1", 10, 1), "b:1", 3)
    assert json.loads(records.encode_record(record)) == {
        "state": "Releasing",
        "dstBroker": "b:1",
        "sourceBroker": "a:1",
        "splitServiceUnitToDestBroker": None,
        "force": False,
        "timestamp": 3,
        "versionId": 2,
        "ownerSession": 10,
    }
    without_session = records.decode_record(
        b'{"state":"Owned","dstBroker":"a:1","timestamp":1,"versionId":3,"force":false}'
    )
    assert without_session.owner is None


@given(st.binary(max_size=200) | st.dictionaries(st.text(), st.text()).map(msgspec.json.encode))
def test_nonsense_is_refused(value: bytes) -> None:
    """As bad input, whatever it is."""
    with pytest.raises(BadInputError):
        records.decode_record(value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"state":"Init"}',
        b'{"state":"Owned","versionId":-1}',
        b'{"state":"Owned","ownerSession":99999999999999999999}',
        b'{"state":"Owned","dstBroker":"' + b"x" * 600 + b'"}',
    ],
)
def test_impossible_records_are_refused(value: bytes) -> None:
    """A state that no record has, numbers and names out of range."""
    with pytest.raises(BadInputError):
        records.decode_record(value)
