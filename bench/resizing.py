"""From five brokers to ten, and to five again: processes under stock clients with stored topics.

`python -m bench resizing [--topics 64] [--rate 1000] [--set KEY=VALUE …]`: five brokers share the
topics, each of which has the same rate. Five more join; later five stop in order. Printed are the
topics of each broker, and the time until the busiest broker has at most 1.5 times the mean for two
shedding intervals (of 6 s), with the moves. `--set loadManagerClassName=…` chooses the load
manager: with the modular one UniformLoadShedder goes by messages/s, with the extensible one
TransferShedder by CPU, with a lower target. Exits with 1 when a message with a receipt was lost or
came out of order.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from system.campaign import Campaign
from system.fleet import NAMESPACE, Fleet

FIVE = 5
INTERVAL_S = 6.0
BALANCED = 1.5
"""The busiest broker's topics relative to the mean."""
LIMIT_S = 240.0
SETTINGS = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerSheddingIntervalMinutes": str(INTERVAL_S / 60),
    "loadBalancerSheddingGracePeriodMinutes": "1",
    "loadBalancerLoadSheddingStrategy": "UniformLoadShedder",
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
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    print("The clients tell of lost connections on the standard error.", flush=True)
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder = Path(temporary)
        settings = SETTINGS | {"loadManagerStorageDirectory": str(folder.resolve() / "topics")}
        settings |= dict(pair.split("=", 1) for pair in args.set)
        fleet = Fleet(folder, brokers=FIVE, room=FIVE, bundles=64, session_s=10, settings=settings)
        with fleet, Campaign(fleet, topics=args.topics, rate=args.rate) as campaign:
            time.sleep(5 * INTERVAL_S)
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


def _topics(fleet: Fleet, campaign: Campaign) -> list[int]:
    """How many topics each broker serves."""
    topics = {f"{NAMESPACE}/{span}": len(held) for span, held in campaign.bundles().items()}
    return [
        sum(topics.get(bundle, 0) for bundle in fleet.owned(index)) for index in range(fleet.count)
    ]


def _measure(what: str, fleet: Fleet, campaign: Campaign) -> None:
    """Wait until the topics are balanced, or for `LIMIT_S`, and print what was seen."""
    began_s, moves = time.monotonic(), len(fleet.move_pauses_ms())
    first = _topics(fleet, campaign)
    since_s: float | None = None
    while (now_s := time.monotonic()) < began_s + LIMIT_S:
        topics = _topics(fleet, campaign)
        balanced = sum(topics) == len(campaign.topics) and (
            max(topics) <= BALANCED * sum(topics) / len(topics)
        )
        since_s = (since_s or now_s) if balanced else None
        if since_s is not None and now_s >= since_s + 2 * INTERVAL_S:
            break
        time.sleep(1)
    took = "not balanced" if since_s is None else f"balanced after {since_s - began_s:.0f} s"
    moves = len(fleet.move_pauses_ms()) - moves
    print(f"{what}: topics {first}, at the end {topics}; {took}, {moves} moves", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
