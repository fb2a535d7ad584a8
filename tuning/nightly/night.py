"""One night from the plan to what it has found: an optional search, production measured, compared, measured again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.markup import escape

from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.environment import Environment
from harness.store import read_trials
from harness.trial import run_trial
from scenarios.errors import ConfigError
from tuning.budget import Budget
from tuning.cli.answer import print_answer
from tuning.cli.opened import OpenStudy, open_devices, opened
from tuning.cli.options import SearchOptions
from tuning.cli.sizing import settled
from tuning.config import STUDY_FILE, Effort, Search, read_study
from tuning.engines import command_of, engine_spec
from tuning.nightly.conditions import Conditions
from tuning.nightly.config import NightlyConfig
from tuning.nightly.history import History, NightRecord, Role
from tuning.nightly.judge import (
    NO_DATA,
    Change,
    Judgement,
    Reference,
    Run,
    beats,
    change_since,
    judge_all,
    needs_repeat,
)
from tuning.nightly.measure import Remeasure
from tuning.nightly.production import production_setting, proposed_words
from tuning.report.html import REPORT_FILE
from tuning.samplers import Samplers
from tuning.space import one_setting, only
from tuning.study import BASELINES, Study
from tuning.verdict import NEGLIGIBLE, Kind, Verdict, launch_command

OFF = BASELINES[0]


@dataclass(frozen=True)
class Found:
    """What a night has found. Runs that were not measured are None."""

    judgement: Judgement
    production: Run | None
    baseline: Run | None = None
    winner: Run | None = None
    proposed: tuple[str, ...] | None = None
    """Flags that surely are faster than those of production."""
    baseline_change: Change | None = None
    """How HiCache off at SGLang's defaults changed since the same night: whether all of the engine got slower."""
    report: Path | None = None

    @property
    def answers(self) -> Mapping[Role, pd.DataFrame]:
        """What later nights are compared with."""
        runs: dict[Role, Run | None] = {"production": self.production, "baseline": self.baseline}
        return {role: run.answers for role, run in runs.items() if run is not None and not run.falls_short}


@dataclass
class Tonight:
    """The measurements of one night in a study of its own."""

    config: NightlyConfig
    console: Console
    root: Path
    started: float = field(default_factory=time.monotonic)
    conditions: Conditions = field(init=False)
    _spec: EngineSpec = field(init=False)

    def plan(self, *, may_launch: bool = True) -> Conditions:
        """Find out what is measured tonight, and under which conditions.

        A scenario that is sized by the engine's KV pool takes one launch, where that is allowed.
        """
        options = self._options(resume=False)
        wanted, effort = options.search(), options.effort()
        if self.config.only_measures:
            production = one_setting(wanted.space)
        else:
            production = production_setting(self.config.production or (), wanted.engine_args)
            its_own = wanted.model_copy(update={"space": only(production)})
            _refuse_unknown_flags(its_own, effort)
            wanted = its_own if self.config.mode == "confirm" else wanted
        self._spec = engine_spec(wanted, effort)
        wanted = settled(self.console, wanted, self._spec, self.root) if may_launch else wanted
        environment = Environment.of(self._spec, open_devices(self._spec))
        self.conditions = Conditions(
            environment=environment,
            search=wanted,
            production=self._spec.canonical(production),
            seeds=self.config.seeds,
        )
        return self.conditions

    def command(self) -> tuple[str, ...]:
        """Return the command by which production is launched, once it is planned; empty when nothing is."""
        return command_of(self.conditions.search, self._spec, self.conditions.production)

    def measure(self, history: History) -> Found | None:
        """Measure and judge; None when the user asked to stop. Raises HicacheTuneError for what stops a night."""
        options = self._options(resume=(self.root / STUDY_FILE).exists())
        wanted, production = self.conditions.search, self.conditions.production
        searched = options.trials if self.config.mode == "search" else 0
        with opened(self.console, options, wanted, self._spec, self.root, planned=searched) as study:
            verdict = self._search(study, options) if searched else None
            remeasure = self._remeasure(study)
            settings = [production] if self._baseline is None else [production, self._baseline]
            remeasure.run(settings, times=1)
            run = remeasure.taken(production, 0)
            references = self._references(history)
            repeat: Run | None = None
            if run is not None and any(needs_repeat(run, each, self.config.threshold) for each in references):
                remeasure.run([production], times=2)
                repeat = remeasure.taken(production, 1)
        if study.stop.should_stop():
            return None
        if run is None:
            nothing = Judgement(NO_DATA, "the budget ended before production was measured on every seed")
            self._say(nothing)
            return Found(nothing, None)
        winner = self._winner(remeasure, verdict)
        baseline = remeasure.taken(self._baseline, 0) if self._baseline is not None else None
        found = Found(
            judge_all(run, repeat, references, self.config.threshold),
            repeat or run,
            baseline,
            winner,
            self._proposed(run, winner),
            self._baseline_change(history, baseline, references),
        )
        return replace(found, report=self._report(study, verdict, found))

    @property
    def _baseline(self) -> Setting | None:
        """HiCache off, where it is measured besides production."""
        wanted = self.config.mode == "search" or (self.config.baseline and not self.config.only_measures)
        return OFF if wanted and self.conditions.production.key != OFF.key else None

    def _options(self, *, resume: bool) -> SearchOptions:
        return self.config.options(self.root.name, resume=resume)

    def _search(self, study: OpenStudy, options: SearchOptions) -> Verdict:
        """Search with production among the baselines, so that it is confirmed in turn with the best."""
        from tuning.search import Searcher

        wanted, effort = self.conditions.search, options.effort()
        settings = {setting.key: setting for setting in (*BASELINES, self.conditions.production)}
        searcher = Searcher(
            lab=study.lab,
            study=Study(
                self.root / "study.db",
                samplers=Samplers(
                    effort.sampler,
                    wanted.space,
                    self._spec.canonical,
                    wanted.seed,
                    objectives=1 + len(wanted.pareto),
                ),
                objective=study.objective,
                baselines=tuple(settings.values()),
            ),
            objective=study.objective,
            effort=effort.model_copy(update={"trials": max(effort.trials, len(settings))}),
            watch=study.watch,
            make_plan=lambda seed: study.plan(wanted.scenario, seed),
            seed=wanted.seed,
        )
        return searcher.run()

    def _remeasure(self, study: OpenStudy) -> Remeasure:
        budget_s = self.config.budget_s
        left_s = None if budget_s is None else max(0.0, budget_s - (time.monotonic() - self.started))
        return Remeasure(
            lab=study.lab,
            watch=study.watch,
            objective=study.objective,
            make_plan=lambda seed: study.plan(self.conditions.search.scenario, seed),
            seeds=self.config.seeds,
            budget=Budget(0, left_s, 0),
            measure=run_trial,
        )

    def _references(self, history: History) -> list[Reference]:
        """Find the last good night of equal conditions, and the first one since a person accepted one.

        Without any, the last good night of other conditions.
        """
        good = [night for night in history.nights(self.config.job) if night.is_good]
        found = [reference for night in good if (reference := self._reference(history, night)) is not None]
        equal = [reference for reference in found if not reference.differences]
        accepted = next((place for place, reference in enumerate(equal) if reference.night.accepted), len(equal) - 1)
        chosen = [equal[0], equal[accepted]] if equal else found[:1]
        return chosen[:1] if len(chosen) > 1 and chosen[0] is chosen[1] else chosen

    def _reference(self, history: History, night: NightRecord) -> Reference | None:
        answers = history.answers(night.study, "production")
        if answers is None or night.conditions is None:
            return None
        differences = tuple(self.conditions.differences(night.conditions))
        return Reference(night, answers, differences, self.conditions.same_sessions(night.conditions))

    def _winner(self, remeasure: Remeasure, verdict: Verdict | None) -> Run | None:
        if verdict is None or verdict.winner is None:
            return None
        key = verdict.winner.key
        setting = next(record.setting for record in remeasure.records if record.setting.key == key)
        return remeasure.taken(setting, 0)

    def _proposed(self, production: Run, winner: Run | None) -> tuple[str, ...] | None:
        if winner is None or winner.setting.key == production.setting.key:
            return None
        if not production.falls_short and beats(winner, production, NEGLIGIBLE) is None:
            return None
        words, fixed = self.config.production or (), self.conditions.search.engine_args
        return proposed_words(words, production.setting, winner.setting, fixed)

    def _baseline_change(
        self, history: History, baseline: Run | None, references: Sequence[Reference]
    ) -> Change | None:
        if baseline is None or baseline.falls_short or not references:
            return None
        answers = history.answers(references[0].night.study, "baseline")
        return None if answers is None else change_since(baseline.answers, replace(references[0], answers=answers))

    def _report(self, study: OpenStudy, verdict: Verdict | None, found: Found) -> Path:
        """Write the page of the study and print its answer, and the judgement where that is not the answer."""
        records = read_trials(self.root)
        if verdict is None:
            last = found.production.records[-1] if found.production else records[-1]
            said = found.judgement.sentence
            verdict = Verdict(kind=Kind.MEASURED, sentence=said, launch_command=launch_command(last))
        print_answer(self.root, study.file, records, verdict, study.objective, console=self.console, json=False)
        if verdict.sentence != found.judgement.sentence:
            self._say(found.judgement)
        return self.root / REPORT_FILE

    def _say(self, judgement: Judgement) -> None:
        self.console.print(f"\n[bold]{escape(judgement.sentence)}[/]", soft_wrap=True, highlight=False)


def _refuse_unknown_flags(production: Search, effort: Effort) -> None:
    """Raise ConfigError for flags of production that this engine does not have."""
    try:
        engine_spec(production, effort)
    except ConfigError as problem:
        raise ConfigError(f"production: {problem}") from None


def same_study(root: Path, conditions: Conditions) -> bool:
    """Whether the study in `root` may be gone on with tonight; so it may when there is none."""
    if not (root / STUDY_FILE).exists():
        return True
    stored = read_study(root)
    unlike = any(conditions.environment.differing(stored.environment))
    return stored.search == conditions.search and not unlike
