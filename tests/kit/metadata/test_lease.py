"""What a lease knows of the store's answers."""

from __future__ import annotations

from loadmanager.kit.metadata.lease import BEATS_MIN, Lease


def test_a_silence_of_the_store_is_remembered() -> None:
    """From the last answer to the next one; neither one late answer, nor that this process stood
    still, is one.
    """
    lease = Lease()
    lease.beats = BEATS_MIN
    lease.answered(10.0)
    assert lease.silence is None  # there was no answer before
    lease.beats = 1
    lease.answered(90.0)
    assert lease.silence is None
    lease.beats = BEATS_MIN
    lease.prove(120.0, 6.0)
    assert lease.silence == (90.0, 120.0)
    lease.beats = 1
    lease.answered(121.0)
    assert (lease.silence, lease.answered_s) == ((90.0, 120.0), 121.0)
