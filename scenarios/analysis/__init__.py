"""Will a second cache tier help this load? Counted on its prompts alone, before any GPU second.

`load_of_trace` and `load_of_plan` turn any load into one stream of block keys, `analyse` counts on it and judges it
for a machine, and `CachePrior` is what a search takes from it.
"""

from scenarios.analysis.analysis import analyse
from scenarios.analysis.from_plan import load_of_plan
from scenarios.analysis.from_scenario import load_of_scenario
from scenarios.analysis.from_trace import load_of_trace
from scenarios.analysis.load import Load
from scenarios.analysis.machine import DEFAULT_COPY_GB_PER_S, HostPool, Machine
from scenarios.analysis.prior import CachePrior, TierHits
from scenarios.analysis.record import Analysis, Answer, CacheUse, Mark, Verdict
from scenarios.analysis.stream import MAX_BLOCKS
from scenarios.analysis.text import Encode
from scenarios.analysis.timing import Assumptions

__all__ = [
    "DEFAULT_COPY_GB_PER_S",
    "MAX_BLOCKS",
    "Analysis",
    "Answer",
    "Assumptions",
    "CachePrior",
    "CacheUse",
    "Encode",
    "HostPool",
    "Load",
    "Machine",
    "Mark",
    "TierHits",
    "Verdict",
    "analyse",
    "load_of_plan",
    "load_of_scenario",
    "load_of_trace",
]
