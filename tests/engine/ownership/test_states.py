"""The life of a bundle on one broker."""

from __future__ import annotations

import pytest

from loadmanager.engine.ownership.states import (
    TRANSITIONS,
    BundleLife,
    BundleState,
    IllegalTransitionError,
)


def test_only_the_table_is_legal() -> None:
    """Each step of the table is possible, every other raises."""
    for before in BundleState:
        for after in BundleState:
            life = BundleLife("t/n/0x00000000_0xffffffff", state=before)
            if after in TRANSITIONS[before]:
                assert life.become(after, "test") is before
                assert life.state is after
            else:
                with pytest.raises(IllegalTransitionError):
                    life.become(after, "test")
                assert life.state is before


def test_an_illegal_step_tells_the_story() -> None:
    """The error contains the last steps of the bundle's life."""
    life = BundleLife("t/n/0x00000000_0xffffffff")
    life.become(BundleState.ASSIGNING, "lookup")
    life.become(BundleState.OPENING, "lock taken")
    with pytest.raises(
        IllegalTransitionError,
        match=r"Free -> Assigning \(lookup\) \| Assigning -> Opening \(lock taken\)",
    ):
        life.become(BundleState.ASSIGNING, "again")


def test_served_in_two_states_only() -> None:
    """A bundle is served while it is owned or being split, never otherwise."""
    assert {state for state in BundleState if BundleLife("b", state=state).served} == {
        BundleState.OWNED,
        BundleState.SPLITTING,
    }


def test_a_life_that_is_over_does_not_begin_again() -> None:
    """The next acquisition is another life, with a token of its own."""
    life = BundleLife("b")
    life.become(BundleState.ASSIGNING, "lookup")
    life.become(BundleState.FREE, "somebody was faster")
    assert life.over
    with pytest.raises(IllegalTransitionError):
        life.become(BundleState.ASSIGNING, "lookup")
