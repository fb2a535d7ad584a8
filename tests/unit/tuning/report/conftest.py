"""Small studies on disk, made once for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import study_data
from tests.support.study_data import Made


@pytest.fixture(scope="session")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give a study that ends well; nobody may write into it but the report."""
    return study_data.confirmed_study(tmp_path_factory.mktemp("confirmed"))


@pytest.fixture
def unconfirmed(tmp_path: Path) -> Made:
    """Give a study whose budget ended before its confirmation."""
    return study_data.unconfirmed_study(tmp_path)


@pytest.fixture
def infeasible(tmp_path: Path) -> Made:
    """Give a study in which no engine started."""
    return study_data.infeasible_study(tmp_path)


@pytest.fixture
def unsustained(tmp_path: Path) -> Made:
    """Give a study whose baseline does not sustain the load."""
    return study_data.unsustained_study(tmp_path)
