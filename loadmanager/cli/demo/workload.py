"""Stock Pulsar clients that publish to the topics of the demo and read them back.

    python -m loadmanager.cli.demo.workload pulsar://127.0.0.1:6650

Some topics have far more messages than others; which ones, changes every `PERIOD_S`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

NAMESPACE = "demo/shop"
TOPICS = tuple(
    f"persistent://{NAMESPACE}/{name}-{number}"
    for name in ("orders", "payments", "clicks", "carts")
    for number in range(4)
)
RATE = 500.0
"""Messages/s, over all topics."""
MESSAGE_BYTES = 4_000
PERIOD_S = 90.0
SHIFT = 5
"""How many topics further the busiest one is in the next period."""
TURN_S = 0.02


def weights(period: int) -> list[float]:
    """The part of the messages that each topic has in a period: the k-th busiest 1 / (k + 2)."""
    ranks = [(number - SHIFT * period) % len(TOPICS) for number in range(len(TOPICS))]
    raw = [1 / (rank + 2) for rank in ranks]
    return [each / sum(raw) for each in raw]


def busiest(period: int) -> str:
    """The name of the busiest topic of a period, without its namespace."""
    parts = weights(period)
    return TOPICS[parts.index(max(parts))].rpartition("/")[2]


def run(url: str) -> None:
    """Publish and read until the process is told to end."""
    import pulsar

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, logger=logger, operation_timeout_seconds=30)

    def acknowledge(consumer: Any, message: Any) -> None:
        consumer.acknowledge(message)

    for topic in TOPICS:
        client.subscribe(topic, "demo", message_listener=acknowledge)
    producers = [client.create_producer(topic) for topic in TOPICS]
    body, began_s = b"x" * MESSAGE_BYTES, time.monotonic()
    owed = [0.0] * len(TOPICS)
    last_s = began_s
    while True:
        now_s = time.monotonic()
        parts = weights(int((now_s - began_s) / PERIOD_S))
        for number, producer in enumerate(producers):
            # What a moving bundle kept from being sent is not made up for.
            owed[number] = min(owed[number] + parts[number] * RATE * (now_s - last_s), RATE / 10)
            while owed[number] >= 1:
                owed[number] -= 1
                producer.send_async(body, lambda _result, _message_id: None)
        last_s = now_s
        time.sleep(TURN_S)


if __name__ == "__main__":
    from loadmanager.kit.system.parent import stop_with_parent

    stop_with_parent()
    run(sys.argv[1])
