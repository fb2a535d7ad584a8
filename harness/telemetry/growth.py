"""Memory that a setting would leave at twice the concurrency, from how its memory grew with the running requests.

The rule. SGLang makes its pools at launch, so what grows under load are activations, graphs and buffers, on the
device and in the engine's processes. Each time more requests ran at once than ever before in the load, the most
memory used until then is noted; a line through these points gives the bytes that one more running request takes, and
twice the most requests take that much more for each. It is a guess from the ramp of one load: a bound on running
requests (`--max-running-requests`) or longer prompts make it wrong. Nothing is guessed from fewer than LEAST_LEVELS
such points, nor unless the most requests are at least twice the fewest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

LEAST_LEVELS = 4


def at_double(samples: pd.DataFrame, used: str, headroom_bytes: int | None) -> int | None:
    """Return what `headroom_bytes` would become, by the growth of column `used`; None where it cannot be known."""
    grown = growth_at_double(samples, used)
    return None if headroom_bytes is None or grown is None else headroom_bytes - grown


def growth_at_double(samples: pd.DataFrame, used: str) -> int | None:
    """Return by how many bytes column `used` would grow; never negative, None where the load did not show it."""
    memory = samples.loc[samples[used].notna(), ["t_ns", used]]
    running = samples.loc[samples["running_requests"].notna(), ["t_ns", "running_requests"]]
    # The requests that were known to run when memory was read: a scrape looks back, never ahead.
    rows = pd.merge_asof(memory, running, on="t_ns").dropna()
    most_running = rows["running_requests"].cummax()
    levels = rows[used].groupby(most_running).max().cummax()
    levels = levels[levels.index > 0]
    if len(levels) < LEAST_LEVELS or levels.index[-1] < 2 * levels.index[0]:
        return None
    slope, _ = np.polyfit(levels.index.to_numpy(dtype=np.float64), levels.to_numpy(dtype=np.float64), 1)
    return max(0, round(float(slope) * float(levels.index[-1])))
