"""optuna-dashboard shows a study while it runs and afterwards, from study.db alone."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna_dashboard
import pytest
from optuna.storages import RDBStorage

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from tests.support.trials import failed, measured
from tuning.objective import Constraint, Objective
from tuning.samplers import Samplers
from tuning.space import preset_space
from tuning.study import BASELINES, Study

OFF, ON = BASELINES


@pytest.fixture
def studied(tmp_path: Path) -> Path:
    """Search a few settings without an engine: one is good, one breaks a constraint, one crashes."""
    objective = Objective((Constraint.parse("headroom.host >= 1GiB"),), worst_s=600)
    samplers = Samplers("auto", preset_space("cpu"), Setting.canonical, seed=1)
    study = Study(tmp_path / "study.db", samplers=samplers, objective=objective)
    records = [measured(OFF), measured(ON)]
    for told in (measured, partial(measured, host_bytes=2**29), partial(failed, kind=FailureKind.CRASH)):
        proposal = study.propose(records)
        assert proposal is not None
        records.append(told(proposal.setting))
        study.learn(proposal, records[-1])
    return tmp_path / "study.db"


def asked(database: Path, path: str) -> Any:
    """Ask the dashboard's own interface, as its page does."""
    storage = RDBStorage(f"sqlite:///{database}")
    environ: dict[str, Any] = {"PATH_INFO": path, "wsgi.input": io.BytesIO()}
    setup_testing_defaults(environ)
    started: list[Any] = []
    body = b"".join(optuna_dashboard.wsgi(storage)(environ, lambda *said: started.extend(said)))
    storage.engine.dispose()
    assert started[0] == "200 OK", body
    return json.loads(body)


def test_the_study_is_listed(studied: Path) -> None:
    """Its summary has a name and the direction in which it is better."""
    (summary,) = asked(studied, "/api/studies")["study_summaries"]
    assert summary["study_name"] == "hicache-tune"
    assert summary["directions"] == ["minimize"]


def test_every_trial_is_shown_with_its_setting(studied: Path) -> None:
    """Values are finite, parameters have their names, and the setting stands there in words."""
    trials = asked(studied, "/api/studies/1")["trials"]
    assert [trial["state"] for trial in trials] == ["Complete"] * 3
    assert all(len(trial["values"]) == 1 for trial in trials)
    assert trials[2]["values"] == [600.0]
    for trial in trials:
        assert {param["name"] for param in trial["params"]} >= {"hicache", "mem_fraction_static"}
        (setting,) = [each["value"] for each in trial["user_attrs"] if each["key"] == "setting"]
        assert setting.startswith("HiCache")
