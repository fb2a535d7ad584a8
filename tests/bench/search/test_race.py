"""The benchmark itself: that a table is searched as it was recorded, and that its figures mean what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.engine.setting import Setting
from tests.bench.search.equal import EqualSettings, equal_settings
from tests.bench.search.page import BEGIN, END, Findings, Raced, lines, write_page
from tests.bench.search.race import Result, Rival, races, rivals_of, search, trials_of
from tests.bench.search.table import Table
from tests.support.tables import RATIOS, SETTINGS, settings, true_p99_s, write_table
from tests.support.trials import SESSIONS, TURNS, measured, write_requests
from tuning.samplers.points import all_points


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Make a table of 21 settings."""
    return Table.read(write_table(tmp_path_factory.mktemp("tables") / "made", seeds=(1, 2)))


def test_the_space_is_what_was_recorded(table: Table) -> None:
    """Every recorded setting and no other, under the condition that HiCache is on."""
    assert [(axis.name, axis.values, axis.needs_hicache) for axis in table.space.axes] == [
        ("hicache", (False, True), False),
        ("mem_fraction_static", (0.84, 0.88, 0.92), False),
        ("hicache_ratio", RATIOS, True),
        ("hicache_write_policy", ("write_back", "write_through"), True),
        ("transfer", ("kernel/page_first",), True),
    ]
    keys = {point.setting.key for point in all_points(table.space, Setting.canonical)}
    assert keys == {setting.key for setting in settings()} == table.truth_s.keys()
    assert table.why_no_grid is None


def test_a_table_with_a_hole_is_no_grid(tmp_path: Path) -> None:
    """The setting that is missing is named: nothing is interpolated."""
    found = Table.read(write_table(tmp_path / "made", leave_out=1)).why_no_grid
    assert found == f"1 settings between its own were not recorded, such as {settings()[-1].label}"


def test_a_baseline_that_leaves_flags_open_is_no_part_of_the_grid(tmp_path: Path) -> None:
    """Trials 0 and 1 of a recorded study are at SGLang's defaults."""
    folder = write_table(tmp_path / "made")
    record = measured(Setting(), number=99)
    (folder / "trials" / "0099-search.json").write_text(record.model_dump_json(), encoding="utf-8")
    write_requests(tmp_path, record, np.ones((SESSIONS, TURNS)))
    (tmp_path / "trials/0099-search/requests.parquet").rename(folder / "requests/0099-search.parquet")
    table = Table.read(folder)
    assert len(table.truth_s) == SETTINGS
    assert Setting().key in table.runs


def test_a_measurement_is_as_noisy_as_the_recording(table: Table) -> None:
    """The P99 of resampled sessions scatters around the recorded one, and both recorded runs are drawn."""
    setting = settings()[0]
    random = np.random.default_rng(1)
    drawn = [table.measure(setting, random, number=n) for n in range(200)]
    p99s = np.array([record.p99_s for record in drawn])
    assert np.median(p99s) == pytest.approx(table.truth_s[setting.key], rel=0.05)
    assert 0.005 < np.std(p99s) / np.mean(p99s) < 0.1
    assert {record.seed for record in drawn} == {1, 2}


def test_the_truth_is_that_of_all_recorded_requests(table: Table) -> None:
    """It follows the model that made the table."""
    model = {setting.key: true_p99_s(setting) for setting in settings()}
    assert table.truth_s == pytest.approx(model, rel=0.1)


def test_a_redrawn_table_has_another_truth(table: Table) -> None:
    """Near the recorded one, of the same settings, and the same for the same draw."""
    drawn = [table.redrawn(np.random.default_rng(seed)).truth_s for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[2] == pytest.approx(table.truth_s, rel=0.2)


def test_a_search_of_all_settings_ends_near_the_best(table: Table) -> None:
    """With as many trials as there are settings only the noise is left."""
    best_s = min(table.truth_s.values())
    found = [search(table, Rival("grid", "grid"), seed, SETTINGS) for seed in range(5)]
    assert all(key is not None and table.truth_s[key] < 1.1 * best_s for key in found)


def test_what_is_expected_of_the_load_helps(table: Table) -> None:
    """A quarter of the trials is enough for ours where the prior is right, as in this table; random ones end behind."""
    assert trials_of(table) == 5
    random, ours = races(table, [Rival("random", "random"), rivals_of(table, [])[-1]], seeds=10)
    assert ours.median < 0.05
    assert ours.mean < random.mean


def test_figures_of_a_result() -> None:
    """Median, mean, P90 and the share within a limit."""
    result = Result("tpe", np.array([0.0, 0.02, 0.04, 0.1, 0.24]), np.zeros(5))
    assert (result.median, result.share_within(0.05)) == (0.04, 0.6)
    assert result.mean == pytest.approx(0.08)
    assert result.p90 == pytest.approx(0.184)


def test_equal_settings_are_seldom_called_better(table: Table) -> None:
    """A few draws, each with the real verdict."""
    assert equal_settings([table], draws=6).false_improvements <= 1


def test_the_interval_of_a_rate() -> None:
    """Wilson's, which is never empty."""
    low, high = EqualSettings(200, 0).bounds
    assert (low, high) == pytest.approx((0.0, 0.0188), abs=1e-3)
    low, high = EqualSettings(200, 10).bounds
    assert (low, high) == pytest.approx((0.027, 0.090), abs=1e-3)


def test_the_page_keeps_its_words(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what stands between the marks is replaced."""
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n", encoding="utf-8")
    monkeypatch.setattr("tests.bench.search.page.PAGE", page)
    raced = Raced(
        table, (Result("tpe", np.array([0.1]), np.array([0.2])), Result("auto", np.array([0.02]), np.array([0.03])))
    )
    findings = Findings("optuna 5", 1, [raced], EqualSettings(200, 4), ["Left out: one."])
    write_page(findings)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"Before.\n{BEGIN}\n")
    assert text.endswith(f"{END}\nAfter.\n")
    assert "old" not in text
    assert "| auto | 2.0% | 2.0% | 2.0% | 100% | 3.0% | 3.0% |" in text
    assert "| 200 | 4 | 2.0% | 0.8% - 5.0% |" in text
    assert len(list(lines(findings))) == 2
