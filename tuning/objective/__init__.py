"""What a search improves and what a setting must keep to. See docs/objective.md."""

from tuning.objective.constraint import Constraint
from tuning.objective.expression import METRICS, read_metric, read_objective
from tuning.objective.front import dominated, front
from tuning.objective.latencies import TTFT_P99, LatencyMetric
from tuning.objective.metric import Metric, SessionMetric
from tuning.objective.objective import LAUNCHED, Objective, sustained_per_s
from tuning.objective.rates import GoodputMetric, ThroughputMetric

__all__ = [
    "LAUNCHED",
    "METRICS",
    "TTFT_P99",
    "Constraint",
    "GoodputMetric",
    "LatencyMetric",
    "Metric",
    "Objective",
    "SessionMetric",
    "ThroughputMetric",
    "dominated",
    "front",
    "read_metric",
    "read_objective",
    "sustained_per_s",
]
