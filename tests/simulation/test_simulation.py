"""Whole clusters under random faults: no invariant breaks, past bugs are found, runs repeat."""

from __future__ import annotations

from collections import Counter

import pytest
from clusters.hash_seeds import outputs_of
from simulation import storage, stored
from simulation.mutations import MUTATIONS, Mutation, survived
from simulation.operators import Event
from simulation.simulate import Plan, run, shorten

SEEDS = 500
SEEDS_PER_TEST = 20
MANAGER_OF = ("modular", "modular", "modular", "extensible", "changing")
"""Seeds in turn run the modular manager, the extensible one, and a change to it."""
STORED_SEEDS, STORED_SEEDS_PER_TEST = 12, 12
STORAGE_SEEDS, STORAGE_SEEDS_PER_TEST = 80, 20
MUTANT_SEEDS = range(10_000, 10_400)
FOUND_BY = {
    "a bundle is served before the host opened it, and whether it could or not": 10010,
    "an opening that fails keeps the lock": 10006,
    "a release whose life is over closes the next one": 10085,
    "an opening whose life is over closes the next one": 10087,
    "nobody looks at the lease": 10000,
    "a deleted lock is not noticed": 10005,
    "a lock of an earlier session of this broker counts as taken": 10004,
    "the lease lasts longer than the session": 10001,
    "a registration that fails is not tried again": 10000,
    "nobody registers in a new session, or when the registration is gone": 10000,
    "the work of a term goes on when the term is over": 10021,
    "nonsense in the leader's node keeps everybody from leading": 10019,
    "a step that fails ends the broker, and a strategy that nobody knows reaches the leader": 10002,
    "a document that is not UTF-8 ends the broker": 10018,
    "a sensor that fails ends the broker": 10002,
    "a namespace is deleted while its bundles can be acquired": 10047,
    "a bundle is taken from a session that lives": 10018,
    "a state record is changed whatever its version": 10007,
    "an owner does not look whether its record is still its own": 2,
    "the locks of modular brokers do not count": 10018,
    "state records do not count for modular brokers": 10002,
    "a split whose answer was lost counts as not done": 10002,
    "brokers obey leaders that were deposed": 10040,
    "a node that no session holds counts as a broker": 10003,
    "messages are not synced before their receipts": 5,
    "receipts are sent before messages are stored": 0,
    "receipts need no look at the marks of later openings": 10051,
    "non-persistent topics go on without the lease": 2,
    "a topic is opened though the lease has run out meanwhile": 10036,
    "an opening believes what only the page cache has": 10003,
    "a sync that fails once is taken for durable the next time": 0,
    "a failed sync of another process is not noticed": 10231,
    "a journal is deleted before its segments are synced": 22,
    "a journal of a process that has ended is deleted before its segments are synced": 10002,
    "marks of later openings are looked for before the write, not after it": 10000,
    "the names of an ended run's segments are not synced": 10191,
    "locks are not verified after a reconnect": 10000,
}
"""Mutation → a seed that found it when the list was written; it is tried first. The others name the
kinds of events that find them with many seeds.
"""


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    """No bundle has two owners, epochs grow, no broker ends, and the cluster recovers in time."""
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run(Plan(seed=seed, manager=MANAGER_OF[seed % len(MANAGER_OF)]))
        assert outcome.failure is None, (
            f"{outcome.failure}\nrepeat it: {outcome.plan.line}\n" + "\n".join(outcome.log[-60:])
        )
        assert outcome.receipts > 0


@pytest.mark.parametrize("first", range(0, STORED_SEEDS, STORED_SEEDS_PER_TEST))
def test_no_message_with_a_receipt_is_lost(first: int) -> None:
    """Whatever happens to brokers, consumers get every acknowledged message, in order. Topics go on
    while the store is silent.
    """
    unleased = 0
    for seed in range(first, first + STORED_SEEDS_PER_TEST):
        outcome = stored.run(seed)
        assert outcome.consumed >= outcome.receipts > 0
        unleased += outcome.unleased
    assert unleased > 0


@pytest.mark.parametrize("first", range(0, STORAGE_SEEDS, STORAGE_SEEDS_PER_TEST))
def test_no_disk_loses_a_message_with_a_receipt(first: int) -> None:
    """Whatever disk, power and processes do, each opening finds all that has receipts."""
    counts = sum(
        (storage.run(seed) for seed in range(first, first + STORAGE_SEEDS_PER_TEST)), Counter()
    )
    for kind in ("receipts", "failed syncs", "fenced", "power", "ends", "read"):
        assert counts[kind] > 0


@pytest.mark.parametrize("brokers", [1, 5])
def test_other_sizes(brokers: int) -> None:
    """One broker alone, and five."""
    for seed in range(3):
        outcome = run(Plan(seed=seed, brokers=brokers))
        assert outcome.failure is None, f"{outcome.failure}\nrepeat it: {outcome.plan.line}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_is_found(mutation: Mutation) -> None:
    """Each mutation breaks an invariant with one of the seeds."""
    likely = FOUND_BY.get(mutation.name, MUTANT_SEEDS.start)
    assert any(
        survived(mutation, seeds) is not None for seeds in (range(likely, likely + 1), MUTANT_SEEDS)
    )


def test_runs_repeat_exactly() -> None:
    """The same seed gives the same run, also in another process with other hashes of strings."""
    program = (
        "from simulation.simulate import Plan, run; print([run(Plan(seed=seed)).digest "
        "for seed in (1, 2)])"
    )
    assert len(outputs_of(program)) == 1


def test_a_failing_run_is_shortened_to_the_events_that_matter() -> None:
    """If one event makes a run fail, the shortened run has only that event."""
    plan = Plan(seed=3)
    events = run(plan).events
    chosen = len(events) // 2

    def fails(shorter: Plan) -> bool:
        kept: list[Event] = [
            event for index, event in enumerate(events) if index in (shorter.only or ())
        ]
        return events[chosen] in kept

    assert shorten(plan, fails).only == (chosen,)
