"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders`,
`loadmanager.placements`, `loadmanager.splits`, `loadmanager.merges` and `loadmanager.load_metrics`.

An entry point's name is the strategy's name in broker.conf. It refers to a `Shedder` or a
`PlacementRule` of `engine.strategies.strategy`, or to a function, which becomes the `shed` or the
`candidates` of a strategy without settings and memory; in the group of splits, to a function as in
`engine.strategies.splitting.algorithms:Algorithm`, in that of merges, as in
`engine.strategies.splitting.merging:MergeRule`, and in that of load metrics, to a `LoadMetric`,
whose name is that of a load which members of a service have a budget for. Strategies may declare
keys: whoever reads settings reads `own_settings`, which registers them before.

Our own strategies are registered in `engine.strategies.registry`: an entry point exists only in an
installed package, and `engine` runs in a plain checkout, too.

Answers of these strategies are checked. Whatever they raise is an error of one step, even
`SystemExit` and `CancelledError`. One that cannot be used is left out, and named: if settings
choose it, each step that needs it fails with that reason, as if it raised it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, cast, get_type_hints

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.splitting.algorithms import (
    Algorithm,
    FlowLimits,
    HashedTopic,
    register_algorithm,
)
from loadmanager.engine.strategies.splitting.merging import (
    MergeRule,
    MergeSettings,
    register_merge_rule,
)
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder, Strategy, Tries
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.key_names import OURS, PULSAR
from loadmanager.kit.logger import get_logger
from loadmanager.kit.reason import from_sentence
from loadmanager.kit.settings import KnownKey, keys_of, parse_value, spell
from loadmanager.leader.plugin_points import PlugIn, plug_ins

SHEDDERS_GROUP, PLACEMENTS_GROUP = "loadmanager.shedders", "loadmanager.placements"
SPLITS_GROUP, MERGES_GROUP = "loadmanager.splits", "loadmanager.merges"
METRICS_GROUP = "loadmanager.load_metrics"
log = get_logger("plug-ins")

LoadMetric = Callable[[Any], float]
"""A `loadmanager.Shard` → how much of this load it is now, 0 or more. Called on the event loop at
each report, for each shard: it looks at numbers and waits for nothing.
"""
LOAD_METRICS: dict[str, LoadMetric] = {}
"""Name of a load → what measures it."""
LEFT_OUT: dict[tuple[str, str], str] = {}
"""Group and name → why that plug-in cannot be used."""
TRIED = 4
"""So many values of a key are tried in a grid, if its strategy does not say which."""
FIGURES_MAX = 20
"""So many numbers behind a placement are recorded."""
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

    def why(*arguments: Any) -> dict[str, float | str]:
        answer: object = _called(strategy.name, cast(Any, strategy.why), *arguments)
        try:
            figures = msgspec.convert(answer, dict[str, float | str])
        except msgspec.ValidationError as error:
            raise TypeError(
                f"the placement strategy {strategy.name} explained {answer!r:.200}; {error}"
            ) from None
        return dict(itertools.islice(figures.items(), FIGURES_MAX))

    checked: dict[str, Any] = {"candidates": candidates}
    if strategy.why is not None:
        checked["why"] = why
    return replace(strategy, **_contained(strategy) | checked)


def register_plugins() -> list[str]:
    """Register installed third-party strategies; returns their names. May be called again.

    One that cannot be used is left out, and `left_out` says why.
    """
    LEFT_OUT.clear()
    names = []
    for group, add in _GROUPS.items():
        try:
            points = plug_ins(group)
        except ConfigError as error:
            LEFT_OUT[group, ""] = str(error)
            continue
        for point in points:
            try:
                add(point)
                names.append(point.name)
            except ConfigError as error:
                LEFT_OUT[group, point.name] = str(error)
                _stand_in(point, str(error))
    return names


def left_out() -> Mapping[tuple[str, str], str]:
    """Group and name of each plug-in that cannot be used → why; in order."""
    _registered()
    return LEFT_OUT


def warn_of_left_out() -> None:
    """Name them in the log, once it is configured."""
    for why in left_out().values():
        log.warning("a plug-in is left out; everything else goes on", why=why)


@functools.cache
def _registered() -> None:
    register_plugins()


def own_settings() -> tuple[type, ...]:
    """The settings that single strategies declare, those of installed packages included."""
    _registered()
    return registry.own_settings()


def packages() -> set[str]:
    """The packages of third-party strategies, on which a decision may depend."""
    points: list[PlugIn] = []
    for group in _GROUPS:
        with suppress(ConfigError):
            points += plug_ins(group)
    return {point.module.partition(".")[0] for point in points}


def _add_split(point: PlugIn) -> None:
    register_algorithm(point.name, checked_split(point.name, _function(point)))


def _add_merge(point: PlugIn) -> None:
    register_merge_rule(point.name, checked_merge(point.name, _function(point)))


def _add_metric(point: PlugIn) -> None:
    if not point.name.isidentifier():
        raise ConfigError(f"{point.text}: a name has letters, digits and _")
    if LOAD_METRICS.setdefault(point.name, _checked_metric(point)) is not _checked_metric(point):
        raise ConfigError(f"{point.text}: there is already another metric with this name")


@functools.cache
def _checked_metric(point: PlugIn) -> LoadMetric:
    """It, which raises `Exception`s only."""
    metric = _function(point)
    return lambda shard: cast(float, _called(point.name, metric, shard))


def load_metrics(names: Iterable[str]) -> dict[str, LoadMetric]:
    """Those of installed packages that measure these loads."""
    _registered()
    return {name: LOAD_METRICS[name] for name in sorted(names) if name in LOAD_METRICS}


def _function(point: PlugIn) -> Any:
    loaded = point.load()
    if not callable(loaded):
        raise ConfigError(f"{point.text} is no function")
    return loaded


def _stand_in(point: PlugIn, why: str) -> None:
    """Have the steps that need a plug-in which cannot be used fail with the reason: a broker whose
    settings choose it starts. A name that another one has stays that one's.
    """

    def fail(*_: object) -> Any:
        raise ConfigError(why)

    with suppress(ConfigError):
        if point.group == SHEDDERS_GROUP:
            registry.register(Shedder(name=point.name, shed=fail))
        elif point.group == PLACEMENTS_GROUP:
            registry.register(PlacementRule(name=point.name, candidates=fail))
        elif point.group == SPLITS_GROUP:
            register_algorithm(point.name, fail)
        elif point.group == MERGES_GROUP:
            register_merge_rule(point.name, fail)


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
def checked_merge(name: str, rule: MergeRule) -> MergeRule:
    """The rule of merges, which raises `Exception`s only. The same object for the same rule."""

    def idle(
        left: NamespaceBundleStats,
        right: NamespaceBundleStats,
        splits: SplitSettings,
        merges: MergeSettings,
    ) -> bool:
        answer: object = _called(name, rule, left, right, splits, merges)
        if not isinstance(answer, bool):
            raise TypeError(f"the merge rule {name} answered {answer!r:.200}; a bool is expected")
        return answer

    return idle


@functools.cache
def _with_tries(strategy: Strategy) -> Strategy:
    """The strategy, of whose keys a tournament tries values. The same object for the same one."""
    return replace(strategy, tries=_tries(strategy.settings))


def _tries(settings: type | None) -> tuple[Tries, ...]:
    """The values of a strategy's keys that a tournament tries, by the ranges that they declare."""
    made = []
    for each, key in keys_of(settings) if settings is not None else ():
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


def _add_strategy(kind: type[Shedder] | type[PlacementRule], function: str, point: PlugIn) -> None:
    loaded = point.load()
    strategy: Any = loaded
    if not isinstance(loaded, kind):
        if not callable(loaded):
            raise ConfigError(f"{point.text} is neither a {kind.__name__} nor a function")
        strategy = kind(**{"name": point.name, function: loaded})
    if strategy.name != point.name:
        raise ConfigError(f"{point.text} calls itself {strategy.name}")
    try:
        register_strategy(strategy)
    except ConfigError as error:
        raise ConfigError(f"{point.text}: {error}") from None


def register_strategy(strategy: Strategy) -> Strategy:
    """Register a strategy of a third party; returns it with its answers checked. May be called
    again. Raises `ConfigError` for keys or a name that others have.
    """
    if problem := _problem_of_settings(strategy.settings):
        raise ConfigError(problem)
    if not strategy.tries:
        strategy = _with_tries(strategy)
    checked = (
        checked_shedder(strategy) if isinstance(strategy, Shedder) else checked_placement(strategy)
    )
    registry.register(checked)
    return checked


def _problem_of_settings(leaf: type | None) -> str:
    """Why the keys of a strategy cannot be read; empty if they can."""
    if leaf is None or leaf in registry.own_settings():
        return ""
    others = {name: other for other in registry.own_settings() for name in _names(other)}
    try:
        leaf()
        hints = get_type_hints(leaf)
        for field, key in keys_of(leaf):
            target = KnownKey(key, leaf, field.name, hints[field.name], field.default)
            parse_value(target, spell(field.default))
        names = _names(leaf)
    except Exception as error:  # noqa: BLE001 - whatever a third party's class raises
        return f"{getattr(leaf, '__name__', leaf)} is no dataclass of keys: {error!r}"
    for name in names:
        if name in PULSAR or name in OURS or name in others:
            owner = others[name].__name__ if name in others else "loadmanager"
            return f"the key {name} is {owner}'s, too: give yours a name of its own"
    return ""


def _names(leaf: type) -> list[str]:
    return [name for _, key in keys_of(leaf) for name in (key.name, *key.aliases)]


_GROUPS: dict[str, Callable[[PlugIn], None]] = {
    SHEDDERS_GROUP: functools.partial(_add_strategy, Shedder, "shed"),
    PLACEMENTS_GROUP: functools.partial(_add_strategy, PlacementRule, "candidates"),
    SPLITS_GROUP: _add_split,
    MERGES_GROUP: _add_merge,
    METRICS_GROUP: _add_metric,
}
"""Group → what registers one of its plug-ins. Raises `ConfigError` if that cannot be used."""


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
