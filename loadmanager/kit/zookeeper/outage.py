"""Logs outages of ZooKeeper with what an operator needs to know, and not every retry."""

from __future__ import annotations

from loadmanager.kit.logger import get_logger

LOG_INTERVAL_S = 60.0

REFUSED = (
    "ZooKeeper answers, but refuses new sessions: it has as many as it may (an embedded store "
    "10,000); look for clients that begin sessions without end"
)

log = get_logger("zookeeper")


class OutageLog:
    """Logs the beginning of an outage, one line a minute while it lasts, and its end.

    Several outages within a minute share a line, which contains their number.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._since_s: float | None = None
        self._logged_s: float | None = None
        self._is_logged = False
        self._losses = 0

    def unanswered(
        self,
        now_s: float,
        *,
        last_answer_s: float,
        lease_left_s: float,
        error: str,
        refused: bool = False,
    ) -> None:
        """To be called often while ZooKeeper does not answer, or `refused` a session. Times are
        monotonic.
        """
        if self._since_s is None:
            self._since_s = last_answer_s
            self._losses += 1
        if self._logged_s is not None and now_s - self._logged_s < LOG_INTERVAL_S:
            return
        if lease_left_s > 0:
            effect = f"this broker goes on serving for {lease_left_s:.1f} s without an answer"
        else:
            effect = "until ZooKeeper answers, this broker serves only stored topics that are open"
        log.warning(
            REFUSED
            if refused
            else "ZooKeeper does not answer: check that it runs and can be reached",
            servers=self._servers,
            setting="metadataStoreUrl",
            for_s=round(now_s - self._since_s, 1),
            effect=effect,
            last_error=error,
            **({"losses": self._losses} if self._losses > 1 else {}),
        )
        self._logged_s = now_s
        self._is_logged = True
        self._losses = 0

    def answered(self, now_s: float) -> None:
        """To be called when ZooKeeper answers."""
        if self._since_s is not None and self._is_logged:
            took_s = round(now_s - self._since_s, 1)
            log.info("ZooKeeper answers again", servers=self._servers, after_s=took_s)
        self._since_s = None
        self._is_logged = False
