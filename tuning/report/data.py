"""The answer of a study as data: what `--json` prints and what result.json holds.

History of the format (`schema_version` of result.json):
    1  first version
    2  of each trial its searched values, throughput, reloaded and host pool bytes; sensitivity, fronts, left out
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.environment import Environment
from harness.metrics import Slo
from harness.store import Outcome, TrialRecord
from scenarios.strict import StrictModel
from tuning.config import StudyFile
from tuning.objective import Objective
from tuning.report.costs import Cost, costs
from tuning.report.detail import Detail, details
from tuning.report.fronts import Front, fronts
from tuning.report.left_out import LeftOut, left_out
from tuning.report.played import played
from tuning.report.remarks import remarks
from tuning.report.rows import TrialRow, leader, trial_rows
from tuning.report.sensitivity import Sensitivity, sensitivity
from tuning.verdict import Verdict

SCHEMA_VERSION = 2


class StudyResult(StrictModel):
    """result.json."""

    schema_version: int = SCHEMA_VERSION
    study: str
    verdict: Verdict
    launch_command: str | None
    constraints: tuple[str, ...]
    outcomes: dict[Outcome, int]
    """Trials by how they ended."""
    trials: tuple[TrialRow, ...]
    """Best first; those that may not win last."""
    left_out: tuple[LeftOut, ...] = ()
    """The trials that say nothing or may not win, by why, the commonest reason first."""
    sensitivity: Sensitivity = Sensitivity()
    """Which flags decide, and what each does alone."""
    fronts: tuple[Front, ...] = ()
    """What a lower TTFT P99 is paid with: in throughput, host memory, reloads."""
    details: tuple[Detail, ...] = ()
    """Both baselines and the winner, or the best so far: every metric by turn, tier and prompt length."""
    costs: tuple[Cost, ...] = ()
    """Of the same settings: what they leave free, and what their reloads cost."""
    remarks: tuple[str, ...]
    """What a reader must know before believing the figures."""
    scenario: str
    scenario_fingerprint: str
    environment: Environment


def study_result(
    root: Path,
    study: StudyFile,
    records: Sequence[TrialRecord],
    verdict: Verdict,
    objective: Objective,
    *,
    slo: Slo | None = None,
) -> StudyResult:
    """Gather the answer of the study in `root`; with a service level, the goodput under it too."""
    leading = leader(records, objective, verdict)
    settings = played(root, records, leading, confirmed=verdict.winner is not None)
    rows = trial_rows(records, objective, verdict)
    return StudyResult(
        study=study.name,
        verdict=verdict,
        launch_command=verdict.launch_command,
        constraints=study.search.constraints,
        outcomes=dict(sorted(Counter(record.outcome for record in records).items())),
        trials=tuple(rows),
        left_out=left_out(rows),
        sensitivity=sensitivity(rows, study.search.space, leading, maximised=objective.metric.maximised),
        fronts=fronts(rows),
        details=details(settings, slo),
        costs=costs(settings),
        remarks=tuple(remarks(root, study, records, verdict)),
        scenario=study.search.scenario.name,
        scenario_fingerprint=study.scenario_fingerprint,
        environment=study.environment,
    )
