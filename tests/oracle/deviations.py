"""Our deliberate deviations from Pulsar's decisions, each as an edit of our source that undoes it.

An edit whose text does not occur exactly once in the source is an error: the list stays true, or
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation.mutations import Edit, edited


@dataclass(frozen=True, slots=True)
class Deviation:
    """One row of "Deviations from Pulsar, on purpose"."""

    name: str
    families: tuple[str, ...]
    """Of the oracle's cases: those in which it may act."""
    edits: tuple[Edit, ...]
    versions: tuple[str, ...] = ("4.0", "4.2")
    """Of Pulsar: those that decide as the edited source does."""
    placement: str = ""
    """The placement rule of the moves in which it may act; any if empty."""

    def concerns(self, case: Mapping[str, Any], version: str) -> bool:
        """True if it may act in a case, under a version of Pulsar."""
        rule = case["config"].get("loadBalancerLoadPlacementStrategy", "")
        return (
            case["family"] in self.families
            and version.startswith(self.versions)
            and (case["family"] not in MOVES or rule.endswith(self.placement))
        )


SHEDDERS = ("ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "AvgShedder")
MOVES = ("Moves, modular",)
TRANSFERS = ("TransferShedder, debug", "TransferShedder")
PLACEMENTS = (
    "LeastLongTermMessageRate",
    "LeastResourceUsage, modular",
    "AvgShedder, placement",
)
SPLITS = ("Split algorithms", "Splits, modular", "Splits, extensible")
STRATEGIES = "engine/strategies/"
TRANSFER = f"{STRATEGIES}shedding/transfer.py"
UNIFORM = f"{STRATEGIES}shedding/uniform.py"
LEAST_USAGE = f"{STRATEGIES}placement/least_resource_usage.py"
ALGORITHMS = f"{STRATEGIES}splitting/algorithms.py"
THRESHOLD_SPLITS = f"{STRATEGIES}splitting/threshold.py"
ANY_BROKER = f"{STRATEGIES}placement/any_broker.py"
NAMES = "kit/names.py"
MONITORS = '_MONITORING_NAMESPACES = re.compile(r"(?:sla-monitor|pulsar)/(?:[^/]+/)?[^:]+:[0-9]+")'

SAME_AGAIN = "and (acting is not rule or (not rule.follows and set(allowed) - set(able)))"
ASK_AGAIN = Edit(
    f"{STRATEGIES}cycle.py", 2, SAME_AGAIN, "and (acting is not rule or not rule.follows)"
)
"""Pulsar asks a rule again whose choice is overloaded, also among the same brokers."""
ASK_ALL_AGAIN = Edit(f"{STRATEGIES}cycle.py", 2, SAME_AGAIN)
"""AvgShedder, too, which then remembers what it chose."""

DEVIATIONS = (
    Deviation(
        "averages of absent bundles are kept",
        (*SHEDDERS, *MOVES, *PLACEMENTS, "Splits, modular", "Averages and reports"),
        (
            Edit(
                "lab/deciding.py",
                2,
                "if not line.now:",
                """
                view._forget_unreported(list(view._unreported_ms))
                if not line.now:
                """,
            ),
        ),
    ),
    Deviation(
        "monitors stay by their new names",
        (*SHEDDERS, *MOVES, "Averages and reports"),
        (
            Edit(
                NAMES,
                0,
                MONITORS,
                """
                _MONITORING_NAMESPACES = re.compile(
                    r"sla-monitor/[^/]+/[^:]+:[0-9]+|pulsar/(?:[^/]+/)?[^:]+:[0-9]+"
                )
                """,
            ),
        ),
        versions=("4.0",),
    ),
    Deviation(
        "monitors stay by their old names",
        (*SHEDDERS, *MOVES, "Averages and reports"),
        (
            Edit(
                NAMES,
                0,
                MONITORS,
                '_MONITORING_NAMESPACES = re.compile(r"(?:sla-monitor|pulsar)/[^:/]+:[0-9]+")',
            ),
        ),
        versions=("4.2",),
    ),
    Deviation(
        "a bundle that two brokers report counts once",
        (*SHEDDERS, *MOVES, "Splits, modular"),
        (
            Edit(
                f"{STRATEGIES}guards.py",
                3,
                "self._allowed.update((move.bundle, move) for move in moves)",
                "self._allowed.update(((move.bundle, move.source), move) for move in moves)",
            ),
            Edit(
                THRESHOLD_SPLITS,
                2,
                "if bundle in self.splits:",
                """
                if bundle in self.splits:
                    if count is not None and count < bundles_max and self._boundaries_max is None:
                        self._counts[namespace] = count + 1
                """,
            ),
        ),
    ),
    Deviation(
        "the average advances once a cycle",
        ("ThresholdShedder", *MOVES),
        (
            Edit(
                f"{STRATEGIES}shedding/threshold.py",
                2,
                "unloads = _lower_boundary(snapshot, own, averages, average, skipped)",
                """
                averages = smoothed(
                    averages, columns, columns.usage(settings.weights), settings.history_weight
                )
                average = plain_sum(averages.in_order) / len(averages)
                unloads = _lower_boundary(snapshot, own, averages, average, skipped)
                """,
            ),
        ),
    ),
    Deviation(
        "bundles without load stay",
        ("UniformLoadShedder", *MOVES),
        (
            Edit(
                UNIFORM,
                2,
                "if load <= 0 or (limit != -1 and len(unloads) >= limit):",
                "if limit != -1 and len(unloads) >= limit:",
            ),
        ),
    ),
    Deviation(
        "a bundle may exceed the goal by 1000",
        ("UniformLoadShedder", *MOVES),
        (Edit(UNIFORM, 0, "SLACK = 1000", "SLACK = 0"),),
        versions=("4.2",),
    ),
    Deviation(
        "goals beyond 2 GiB/s do not overflow",
        ("UniformLoadShedder", *MOVES),
        (
            Edit(
                UNIFORM,
                2,
                "if load <= goal + SLACK:",
                "if load <= (min(goal, LEAST_MAX) + SLACK + 2**31) % 2**32 - 2**31:",
            ),
        ),
        versions=("4.0",),
    ),
    Deviation(
        "equal bundles have destinations of their own",
        ("AvgShedder", "AvgShedder, placement", *MOVES),
        (
            ASK_ALL_AGAIN,
            Edit(
                ANY_BROKER,
                0,
                'PLACEMENT = PlacementRule(name="AvgShedder", candidates=candidates, '
                'follows="AvgShedder")',
                """
                def by_figures(snapshot, brokers, _settings, memory):
                    figures = repr(snapshot.data_of(snapshot.placing))
                    if memory.get(figures) in brokers:
                        return [memory[figures]], memory
                    if brokers:
                        return brokers, {**memory, figures: brokers[0]}
                    return brokers, memory


                PLACEMENT = PlacementRule(
                    name="AvgShedder", candidates=by_figures, follows="AvgShedder", memory=dict
                )
                """,
            ),
            Edit(
                f"{STRATEGIES}shedding/avg.py",
                1,
                "return Shed(tuple(unloads), tuple(skipped), AvgMemory(high, low))",
                """
                shared = {repr(snapshot.data_of(move.bundle)): move.destination for move in unloads}
                unloads = [
                    Unload(
                        move.bundle,
                        move.source,
                        shared[repr(snapshot.data_of(move.bundle))],
                        move.reason,
                    )
                    for move in unloads
                ]
                return Shed(tuple(unloads), tuple(skipped), AvgMemory(high, low))
                """,
            ),
        ),
        placement="AvgShedder",
    ),
    Deviation(
        "brokers with old reports are left out",
        TRANSFERS,
        (
            Edit(
                f"{STRATEGIES}guards.py", 1, "if not stale:", "if not stale or snapshot.extensible:"
            ),
            Edit(
                TRANSFER,
                1,
                "squares: float = field(init=False)",
                "squares: float = field(init=False)\ncount: int = field(init=False)",
            ),
            Edit(
                TRANSFER,
                2,
                "loads = np.array(list(self.loads.values()))",
                "loads = np.array(list(self.loads.values()))\nself.count = len(self.loads)",
            ),
            Edit(
                TRANSFER, 2, "return self.total / len(self.loads)", "return self.total / self.count"
            ),
            Edit(
                TRANSFER,
                2,
                "variance = self.squares / len(self.loads) - self.average**2"
                "  # rounding may make it negative",
                "variance = self.squares / self.count - self.average**2",
            ),
            Edit(TRANSFER, 1, "outdated = False", "outdated, old = False, {}"),
            Edit(
                TRANSFER,
                3,
                "outdated = True",
                "outdated = True\nold[broker] = data.weighted_max_ema",
            ),
            Edit(
                TRANSFER,
                1,
                "return _Stats(loads)",
                "stats = _Stats(loads)\nstats.loads |= old\nreturn stats",
            ),
        ),
    ),
    Deviation(
        "what a swap brings back counts",
        ("TransferShedder",),
        (
            Edit(
                TRANSFER,
                3,
                "back += plain_sum(np.array([other.stats.throughput for other in swapped]))",
                "back += 0.0",
            ),
        ),
    ),
    Deviation(
        "brokers without load move nothing",
        TRANSFERS,
        (
            Edit(
                TRANSFER,
                2,
                "goal = throughput * offload / stats.loads[most] if stats.loads[most] else 0.0",
                "goal = throughput * offload / (stats.loads[most] or math.nan)",
            ),
        ),
    ),
    Deviation(
        "bundles that may not leave do not come back in a swap",
        TRANSFERS,
        (
            Edit(
                TRANSFER,
                3,
                "if bundle.stats.throughput > 0 and "
                "self._may_move(bundle.bundle_name, least, most)",
                "if bundle.stats.throughput > 0 and self._may_return(bundle.bundle_name, most)",
            ),
            Edit(
                TRANSFER,
                1,
                "def _may_move(self, bundle: str, owner: str, target: str) -> bool:",
                """
                def _may_return(self, bundle: str, target: str) -> bool:
                    namespace = split_bundle_name(bundle)[0]
                    return target in self._able(namespace) and (
                        self._settings.shed_policy_bundles
                        or not filters.has_policy(self._snapshot, namespace)
                    )

                def _may_move(self, bundle: str, owner: str, target: str) -> bool:
                """,
            ),
            Edit(
                f"{STRATEGIES}guards.py",
                2,
                "if moved_ms is not None and moved_ms > self._stays_since_ms(unload.source):",
                "if moved_ms is not None and not self._snapshot.extensible:",
            ),
            Edit(
                f"{STRATEGIES}guards.py",
                2,
                "if namespace in self._settings.excluded_namespaces:",
                "if namespace in self._settings.excluded_namespaces "
                "and not self._snapshot.extensible:",
            ),
            Edit(
                f"{STRATEGIES}guards.py",
                2,
                "if not self._owns(unload.source, unload.bundle):",
                "if not (self._snapshot.extensible or self._owns(unload.source, unload.bundle)):",
            ),
        ),
    ),
    Deviation(
        "averages advance once a request",
        ("LeastResourceUsage, modular", *MOVES),
        (
            Edit(
                LEAST_USAGE,
                1,
                "usage, among = brokers.of(ordered(averages, columns)), brokers",
                """
                from dataclasses import replace

                asked = replace(
                    snapshot, reports={broker: snapshot.reports[broker] for broker in brokers}
                )
                left = {name: value for name, value in averages.items() if name in snapshot.reports}
                averages = {**left, **advance(asked, settings, averages)}
                usage, among = brokers.of(ordered(averages, columns)), brokers
                """,
            ),
            Edit(LEAST_USAGE, 1, "advance=advance,"),
            ASK_AGAIN,
        ),
        placement="LeastResourceUsageWithWeight",
    ),
    Deviation(
        "placements under way count",
        ("LeastResourceUsage, modular", "LeastResourceUsage, extensible"),
        (
            Edit(
                LEAST_USAGE,
                1,
                "coming = snapshot.under_way",
                "coming = type(snapshot.under_way)()",
            ),
            Edit(
                LEAST_USAGE,
                1,
                "coming = np.array([pending.throughput(broker) for broker in among])",
                "coming = np.zeros(len(among))",
            ),
        ),
    ),
    Deviation(
        "a shed bundle does not stay",
        MOVES,
        (
            Edit(
                f"{STRATEGIES}cycle.py",
                4,
                "leaving=unload.source,",
                "leaving=None,",
            ),
            Edit(
                f"{STRATEGIES}cycle.py",
                2,
                """
                if destination is None:
                    refused.append(Skip(unload.bundle, "NoDestination", "no broker qualifies"))
                """,
                """
                if destination in (None, unload.source):
                    refused.append(Skip(unload.bundle, "NoDestination", "no broker qualifies"))
                """,
            ),
        ),
    ),
    Deviation(
        "moves of a plan count for its next ones",
        MOVES,
        (Edit(f"{STRATEGIES}cycle.py", 2, "snapshot.add_placement(unload.bundle, destination)"),),
    ),
    Deviation(
        "planned destinations are checked when the move is planned",
        MOVES,
        (
            Edit(
                f"{STRATEGIES}cycle.py", 2, "destination = unload.destination", "destination = None"
            ),
            Edit(
                f"{STRATEGIES}cycle.py",
                2,
                "unload.bundle for unload in plan.unloads if unload.destination is None",
                "unload.bundle for unload in plan.unloads",
            ),
            Edit(
                f"{STRATEGIES}guards.py",
                3,
                "unfit = self._unfit_reason(move) if veto is None else None",
                "unfit = None",
            ),
        ),
    ),
    Deviation(
        "expressions with a colon match a broker's id",
        (*MOVES, *TRANSFERS, *PLACEMENTS, "LeastResourceUsage, extensible"),
        (
            Edit(
                "engine/policies/isolation.py",
                2,
                '_matches(expression, host) or (":" in expression and '
                "_matches(expression, broker))",
                "_matches(expression, host)",
            ),
        ),
    ),
    Deviation(
        "bundles under way are not shed again",
        ("AvgShedder",),
        (
            Edit(
                f"{STRATEGIES}guards.py",
                2,
                "if bundle in self._under_way:",
                "if bundle in self._under_way and self._snapshot.extensible:",
            ),
        ),
    ),
    Deviation(
        "placements under way outlast reports",
        (*PLACEMENTS, *TRANSFERS),
        (
            Edit(
                "lab/deciding.py",
                2,
                "view.observe_top_bundles(line.top_bundles)",
                """
                view.observe_top_bundles(line.top_bundles)
                view._forget_placements(list(view._placed_ms))
                """,
            ),
        ),
    ),
    Deviation(
        "brokers that name no load manager qualify",
        PLACEMENTS,
        (
            Edit(
                "engine/policies/eligibility.py",
                1,
                "return class_name is None or "
                'class_name.rpartition(".")[2] == other.rpartition(".")[2]',
                "return class_name is not None and "
                'class_name.rpartition(".")[2] == other.rpartition(".")[2]',
            ),
        ),
    ),
    Deviation(
        "a split into many parts counts as many",
        ("Splits, modular",),
        (
            Edit(
                THRESHOLD_SPLITS,
                2,
                "self._counts[namespace] = "
                "self._counts.get(namespace, 0) + max(len(boundaries), 1)",
                "self._counts[namespace] = self._counts.get(namespace, 0) + 1",
            ),
            Edit(
                THRESHOLD_SPLITS, 2, "if count + added > bundles_max:", "if count >= bundles_max:"
            ),
        ),
    ),
    Deviation(
        "splits that divide nothing are not made",
        SPLITS,
        (
            Edit(
                THRESHOLD_SPLITS,
                2,
                """
                if why_not is not None:
                    self.skipped.append(Skip(bundle, why_not.code, why_not.text))
                    return False
                """,
                """
                if why_not is not None:
                    useless = why_not.code == "Unsplittable" and stats.topics >= TOPICS_MIN
                    if useless and self._boundaries_max is None:
                        namespace = split_bundle_name(bundle)[0]
                        self._counts[namespace] = self._counts.get(namespace, 0) + 1
                    return False
                """,
            ),
            Edit(
                ALGORITHMS,
                1,
                "hashes = sorted({topic.hash for topic in topics.values()})",
                """
                if places:
                    return places, ""
                hashes = sorted({topic.hash for topic in topics.values()})
                """,
            ),
        ),
    ),
    Deviation(
        "a position counts once",
        ("Split algorithms",),
        (
            Edit(
                ALGORITHMS,
                3,
                "sorted(position for position in set(positions) "
                "if span.lower < position < span.upper)",
                "sorted(position for position in positions if span.lower < position < span.upper)",
            ),
        ),
    ),
    Deviation(
        "topics of one hash count as one",
        SPLITS,
        (
            Edit(
                ALGORITHMS,
                1,
                "by_hash: dict[int, HashedTopic] = {}",
                "by_hash: dict[int, HashedTopic] = {}\nall_loaded = []",
            ),
            Edit(
                ALGORITHMS,
                3,
                """
                same = by_hash.get(topic.hash, HashedTopic(topic.hash))
                by_hash[topic.hash] = HashedTopic(
                    topic.hash, same.rate + topic.rate, same.throughput + topic.throughput
                )
                """,
                """
                by_hash[topic.hash] = topic
                all_loaded.append(topic)
                """,
            ),
            Edit(
                ALGORITHMS,
                1,
                """
                loaded = [by_hash[value] for value in sorted(by_hash)]
                rate = plain_sum(np.array([topic.rate for topic in loaded]))
                throughput = plain_sum(np.array([topic.throughput for topic in loaded]))
                """,
                """
                loaded = [by_hash[value] for value in sorted(topic.hash for topic in all_loaded)]
                rate, throughput = (
                    sum(topic.rate for topic in all_loaded),
                    sum(topic.throughput for topic in all_loaded),
                )
                if len(by_hash) < 2:
                    return ()
                """,
            ),
        ),
    ),
)


def copy_without(deviations: tuple[Deviation, ...], target: Path) -> None:
    """Our package in `target`, edited so that it decides as Pulsar does in these points."""
    edited(target, [edit for deviation in deviations for edit in deviation.edits])
