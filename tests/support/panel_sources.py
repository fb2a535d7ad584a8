"""Which queries a small search on CPU has no data for, why, and what stands in for it. The one list of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dashboards.queries import PanelQuery


@dataclass(frozen=True)
class Source:
    """Where the data of a query comes from instead, and with which variables it is asked for."""

    reason: str
    variables: Mapping[str, str] = field(default_factory=dict)
    may_happen: bool = False
    """Whether a search may have such data all the same, when the machine is busy."""


H200 = Source("a GPU, or more reloads than a small search has: a study that was recorded on an H200", {"study": "h200"})
STUDY_0_5_23 = Source("SGLang 0.5.23, or an engine that fails: figures made up by hand", {"study": "v23"})
ENGINE_0_5_23 = Source("SGLang 0.5.23: a scrape written by hand", {"instance": ".+:.+"})
GROWTH = Source("a load whose ramp shows how memory grows: figures made up by hand", {"study": "v23"}, may_happen=True)
OVERLOAD = Source("an overload: the same scrape", {"instance": ".+:.+"}, may_happen=True)
DCGM = Source("a GPU: a scrape of dcgm-exporter written by hand")
NODE = Source("node_exporter: a scrape written by hand")
NIGHTLY = Source("a nightly job: the real exporter, with a night made up by hand")

ELSEWHERE: Mapping[tuple[str, str], Mapping[str, Source]] = {
    ("search", "Headroom on the device"): {"A": H200},
    ("search", "Headroom at twice the concurrency"): {"A": GROWTH},
    ("search", "Tokens moved"): {"C": STUDY_0_5_23},
    ("search", "Reload against compute, for each 1,000 tokens"): {"A": H200, "B": H200},
    ("search", "What each reload costs, whatever its length"): {"A": H200},
    ("search", "Break-even length of a reload"): {"A": H200},
    ("search", "Failures by class"): {"A": STUDY_0_5_23},
    ("engine", "Requests ended"): {"B": OVERLOAD, "C": OVERLOAD},
    ("engine", "Bandwidth of reloads (0.5.23)"): {"A": ENGINE_0_5_23},
    ("engine", "Written to the host (0.5.23)"): {"A": ENGINE_0_5_23, "B": ENGINE_0_5_23},
    ("engine", "Host memory"): {"A": NODE, "B": NODE},
    ("engine", "Free GPU memory"): {"A": DCGM},
    ("engine", "PCIe traffic"): {"A": DCGM, "B": DCGM},
}
"""By dashboard and panel, then by query."""


def source_of(board: str, query: PanelQuery) -> Source | None:
    """Return what stands in for the search; None where the search itself must have data."""
    return NIGHTLY if board == "nightly" else ELSEWHERE.get((board, query.title), {}).get(query.ref_id)
