"""The life of a bundle on one broker."""

from __future__ import annotations

import pytest

from loadmanager.core.ownership.states import TRANSITIONS, BundleLife, BundleState, IllegalTransitionError


def test_only_the_table_is_legal() -> None:
    """Each step of the table is possible, every other raises."""
    for before in BundleState:
        for after in BundleState:
            life = BundleLife("t/n/0x00000000_0xffffffff", before)
            if after in TRANSITIONS[before]:
                assert life.become(after, "test") is before
                assert life.state is after
            else:
                with pytest.raises(IllegalTransitionError):
                    life.become(after, "test")
                assert life.state is before


def test_an_illegal_step_tells_the_story() -> None:
    """The error says how the bundle came to where it is."""
    life = BundleLife("t/n/0x00000000_0xffffffff")
    life.become(BundleState.ASSIGNING, "lookup")
    life.become(BundleState.OWNED, "lock taken")
    with pytest.raises(IllegalTransitionError, match=r"Free -> Assigning \(lookup\) \| Assigning -> Owned \(lock taken\)"):
        life.become(BundleState.ASSIGNING, "again")


def test_served_in_two_states_only() -> None:
    """A bundle is served while it is owned or being split, never otherwise."""
    assert {state for state in BundleState if BundleLife("b", state).served} == {BundleState.OWNED, BundleState.SPLITTING}
