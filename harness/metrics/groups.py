"""Ways to divide requests: by turn, by the tier that served them, by the length of their prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

TURN_BANDS = 10
LAST_TURNS = f"{TURN_BANDS}+"
TURNS = (*map(str, range(TURN_BANDS)), LAST_TURNS)
TIERS = ("device", "host", "storage", "none", "unknown")
UNKNOWN = "unknown"


def _tokens(power: int) -> str:
    return f"{1 << power}" if power < 10 else f"{1 << (power - 10)}k"


PROMPT_BANDS = tuple(f"{_tokens(power)}-{_tokens(power + 1)}" for power in range(24))
"""Between powers of two, as far as prompts go: the last band takes all longer ones."""


@dataclass(frozen=True)
class Groups:
    """A division of requests: `labels` in the order of showing, and the label's index for each request."""

    labels: tuple[str, ...]
    codes: npt.NDArray[np.int64]


def by_turn(records: pd.DataFrame) -> Groups:
    """Divide by turn index: 0 to 9 each, and all later ones together."""
    return Groups(TURNS, np.minimum(records["turn"].to_numpy(dtype=np.int64), TURN_BANDS))


def by_tier(records: pd.DataFrame) -> Groups:
    """Divide by the slowest tier that any of the prompt's cached tokens came from.

    `none`: nothing was cached. `unknown`: the engine did not say, or not from which tier.
    """
    device, host, storage, cached = (
        records[f"{tier}cached_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
        for tier in ("device_", "host_", "storage_", "")
    )
    # Slowest first, and a comparison with NaN is false.
    served = {"storage": storage > 0, "host": host > 0, "device": device > 0, "none": cached == 0}
    found = np.select(list(served.values()), [TIERS.index(tier) for tier in served], TIERS.index(UNKNOWN))
    return Groups(TIERS, found.astype(np.int64))


def by_prompt(records: pd.DataFrame) -> Groups:
    """Divide by prompt length in bands between powers of two, as `1k-2k` for 1024 to 2047 tokens."""
    tokens = records["prompt_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    powers = np.frexp(np.nan_to_num(tokens, nan=1.0))[1] - 1
    codes = np.where(np.isnan(tokens), len(PROMPT_BANDS), np.clip(powers, 0, len(PROMPT_BANDS) - 1))
    return Groups((*PROMPT_BANDS, UNKNOWN), codes.astype(np.int64))
