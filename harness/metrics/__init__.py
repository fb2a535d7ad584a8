"""What is measured of a load: one definition for each metric, its quantiles by group, and goodput."""

from harness.metrics.breakdown import Breakdown, breakdown, breakdowns
from harness.metrics.definitions import METRICS, Metric, MetricName, Sample, answered, ttft_s
from harness.metrics.goodput import Goodput, Slo, goodput
from harness.metrics.groups import LAST_TURNS, PROMPT_BANDS, TIERS, TURNS
from harness.metrics.latency import QUANTILES, Latency, latency

__all__ = [
    "LAST_TURNS",
    "METRICS",
    "PROMPT_BANDS",
    "QUANTILES",
    "TIERS",
    "TURNS",
    "Breakdown",
    "Goodput",
    "Latency",
    "Metric",
    "MetricName",
    "Sample",
    "Slo",
    "answered",
    "breakdown",
    "breakdowns",
    "goodput",
    "latency",
    "ttft_s",
]
