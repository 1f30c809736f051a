"""Entry points of installed packages: what they refer to, or why that cannot be used.

A module that has `LOADMANAGER_CONTRACT` says for which version of the contract of plug-ins it was
written. Whatever is wrong with one package costs that package, and is named.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadmanager.kit.errors import ConfigError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

CONTRACT = 1
"""Grows when a plug-in that is written for it does not run any more."""


@dataclass(frozen=True, slots=True)
class PlugIn:
    """One entry point: its name, and what it refers to."""

    group: str
    name: str
    module: str
    text: str
    """The group, the name and the value, for messages."""
    load: Callable[[], Any]
    """Imports it. Raises `ConfigError` for whatever that raises, and for another contract."""


def plug_ins(group: str, name: str | None = None) -> list[PlugIn]:
    """Those of a group, by name and value: the same order on every machine. Raises `ConfigError`
    if the packages' metadata cannot be read.
    """
    from importlib.metadata import entry_points  # takes long, and only who reads settings needs it

    try:
        points = entry_points(group=group) if name is None else entry_points(group=group, name=name)
    except Exception as error:  # noqa: BLE001 - of whatever a package has as its metadata
        raise ConfigError(f"{group}: entry points cannot be read: {error!r}") from None
    ordered = sorted(points, key=lambda point: (point.name, point.value))
    return [_plug_in(group, point) for point in ordered]


def _plug_in(group: str, point: EntryPoint) -> PlugIn:
    text = f"{group}: {point.name} = {point.value}"

    def load() -> Any:
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a third party's import raises
            raise ConfigError(f"{text} cannot be loaded: {error or repr(error)}") from None
        written_for = getattr(sys.modules.get(point.module), "LOADMANAGER_CONTRACT", CONTRACT)
        if written_for != CONTRACT:
            raise ConfigError(
                f"{text} is written for version {written_for!r} of the contract of plug-ins; this "
                f"is {CONTRACT}: install another version of it"
            )
        return loaded

    return PlugIn(group, point.name, point.module, text, load)


def sources(packages: Iterable[str]) -> Iterator[str]:
    """The source of all modules of packages, in order of their names; also from an archive on the
    path. Imports none of them.
    """
    for name in sorted(packages):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None:
            yield from _sources(spec)


def _sources(spec: ModuleSpec) -> Iterator[str]:
    source = getattr(spec.loader, "get_source", lambda _name: None)
    try:
        yield f"{spec.name}\n{source(spec.name)}"
    except (ImportError, OSError, SyntaxError) as error:
        yield f"{spec.name}\n{error!r}"
    inside = pkgutil.iter_modules(spec.submodule_search_locations or [], f"{spec.name}.")
    for module in sorted(inside, key=lambda each: each.name):
        below = module.module_finder.find_spec(module.name, None)
        if below is not None:
            yield from _sources(below)
