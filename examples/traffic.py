"""Publishes to some topics and reads them back, with the stock Pulsar client, until Ctrl-C.

    python examples/traffic.py --topics 6 --rate 200

Prints one line a second: what was published and received, and the longest time without a message.
"""

from __future__ import annotations

import argparse
import threading
import time

import pulsar

TOPIC = "persistent://public/default/traffic-{}"


class Figures:
    """What all topics did since the last line."""

    def __init__(self) -> None:
        self.published = self.received = self.failed = 0
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()
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
        now_s = time.monotonic()
        with self._lock:
            self.received += 1
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
            self._last_s = now_s

    def take(self) -> str:
        """The figures as a line; they begin again at 0."""
        with self._lock:
            line = (
                f"published {self.published:6}  received {self.received:6}  "
                f"failed {self.failed:4}  longest gap {self.longest_gap_s:5.2f} s"
            )
            self.published = self.received = self.failed = 0
            self.longest_gap_s = 0.0
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
    started_s = next_line_s = time.monotonic()
    sent = 0
    try:
        while (now_s := time.monotonic()) < started_s + args.seconds:
            while sent < (now_s - started_s) * args.rate:
                producers[sent % len(producers)].send_async(b"x" * 1000, figures.on_receipt)
                sent += 1
            if now_s >= next_line_s + 1:
                next_line_s += 1
                print(figures.take(), flush=True)
            time.sleep(0.005)
    except KeyboardInterrupt:
        pass
    finally:
        client.close()


if __name__ == "__main__":
    main()
