"""From five brokers to ten, and to five again: processes under stock clients with stored topics.

`python -m bench resizing [--topics 64] [--rate 1000] [--interval 0.1] [--set KEY=VALUE …]`: five
brokers share the topics, each of which has the same rate. Five more join; later five stop in order.
Printed are the topics of each broker, and the time until the busiest broker has at most 1.5 times
the mean for half a minute, with the bundles that changed their broker. `--set
loadManagerClassName=…` chooses the load manager: with the modular one UniformLoadShedder goes by
messages/s, with the extensible one TransferShedder by the use of CPU, with a lower target.
`--pulsar modular` or `extensible` takes the brokers of a real Pulsar instead, which sheds each full
minute at best (`--interval 1`). `--cores 1` gives each of those a CPU that it reports as its own;
ours do so by `--set loadBalancerSamplingScope=process`. Exits with 1 when a message with a receipt
was lost or came out of order.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.processes import NAMESPACE, Fleet
from steer.real import MANAGERS
from system.campaign import Campaign

from bench._pulsar import a_pulsar

FIVE = 5
BUNDLES = 64
BALANCED = 1.5
"""The busiest broker's topics relative to the mean."""
STEADY_S = 30.0
LIMIT_S = 600.0
SHEDDER = "loadBalancerLoadSheddingStrategy"
UNIFORM = "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder"
SETTINGS = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerReportUpdateMinIntervalMillis": "2000",
    "loadBalancerSheddingGracePeriodMinutes": "1",
    SHEDDER: UNIFORM,
    "loadBalancerMsgRateDifferenceShedderThreshold": "30",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
    "loadBalancerBrokerLoadTargetStd": "0.02",
    "loadBalancerSheddingConditionHitCountThreshold": "1",
}
"""Small loads are worth a move, and cycles are short."""


def main(argv: list[str]) -> int:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench resizing", description=__doc__)
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--interval", default="0.1", help="minutes between two shedding cycles")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pulsar", choices=MANAGERS, help="a real Pulsar with this load manager")
    parser.add_argument("--cores", type=float, default=0.0, help="of each of Pulsar's brokers")
    args = parser.parse_args(argv)
    print("The clients tell of lost connections on the standard error.", flush=True)
    with tempfile.TemporaryDirectory(dir=".") as temporary, ExitStack() as stack:
        folder = Path(temporary).resolve()
        settings = SETTINGS | {"loadBalancerSheddingIntervalMinutes": args.interval}
        fleet = stack.enter_context(_cluster(folder, settings, args))
        campaign = stack.enter_context(Campaign(fleet, topics=args.topics, rate=args.rate))
        time.sleep(STEADY_S)
        print(f"at first: topics {_topics(fleet, campaign)}", flush=True)
        _join(fleet)
        _measure("five joined", fleet, campaign)
        _leave(fleet)
        _measure("five left", fleet, campaign)
        outcome = campaign.finish()
    print(
        f"{outcome.acknowledged} acknowledged, {outcome.rate:.0f}/s; lost {len(outcome.lost)}, "
        f"out of order {len(outcome.disorder)}, stored twice {outcome.stored_twice}, without a "
        f"receipt at the end {outcome.unanswered}"
    )
    return int(bool(outcome.lost or outcome.disorder))


def _cluster(
    folder: Path, settings: dict[str, str], args: argparse.Namespace
) -> AbstractContextManager[Fleet]:
    more = dict(pair.split("=", 1) for pair in args.set)
    if args.pulsar:
        if args.pulsar == "extensible":
            settings = {key: settings[key] for key in settings if key != SHEDDER}
        fields = {"brokers": 2 * FIVE, "later": FIVE, "cores": args.cores}
        return a_pulsar(folder, args.pulsar, settings | more, bundles=BUNDLES, **fields)
    storage = {"loadManagerStorageDirectory": str(folder / "topics")}
    given = settings | storage | more
    return Fleet(folder, brokers=FIVE, room=FIVE, bundles=BUNDLES, session_s=10, settings=given)


def _join(fleet: Fleet) -> None:
    fleet.count += FIVE
    for index in range(FIVE, 2 * FIVE):
        fleet.start(index, wait=False)
    for index in range(FIVE, 2 * FIVE):
        fleet.wait_until_ready(index)


def _leave(fleet: Fleet) -> None:
    for index in range(FIVE, 2 * FIVE):
        fleet.signal(index, signal.SIGTERM)
    for index in range(FIVE, 2 * FIVE):
        fleet.process_of(index).wait(60)
    fleet.count -= FIVE


def _owners(fleet: Fleet) -> dict[str, int]:
    """Bundle → the broker that serves it."""
    return {bundle: index for index in range(fleet.count) for bundle in fleet.owned(index)}


def _topics(fleet: Fleet, campaign: Campaign) -> list[int]:
    """The number of topics that each broker serves."""
    return _counted(_owners(fleet), fleet, campaign)


def _counted(owners: dict[str, int], fleet: Fleet, campaign: Campaign) -> list[int]:
    counts = [0] * fleet.count
    for span, topics in campaign.bundles().items():
        if (owner := owners.get(f"{NAMESPACE}/{span}")) is not None:
            counts[owner] += len(topics)
    return counts


def _measure(what: str, fleet: Fleet, campaign: Campaign) -> None:
    """Wait until the topics are balanced, or for `LIMIT_S`, and print what was seen."""
    began_s, moves, known = time.monotonic(), 0, _owners(fleet)
    first = _counted(known, fleet, campaign)
    since_s: float | None = None
    while (now_s := time.monotonic()) < began_s + LIMIT_S:
        owners = _owners(fleet)
        moves += sum(known.get(bundle, owner) != owner for bundle, owner in owners.items())
        known |= owners
        topics = _counted(owners, fleet, campaign)
        balanced = sum(topics) == len(campaign.topics) and (
            max(topics) <= BALANCED * sum(topics) / len(topics)
        )
        since_s = (since_s or now_s) if balanced else None
        if since_s is not None and now_s >= since_s + STEADY_S:
            break
        time.sleep(1)
    took = "not balanced" if since_s is None else f"balanced after {since_s - began_s:.0f} s"
    print(f"{what}: topics {first}, at the end {topics}; {took}, {moves} moves", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
