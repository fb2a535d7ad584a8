"""Record a whole grid of settings on the real CPU engine, for the benchmark of the search.

`python -m tests.bench.record_grid`, 40 minutes on 2 cores.

Every setting is measured once on seed 1, and a few of them on further seeds, which shows how much a trial varies.
A study that is there is gone on with.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from rich.console import Console

from harness.engine.setting import Setting
from harness.store import next_number, read_trials
from harness.trial import run_trial
from tuning.cli.opened import opened
from tuning.cli.options import SearchOptions
from tuning.engines import engine_spec

FRACTIONS = (0.84, 0.88, 0.92)
RATIOS = (1.5, 2.5, 4.0, 6.0)
POLICIES = ("write_through", "write_through_selective")
REPEATED = (
    Setting(hicache=False, mem_fraction_static=0.88),
    Setting(hicache=True, mem_fraction_static=0.88, hicache_ratio=4.0, hicache_write_policy="write_through"),
)
SEEDS = (2, 3)


def grid() -> list[Setting]:
    """List the settings, each once, in their canonical form."""
    off = [Setting(hicache=False, mem_fraction_static=fraction) for fraction in FRACTIONS]
    on = [
        Setting(hicache=True, mem_fraction_static=fraction, hicache_ratio=ratio, hicache_write_policy=policy)
        for fraction, ratio, policy in itertools.product(FRACTIONS, RATIOS, POLICIES)
    ]
    return [setting.canonical() for setting in (*off, *on)]


def main() -> None:
    """Measure what of the grid is not on disk yet."""
    root = Path("results/cpu-grid").absolute()
    options = SearchOptions(
        engine="cpu",
        scenario="cpu-chat",
        study=root.name,
        resume=(root / "study.json").exists(),
        mem_fraction_static=",".join(map(str, FRACTIONS)),
        hicache_ratio=",".join(map(str, RATIOS)),
        hicache_write_policy=",".join(POLICIES),
        transfer="default",
        page_size="default",
    )
    wanted = options.search()
    spec = engine_spec(wanted, options.effort())
    jobs = [(setting, 1) for setting in grid()]
    jobs += [(setting.canonical(), seed) for seed in SEEDS for setting in REPEATED]
    with opened(Console(stderr=True), options, wanted, spec, root, planned=len(jobs)) as study:
        for setting, seed in jobs:
            if study.stop.should_stop():
                return
            done = {(r.setting.key, r.seed) for r in read_trials(root) if r.usable}
            if (setting.key, seed) not in done:
                number = next_number(root)
                plan = study.plan(wanted.scenario, seed)
                study.watch.trial_begins(number, "search", setting, measured=len(done), eta_s=0.0)
                record = run_trial(study.lab, number=number, purpose="search", setting=setting, plan=plan)
                study.watch.trial_ends(record, feasible=study.objective.feasible(record), best=None)


if __name__ == "__main__":
    main()
