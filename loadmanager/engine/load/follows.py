"""Whether a broker's sensor follows the bundles that come to it and leave it.

Costs of bundles are learned from sensors, so that a sensor which stands still within its noise
would make cheap whatever comes to its broker, and the broker would be filled with it. Bundles that
come are therefore added up as they were expected when they came, before that sensor taught
anything; so are those that left. What the sensor rose by meanwhile has to be a part of the sum.
Both fade alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array

FADES, FADES_DOUBTED = 1 / 40, 1 / 400
"""How much of the past fades with each report. A sensor that is not believed may have to wait for
the changes of half a day to show that it follows.
"""
CHANGE = 0.08
"""A sum of bundles that says something: a part of a broker's CPU."""
FOLLOWS, FOLLOWS_AGAIN = 0.3, 0.5
"""A sensor follows if it rose by this part of what was expected; one that did not has to rise by
more, whatever changes its broker's traffic.
"""
AGREES = 0.06
"""One that did not follow, and shows no more than this less than the model, agrees with it."""
CHANGE_SHOWN, SHOWN_PART = 0.12, 0.7
"""One that showed this part of so great a change has followed it: what is summed begins anew. The
doubt what great bundles cost that came or left would hide that it stands still later.
"""
DEVIATIONS = 2.5
"""It does not follow if it is so many standard deviations away from what was expected."""
DIFFER_LEAST = 0.6
"""Bundles are taken to differ by so much at least."""
REPORTS = 8
"""So many reports in a row say that it does not follow: sensors are late, and noisy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed at brokers, as parts of their CPU: `[broker]`."""

    rose: Array
    """What their sensors rose by."""
    came: Array
    """What was expected of the bundles that came, less what was of those that left."""
    clients: Array
    """What was expected of their clients' own changes."""
    deviation: Array
    """The standard deviation of `came`: bundles differ in what they cost."""
    below: Array
    """What their sensors show less than the model."""
    step: Array
    """What a change has to exceed to be seen: that of a sensor which shows few values."""
    room: Array
    """What their sensors could rise by until they show a full broker."""


def reports_still(before: Array, changes: Changes, doubted: NDArray[np.bool_]) -> Array:
    """Reports in a row that did not follow, after one more of each broker: `[broker]`."""
    rose = np.maximum(changes.rose, changes.rose - changes.clients)
    came = np.minimum(changes.came, changes.room)
    still = (came >= CHANGE + changes.step) & (rose < FOLLOWS * came)
    still &= came - rose > DEVIATIONS * changes.deviation
    expected = np.minimum(changes.came + changes.clients, changes.room)
    says = np.abs(expected) >= CHANGE + changes.step
    again = np.sign(expected) * changes.rose >= FOLLOWS_AGAIN * np.abs(expected)
    of_doubted = np.where(says, np.where(again, before - 2, before + 1), before)
    of_doubted = np.where(changes.below <= AGREES, np.minimum(of_doubted, before - 1), of_doubted)
    of_trusted = np.where(still, before + 1, before - 1)
    after: Array = np.clip(np.where(doubted, of_doubted, of_trusted), 0, REPORTS)
    return after


def changes_shown(changes: Changes) -> NDArray[np.bool_]:
    """Whose sensors have just followed a great change, which nothing but bundles explains."""
    sign = np.sign(changes.came)
    rose = np.minimum(sign * changes.rose, sign * (changes.rose - changes.clients))
    great = np.abs(changes.came)
    shown: NDArray[np.bool_] = (great >= CHANGE_SHOWN) & (rose >= SHOWN_PART * great)
    return shown
