"""How a component declares its settings.

A leaf is a frozen dataclass whose fields are made by `conf`: the broker.conf key, the default, one line of documentation and what is
allowed stand beside the code that uses the value. `loadmanager.settings` collects the leaves and parses files into them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One broker.conf key: Pulsar's spelling, what it means and what is allowed."""

    name: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    dynamic: bool = False
    """May be changed on a running broker through the admin API."""
    aliases: tuple[str, ...] = ()
    """Older spellings that are still understood."""


def conf(
    name: str,
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
    dynamic: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a dataclass field that broker.conf can set.

    The field's annotation decides the parsing: bool, int, float, str, `tuple[str, ...]` (comma list), or `… | None` (empty value means None).
    """
    key = Key(name=name, doc=doc, minimum=minimum, maximum=maximum, choices=choices, dynamic=dynamic, aliases=aliases)
    return dataclasses.field(default=default, metadata={"key": key})
