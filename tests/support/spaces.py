"""Proposals of a search space, with the values that a test wants or drawn at random."""

from __future__ import annotations

from typing import Any

import optuna

from harness.engine.setting import Setting
from tuning.space import Choice, Space


def propose(space: Space, **values: Any) -> Setting:
    """Let Optuna answer with these values."""
    study = optuna.create_study()
    study.enqueue_trial(values)
    setting = space.propose(study.ask())
    assert study.trials[0].params == values, "it was asked for something else, or for more"
    return setting


def drawn(space: Space, seed: int) -> tuple[Setting, dict[str, Choice]]:
    """Draw a proposal at random; return its setting and the values that Optuna was asked for."""
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed)).ask()
    return space.propose(trial), dict(trial.params)
