"""Which trial a proposal races against: it is stopped once it is surely worse than the best one so far."""

from __future__ import annotations

from pathlib import Path

from harness.load.job import Rival
from harness.store import TrialRecord, requests_path


def rival_of(best: TrialRecord | None, root: Path, seed: int) -> Rival | None:
    """Return the best trial so far as a rival on the sessions of `seed`; None when it played others or left none."""
    if best is None or best.seed != seed:
        return None
    path = requests_path(root, best)
    return Rival(trial=best.number, requests_path=path.absolute(), p99_s=best.p99_s) if path.exists() else None
