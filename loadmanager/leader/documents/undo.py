"""Undoing: what would be put back, and what cannot be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from loadmanager.kit.model import Model, Name, Shape

IDS_MAX = 100
"""Changes and decisions that are undone at once."""


class UndoStep(Shape):
    """One document that is put back, or one bundle that is moved back."""

    id: str
    """Of the change or decision that is undone."""
    what: str
    """What was done then."""
    of: str
    """The stored document, or the bundle."""
    now: str | None
    """The fields as they are, as JSON, null: it does not exist; the owner of a bundle."""
    then: str | None
    """The same afterwards; null: it is deleted."""


class NotUndone(Shape):
    """What cannot be undone, and why."""

    id: str
    what: str | None
    of: str | None
    why: str


class UndoPlan(Shape, kw_only=True):
    """What undoing would do, in this order; nothing is done yet."""

    seal: str
    """The same for the same steps: who has a plan carried out names it."""
    steps: list[UndoStep]
    cannot: list[NotUndone]
    notes: list[str] = field(default_factory=list)
    """What was left out because it cannot be read."""
    needless: bool = False
    """Whether there are steps, and what they come to is there already: it is not carried out."""


class Undone(UndoPlan, kw_only=True):
    """A plan that was carried out."""

    moves: list[str]
    """The ids of the moves that were queued."""
    not_queued: dict[str, str]
    """Bundle → why its move was not queued after all; its documents are put back."""


class UndoWanted(Model):
    """The changes and decisions to undo, and the seal of the plan that was shown."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=IDS_MAX)]
    seal: Name
