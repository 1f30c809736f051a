"""Publishes to some topics and reads them back, with the stock Pulsar client, until Ctrl-C.

    python examples/traffic.py --topics 6 --rate 200

Prints one line a second: what was published and received, and the topic that went without a message
for the longest time, with that time.
"""

from __future__ import annotations

import argparse
import threading
import time

import pulsar

TOPIC = "persistent://public/default/traffic-{}"


class Figures:
    """The counts of the topics since the last line."""

    def __init__(self) -> None:
        self.published = self.received = self.failed = 0
        self._last_s: dict[str, float] = {}
        """Topic → when its last message came."""
        self._gaps_s: dict[str, float] = {}
        """Topic → its longest gap that ended since the last line."""
        self._lock = threading.Lock()

    def on_receipt(self, result: pulsar.Result, _message_id: object) -> None:
        """The broker confirmed a message, or the client gave it up."""
        with self._lock:
            if result == pulsar.Result.Ok:
                self.published += 1
            else:
                self.failed += 1

    def on_message(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """A message came back."""
        consumer.acknowledge(message)
        now_s, topic = time.monotonic(), message.topic_name()
        with self._lock:
            self.received += 1
            gap_s = now_s - self._last_s.get(topic, now_s)
            self._gaps_s[topic] = max(self._gaps_s.get(topic, 0.0), gap_s)
            self._last_s[topic] = now_s

    def take(self) -> str:
        """The figures as a line; they begin again at 0. A gap that lasts counts, too."""
        now_s = time.monotonic()
        with self._lock:
            gaps = [(now_s - last_s, topic) for topic, last_s in self._last_s.items()]
            gaps += [(gap_s, topic) for topic, gap_s in self._gaps_s.items()]
            gap_s, topic = max(gaps, default=(0.0, "-"))
            line = (
                f"published {self.published:6}  received {self.received:6}  "
                f"failed {self.failed:4}  longest gap {gap_s:5.2f} s ({topic.rpartition('/')[2]})"
            )
            self.published = self.received = self.failed = 0
            self._gaps_s.clear()
        return line


def main() -> None:
    """Run until Ctrl-C, or for `--seconds`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650,127.0.0.1:6651,127.0.0.1:6652")
    parser.add_argument("--topics", type=int, default=6)
    parser.add_argument("--rate", type=float, default=200, help="messages/s, over all topics")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(args.url, logger=logger)
    figures = Figures()
    names = [TOPIC.format(number) for number in range(args.topics)]
    for name in names:
        client.subscribe(name, "traffic", message_listener=figures.on_message)
    producers = [client.create_producer(name, block_if_queue_full=True) for name in names]
    started_s = next_s = line_s = time.monotonic()
    sent = 0
    try:
        while (now_s := time.monotonic()) < started_s + args.seconds:
            next_s = max(next_s, now_s - 1)  # what could not be sent in time is not made up for
            while next_s <= now_s:
                producers[sent % len(producers)].send_async(b"x" * 1000, figures.on_receipt)
                sent += 1
                next_s += 1 / args.rate
            if now_s >= line_s + 1:
                line_s = now_s
                print(figures.take(), flush=True)
            time.sleep(0.005)
    except KeyboardInterrupt:
        pass
    finally:
        client.close()


if __name__ == "__main__":
    main()
