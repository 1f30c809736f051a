"""What a broker's log says while ZooKeeper does not answer: enough to act on, and no line per
retry.
"""

from __future__ import annotations

import structlog

SAID_EVERY_S = 60.0

log = structlog.get_logger("zookeeper")


class Outage:
    """Logs when ZooKeeper is lost, once a minute while that lasts, and when it is back.

    Losses that follow each other within a minute, as on a link that comes and goes, share a line,
    which says how many they were.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._since_s: float | None = None
        self._said_s: float | None = None
        self._said_in_this_one = False
        self._losses = 0

    def unanswered(
        self, now_s: float, *, last_answer_s: float, lease_left_s: float, error: str
    ) -> None:
        """ZooKeeper does not answer; call it often while that lasts. Times are monotonic."""
        if self._since_s is None:
            self._since_s = last_answer_s
            self._losses += 1
        if self._said_s is not None and now_s - self._said_s < SAID_EVERY_S:
            return
        if lease_left_s > 0:
            effect = f"this broker goes on serving for {lease_left_s:.1f} s without an answer"
        else:
            effect = "this broker serves nothing until ZooKeeper answers"
        log.warning(
            "ZooKeeper does not answer: see that it runs and can be reached",
            servers=self._servers,
            setting="metadataStoreUrl",
            for_s=round(now_s - self._since_s, 1),
            effect=effect,
            last_error=error,
            **({"losses": self._losses} if self._losses > 1 else {}),
        )
        self._said_s = now_s
        self._said_in_this_one = True
        self._losses = 0

    def answered(self, now_s: float) -> None:
        """ZooKeeper answers."""
        if self._since_s is not None and self._said_in_this_one:
            took_s = round(now_s - self._since_s, 1)
            log.info("ZooKeeper answers again", servers=self._servers, after_s=took_s)
        self._since_s = None
        self._said_in_this_one = False
