"""One grammar for everything that names a metric: `ttft.p99{tier=host}`, `goodput{ttft=500ms}`, `headroom.host`."""

from __future__ import annotations

import re

from scenarios.errors import ConfigError
from scenarios.strict import nearest
from tuning.objective.latencies import NAMES, LatencyMetric
from tuning.objective.metric import Metric, SessionMetric
from tuning.objective.rates import GOODPUT, THROUGHPUTS, GoodputMetric
from tuning.objective.whole_trial import WHOLE_TRIAL

SHORT = {"throughput": "throughput.tokens"}
"""What may be written for short."""
METRICS = (*NAMES, GOODPUT, *THROUGHPUTS, *WHOLE_TRIAL)
"""Every metric by its name."""

_ARGUMENT = r"\s*\w+\s*<?=\s*[\w.+-]+\s*"
EXPRESSION = rf"(?P<metric>[A-Za-z0-9._]+)\s*(\{{(?P<arguments>{_ARGUMENT}(,{_ARGUMENT})*)\}})?"
"""A metric in a regular expression; `<=` is read as `=`, as a limit of a service level is one."""
_PATTERN = re.compile(rf"\s*{EXPRESSION}\s*")


def read_metric(text: str) -> Metric:
    """Read one metric; raise ConfigError that names the nearest one."""
    found = _PATTERN.fullmatch(text)
    if not found:
        raise ConfigError(f"`{text}` is no metric; write it as `ttft.p99`, `ttft.p99{{tier=host}}` or `errors`")
    return metric_of(found["metric"], found["arguments"])


def metric_of(name: str, arguments: str | None) -> Metric:
    """Return the metric of a name and the text in its braces; raise ConfigError that says what there is."""
    name = SHORT.get(name, name)
    if name not in METRICS:
        raise ConfigError(f"unknown metric `{name}`{nearest(name, METRICS)}")
    given = _read(arguments or "")
    if name == GOODPUT:
        return GoodputMetric.parse(name, given)
    if name in NAMES:
        return LatencyMetric.parse(name, given)
    if given:
        raise ConfigError(f"`{name}` has no groups; leave {{{(arguments or '').strip()}}} out")
    return THROUGHPUTS[name] if name in THROUGHPUTS else WHOLE_TRIAL[name]


def read_objective(text: str) -> SessionMetric:
    """Read what a search is to improve; raise ConfigError for a metric by which no winner could be proven."""
    metric = read_metric(text)
    if not isinstance(metric, SessionMetric):
        raise ConfigError(
            f"`{metric.text}` is no objective, as single requests do not tell it and so no interval could prove a "
            f"winner; bound it with --constraint, or search it as a second goal with --pareto {metric.text}"
        )
    return metric


def _read(arguments: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for argument in arguments.split(",") if arguments else []:
        name, _, value = (part.strip() for part in argument.replace("<", "").partition("="))
        if name in given:
            raise ConfigError(f"{name} is given twice; leave one out")
        given[name] = value
    return given
