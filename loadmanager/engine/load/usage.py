"""A broker's usage as one number (Pulsar `LocalBrokerData.getMaxResourceUsage…`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmanager.engine.load.reports import LocalBrokerData


class Weights(NamedTuple):
    """The weight of each resource."""

    cpu: float = 1.0
    direct_memory: float = 0.0
    bandwidth_in: float = 1.0
    bandwidth_out: float = 1.0


def weighted_percents(
    report: LocalBrokerData, weights: Weights
) -> tuple[float, float, float, float]:
    """Usage of CPU, direct memory, bandwidth in and out, in percent times weight."""
    return (
        report.cpu.percent * weights.cpu,
        report.direct_memory.percent * weights.direct_memory,
        report.bandwidth_in.percent * weights.bandwidth_in,
        report.bandwidth_out.percent * weights.bandwidth_out,
    )


def exponential_average(before: float | None, sample: float, history_weight: float) -> float:
    """The average after a sample; `before` weighs `history_weight`, a first sample everything."""
    if before is None:
        return sample
    return before * history_weight + (1 - history_weight) * sample


def max_usage(report: LocalBrokerData) -> float:
    """The most used resource, unweighted, as a fraction in single precision, as Pulsar divides it:
    90 % is a little less than 0.9.
    """
    return float(
        np.float32(max(weighted_percents(report, Weights(direct_memory=1.0)))) / np.float32(100)
    )


def max_weighted_usage(report: LocalBrokerData, weights: Weights) -> float:
    """The most used resource after weighting, as a fraction."""
    return max(weighted_percents(report, weights)) / 100
