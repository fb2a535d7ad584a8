"""Small studies on disk, made once for all tests: nothing but the report may be written into them."""

from __future__ import annotations

import pytest

from tests.support import study_data
from tests.support.study_data import RATIO_3, Made
from tuning.report.played import Played, played
from tuning.report.rows import TrialRow, trial_rows


@pytest.fixture(scope="session")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give a study that ends well."""
    return study_data.confirmed_study(tmp_path_factory.mktemp("confirmed"))


@pytest.fixture(scope="session")
def unconfirmed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give a study whose budget ended before its confirmation."""
    return study_data.unconfirmed_study(tmp_path_factory.mktemp("unconfirmed"))


@pytest.fixture(scope="session")
def infeasible(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give a study in which no engine started."""
    return study_data.infeasible_study(tmp_path_factory.mktemp("infeasible"))


@pytest.fixture(scope="session")
def unsustained(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give a study whose baseline does not sustain the load."""
    return study_data.unsustained_study(tmp_path_factory.mktemp("unsustained"))


@pytest.fixture(scope="session")
def rows(confirmed: Made) -> list[TrialRow]:
    """Give the rows of the study that ends well."""
    return trial_rows(confirmed.records, confirmed.objective, confirmed.verdict)


@pytest.fixture(scope="session")
def settings(confirmed: Made) -> list[Played]:
    """Give both baselines and the winner of that study."""
    return played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)
