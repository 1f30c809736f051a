"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders`,
`loadmanager.placements` and `loadmanager.splits`.

An entry point's name is the strategy's name in broker.conf. It refers to a `Shedder` or a
`PlacementRule` of `engine.strategies.strategy`, or to a function, which becomes the `shed` or the
`candidates` of a strategy without settings and memory; in the group of splits, to a function as in
`engine.strategies.splitting.algorithms:Algorithm`. Strategies may declare keys: whoever reads
settings reads `own_settings`, which registers them before. A module that has
`LOADMANAGER_CONTRACT` says for which version of all this it was written.

Our own strategies are registered in `engine.strategies.registry`: an entry point exists only in an
installed package, and `engine` runs in a plain checkout, too.

Answers of these strategies are checked. Whatever they raise is an error of one step, even
`SystemExit` and `CancelledError`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.splitting.algorithms import (
    Algorithm,
    FlowLimits,
    HashedTopic,
    register_algorithm,
)
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder, Strategy, Tries
from loadmanager.kit.conf import Key
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.reason import from_sentence

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

GROUPS = ("loadmanager.shedders", "loadmanager.placements", "loadmanager.splits")
CONTRACT = 1
"""Grows when a strategy that is written for it does not run any more."""
TRIED = 4
"""So many values of a key are tried in a grid, if its strategy does not say which."""
ENTRIES_MAX = 100_000
"""Bounds the size of a plan, which the admin API answers with."""


@functools.cache
def checked_shedder(strategy: Shedder) -> Shedder:
    """The shedder, whose functions raise `Exception`s only, and whose answers are checked.

    The same object for the same strategy.
    """

    def shed(*arguments: Any) -> Shed:
        answer: object = _called(strategy.name, strategy.shed, *arguments)
        problem = _problem_of(answer)
        if problem:
            raise TypeError(
                f"the shedding strategy {strategy.name} answered {answer!r:.200}; {problem}"
            )
        answered = cast(Shed, answer)
        if all(skip.code.isidentifier() for skip in answered.skipped):
            return answered
        return replace(answered, skipped=tuple(map(_with_code, answered.skipped)))

    return replace(strategy, **_contained(strategy) | {"shed": shed})


def _with_code(skip: Skip) -> Skip:
    """The skip with a code of one word, also of `Skip(what, "Code: text")` (earlier versions)."""
    why = from_sentence(skip.reason)
    return Skip(skip.what, why.code, why.text)


def _problem_of(answer: object) -> str:
    """Why an answer cannot be carried out or published; empty for a `Shed` that can."""
    if not isinstance(answer, Shed) or not all(
        isinstance(unload, Unload) for unload in answer.unloads
    ):
        return "a Shed of Unloads is expected"
    if len(answer.unloads) + len(answer.skipped) > ENTRIES_MAX:
        return f"at most {ENTRIES_MAX} unloads and skips are expected"
    try:
        msgspec.convert(msgspec.to_builtins(answer.unloads), tuple[Unload, ...])
        msgspec.convert(msgspec.to_builtins(answer.skipped), tuple[Skip, ...])
    except (TypeError, msgspec.ValidationError) as error:
        return str(error)
    return ""


@functools.cache
def checked_placement(strategy: PlacementRule) -> PlacementRule:
    """The placement rule, whose functions raise `Exception`s only, and whose answers are checked.

    The same object for the same strategy.
    """

    def candidates(*arguments: Any) -> tuple[list[str], Any]:
        answer: object = _called(strategy.name, strategy.candidates, *arguments)
        if (
            not isinstance(answer, tuple)
            or len(answer) != 2
            or not isinstance(answer[0], Sequence)
            or isinstance(answer[0], str)
        ):
            raise TypeError(
                f"the placement strategy {strategy.name} answered {answer!r:.200}; (names of "
                "brokers, memory) is expected"
            )
        return [str(broker) for broker in answer[0]], answer[1]

    return replace(strategy, **_contained(strategy) | {"candidates": candidates})


def register_plugins() -> list[str]:
    """Register installed third-party strategies; returns their names. May be called again.

    Raises `ConfigError` for one that cannot be loaded, or has the name of another strategy.
    """
    return [
        *_register(GROUPS[0], Shedder, "shed", checked_shedder),
        *_register(GROUPS[1], PlacementRule, "candidates", checked_placement),
        *_register_splits(),
    ]


@functools.cache
def _registered() -> None:
    register_plugins()


def own_settings() -> tuple[type, ...]:
    """The settings that single strategies declare, those of installed packages included. Raises
    `ConfigError` as `register_plugins` does.
    """
    _registered()
    return registry.own_settings()


def modules() -> list[Path]:
    """The files of registered third-party strategies' packages, in order."""
    files: set[Path] = set()
    for group in GROUPS:
        for entry in _entry_points(group):
            file = getattr(sys.modules.get(entry.module.partition(".")[0]), "__file__", None)
            if file is not None:
                path = Path(file)
                files.update(path.parent.rglob("*.py") if path.stem == "__init__" else [path])
    return sorted(files)


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # takes long, and only who reads settings needs it

    return entry_points(group=group)


def _loaded(group: str) -> Iterator[tuple[EntryPoint, str, Any]]:
    """Each entry point, its name for messages, and what it refers to."""
    for entry in _entry_points(group):
        what = f"{group}: {entry.name} = {entry.value}"
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a third party's import raises
            raise ConfigError(f"{what} cannot be loaded: {error}") from None
        written_for = getattr(sys.modules.get(entry.module), "LOADMANAGER_CONTRACT", CONTRACT)
        if written_for != CONTRACT:
            raise ConfigError(
                f"{what} is written for version {written_for!r} of the contract of strategies; "
                f"this is {CONTRACT}: install another version of it"
            )
        yield entry, what, loaded


def _register_splits() -> list[str]:
    names = []
    for entry, what, loaded in _loaded(GROUPS[2]):
        if not callable(loaded):
            raise ConfigError(f"{what} is no function")
        try:
            register_algorithm(entry.name, checked_split(entry.name, loaded))
        except ConfigError as error:
            raise ConfigError(f"{what}: {error}") from None
        names.append(entry.name)
    return names


@functools.cache
def checked_split(name: str, function: Algorithm) -> Algorithm:
    """The split algorithm, which raises `Exception`s only, and whose answers are checked: whole
    numbers inside the range, ascending. The same object for the same function.
    """

    def split(
        span: BundleRange, topics: Mapping[str, HashedTopic], limits: FlowLimits
    ) -> Sequence[int]:
        answer: Any = _called(name, function, span, topics, limits)
        places: list[int] = list(answer) if isinstance(answer, Sequence) else [span.lower]
        if not all(type(place) is int and span.lower < place < span.upper for place in places):
            raise TypeError(
                f"the split algorithm {name} answered {answer!r:.200}; whole numbers inside {span} "
                "are expected"
            )
        return sorted(set(places))

    return split


@functools.cache
def _with_tries(shedder: Shedder) -> Shedder:
    """The shedder, of whose keys a tournament tries values. The same object for the same one."""
    return replace(shedder, tries=_tries(shedder.settings))


def _tries(settings: type | None) -> tuple[Tries, ...]:
    """The values of a strategy's keys that a tournament tries, by the ranges that they declare."""
    made = []
    for each in fields(settings) if settings is not None else ():
        key: Key = each.metadata["key"]
        whole = isinstance(each.default, int) and not isinstance(each.default, bool)
        if key.minimum is None or key.maximum is None or not (whole or type(each.default) is float):
            continue
        low, high = float(key.minimum), float(key.maximum)
        if not whole:
            low = low if low > 0 else high / 1000
        step = (max(high, 1e-9) / max(low, 1.0 if whole else low)) ** (1 / (TRIED - 1))
        grid = [max(low, 1.0 if whole else low) * step**at for at in range(TRIED)]
        values = dict.fromkeys(float(round(value) if whole else value) for value in grid)
        made.append(Tries(key.name, tuple(values), low, high, whole))
    return tuple(made)


def _register(
    group: str, kind: type[Strategy], function: str, check: Callable[[Any], Strategy]
) -> list[str]:
    names = []
    for entry, what, loaded in _loaded(group):
        if not isinstance(loaded, kind):
            if not callable(loaded):
                raise ConfigError(f"{what} is neither a {kind.__name__} nor a function")
            strategy: Any = kind(**{"name": entry.name, function: loaded})
        else:
            strategy = loaded
        if strategy.name != entry.name:
            raise ConfigError(f"{what} calls itself {strategy.name}")
        if isinstance(strategy, Shedder) and not strategy.tries:
            strategy = _with_tries(strategy)
        try:
            registry.register(check(strategy))
        except ConfigError as error:
            raise ConfigError(f"{what}: {error}") from None
        names.append(entry.name)
    return names


def _contained(strategy: Strategy) -> dict[str, Any]:
    """The functions of a strategy, which raise `Exception`s only."""
    functions = {each.name: getattr(strategy, each.name) for each in fields(strategy)}
    return {
        name: functools.partial(_called, strategy.name, function)
        for name, function in functions.items()
        if callable(function) and not isinstance(function, type)
    }


def _called(name: str, function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        # SystemExit and KeyboardInterrupt would end the broker (signals come by another way), and
        # CancelledError would silently end the leader's task.
        raise RuntimeError(f"the strategy {name} raised {error!r}") from error
