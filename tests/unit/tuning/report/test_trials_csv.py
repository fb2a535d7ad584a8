"""The trials as CSV."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from harness.engine.setting import Setting
from tests.support.rows import trial_row
from tests.support.study_data import OFF, Made
from tuning.report.rows import trial_rows
from tuning.report.trials_csv import trials_csv


@pytest.fixture(scope="module")
def frame(confirmed: Made) -> pd.DataFrame:
    """Give the trials of a study that ends well, as a data frame reads them."""
    return pd.read_csv(io.StringIO(trials_csv(trial_rows(confirmed.records, confirmed.objective, confirmed.verdict))))


def test_a_line_for_each_trial_in_order(frame: pd.DataFrame, confirmed: Made) -> None:
    """Every trial is there, whatever became of it, in the order of measurement."""
    assert frame["trial"].tolist() == [record.number for record in confirmed.records]
    assert frame["outcome"].tolist() == [record.outcome.value for record in confirmed.records]


def test_figures_are_those_of_the_records(frame: pd.DataFrame, confirmed: Made) -> None:
    """Seconds and bytes are not rounded for reading; what may not be compared is empty."""
    record = confirmed.records[2]
    assert frame["ttft_p99_s"][2] == pytest.approx(record.p99_s, abs=1e-9)
    assert frame["host_headroom_bytes"][2] == 9 * 2**30
    assert frame["ttft_p99_s"].isna().tolist() == [not record.usable for record in confirmed.records]


def test_each_flag_has_a_column(frame: pd.DataFrame) -> None:
    """A flag that a setting leaves to SGLang is empty."""
    assert frame["flag_hicache"][:3].tolist() == [False, True, True]
    assert frame["flag_hicache_ratio"].isna().tolist()[:3] == [True, False, False]
    assert frame["flag_page_size"][2] == 32


def test_a_text_is_never_a_formula() -> None:
    """A spreadsheet would run what begins with `=`; numbers keep their sign."""
    setting = Setting(extra={"chat-template": "=HYPERLINK(1)", "bias": -2})
    read = pd.read_csv(io.StringIO(trials_csv([trial_row(0, setting, 1.0, reason='@x, "y"\nz')])))
    assert read["flag_chat-template"].tolist() == ["'=HYPERLINK(1)"]
    assert read["flag_bias"].tolist() == [-2]
    assert read["reason"].tolist() == ['\'@x, "y"\nz']


def test_a_study_without_trials_has_its_heads() -> None:
    """A program finds the columns before there is a row."""
    assert trials_csv([]).startswith("trial,purpose,setting,key,seed,outcome,feasible,winner,failure,reason,ttft_p50_s")
    assert len(trials_csv([trial_row(0, OFF, None)]).splitlines()) == 2
