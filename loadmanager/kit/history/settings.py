"""Settings of the history's files."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf
from loadmanager.kit.history.layout import SEGMENT_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """The directory of the history, and the limits of its size."""

    enabled: bool = conf(
        "loadManagerHistoryEnabled",
        True,
        "Record loads, decisions, ownership and limits for the analysis",
    )
    directory: str = conf(
        "loadManagerHistoryDirectory", "data/history", "Folder of the history's segments"
    )
    bytes_max: int = conf(
        "loadManagerHistoryMaxBytes",
        1 << 30,
        "Sealed segments of this broker take this much; the oldest are dropped",
        minimum=0,
    )
    segment_bytes_max: int = conf(
        "loadManagerHistorySegmentMaxBytes",
        SEGMENT_BYTES_MAX,
        "A segment is sealed when it has this many bytes",
        minimum=1024,
    )
    segment_minutes_max: float = conf(
        "loadManagerHistorySegmentMaxMinutes",
        15.0,
        "A segment is sealed when it is this old",
        minimum=0.01,
    )
    buffer_bytes_max: int = conf(
        "loadManagerHistoryBufferMaxBytes",
        8 << 20,
        "Records that wait for the disk; more are dropped and counted",
        minimum=1024,
    )
    ship_url: str = conf(
        "loadManagerHistoryShipUrl",
        "",
        "The place to which sealed segments are copied: any fsspec URL (file://, s3://, hdfs://…); "
        "empty: nowhere",
    )
    ship_interval_s: float = conf(
        "loadManagerHistoryShipIntervalSeconds",
        60.0,
        "How often sealed segments are shipped",
        minimum=0.1,
    )
    archive_days: float = conf(
        "loadManagerArchiveMaxDays",
        14.0,
        "The archive of this broker answers for so many days; loads of more than a day ago by "
        "quarters of an hour",
        minimum=0.01,
    )
    archive_bytes_max: int = conf(
        "loadManagerArchiveMaxBytes",
        256 << 20,
        "The archive of this broker takes this much, beside the history; the oldest is deleted. "
        "0: no archive",
        minimum=0,
    )
    replay_error_url: str = conf(
        "loadManagerReplayErrorUrl",
        "",
        "Where `analyze --replay` leaves `calibration.json`: a path or any fsspec URL. The leader "
        "shows by it, beside plans and headroom, how far off the last replay was; empty: nowhere",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisSettings:
    """How long the history and what `loadmanager analyze` makes of it stay."""

    max_days: int = conf(
        "loadManagerHistoryMaxDays",
        0,
        "`analyze` deletes days that are so many days older than its own: segments of the history, "
        "records, sums, tables and reports. Comparisons and forecasts look back 28 days. 0: all "
        "stay",
        minimum=0,
    )
