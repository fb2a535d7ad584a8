"""An engine that is a function of the setting, in place of `harness.trial.run_trial`, for tests of whole searches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np

from harness.engine.memory import MemoryForecast, SeenMemory
from harness.engine.setting import Setting
from harness.lab import Lab
from harness.load.job import Rival
from harness.load.record import read_records
from harness.store import REQUESTS_FILE, Purpose, Step, TrialRecord, folder_of, write_trial
from harness.summary import summarise
from scenarios.plan import Plan
from tests.support.trials import base_ttft_s, measured, write_requests

TRIAL_S = 30.0


class SimulatedEngine:
    """Measures a setting by a pure function: more host memory is quicker. It keeps a list of what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Purpose, Setting, int]] = []
        self.rivals: list[Rival | None] = []
        """Whom each trial raced against."""
        self.labs: list[Lab] = []
        """Where each was measured."""
        self.answers: dict[str, deque[TrialRecord]] = defaultdict(deque)
        """Answers in place of a measurement, by the key of the setting, each once."""
        self.after_each: Callable[[TrialRecord], None] = lambda record: None
        self.trial_s: dict[Purpose, float] = defaultdict(lambda: TRIAL_S)
        self.slower_s: dict[str, float] = {}
        """What the trials of a setting take longer, by its key."""
        self.noise = 0.0
        """How much a request's time varies from one trial to the next: the sigma of a lognormal factor."""
        self.seen: SeenMemory | None = None
        """What each trial took."""

    def __call__(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        """Measure, write the record, and let the time pass."""
        self.asked.append((purpose, setting, plan.seed))
        self.rivals.append(lab.rival)
        self.labs.append(lab)
        waiting = self.answers[setting.key]
        memory = {"forecast": MemoryForecast(), "seen": self.seen}
        simulated = measured(setting, p99_s(setting)).model_copy(update=memory)
        found = waiting.popleft() if waiting else simulated
        seconds = self.trial_s[purpose] + self.slower_s.get(setting.key, 0.0)
        steps = (Step(name="load", seconds=seconds),)
        record = found.model_copy(update={"number": number, "purpose": purpose, "seed": plan.seed, "steps": steps})
        base_s = base_ttft_s(plan.seed)
        luck = np.random.default_rng([plan.seed, int(setting.key, 16)]).lognormal(0, self.noise, base_s.shape)
        write_requests(lab.root, record, base_s * p99_s(setting) * luck)
        record = _with_goodput(record, lab)
        write_trial(record, folder_of(lab.root, number, purpose))
        self.after_each(record)
        return record

    def settings(self, purpose: Purpose) -> list[Setting]:
        """List the settings that were measured for this purpose, in order."""
        return [setting for asked_for, setting, _ in self.asked if asked_for == purpose]


def p99_s(setting: Setting) -> float:
    """Return what the simulated engine takes with this setting."""
    if not setting.hicache:
        return 1.0 + (setting.page_size or 1) / 1000
    return 0.2 + 0.6 / (setting.hicache_ratio or 2.0) + (setting.page_size or 1) / 1000


def _with_goodput(record: TrialRecord, lab: Lab) -> TrialRecord:
    """Judge the requests as a trial does that is asked for service levels."""
    if not lab.slos or record.summary is None:
        return record
    requests = read_records(folder_of(lab.root, record.number, record.purpose) / REQUESTS_FILE)
    told = summarise(requests, not_played=0, slos=lab.slos).goodput
    return record.model_copy(update={"summary": record.summary.model_copy(update={"goodput": told})})
