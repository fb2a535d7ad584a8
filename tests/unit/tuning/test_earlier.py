"""What a new study takes from earlier ones: settings to begin with, and trials where all conditions are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.engine.setting import Setting
from harness.errors import HicacheTuneError
from harness.store import TRIAL_FILE, TrialRecord, read_trials, write_trial
from scenarios.catalogue import load_scenario
from scenarios.errors import ConfigError
from tests.support.recordings import expected
from tests.support.study_data import study_file
from tests.support.trials import failed, invalid, measured
from tuning.config import STUDY_FILE, StudyFile
from tuning.earlier import MOST, check_import, import_trials, warm_start
from tuning.objective import Objective
from tuning.space import Ranges
from tuning.study import BASELINES

OBJECTIVE = Objective((), worst_s=600.0)
SPACE = Ranges(hicache_ratio="2,3,4,5,6", page_size="16,32").space()


def ratio(value: float, page: int = 16) -> Setting:
    """Make a setting of the space."""
    return Setting(hicache=True, hicache_ratio=value, page_size=page).canonical()


def file(name: str = "new", *, search: dict[str, Any] | None = None, **environment: Any) -> StudyFile:
    """Describe a study; `search` and `environment` change what it is of."""
    found = study_file(**environment)
    return found.model_copy(
        update={"name": name, "search": found.search.model_copy(update={"space": SPACE, **(search or {})})}
    )


def write_study(results: Path, study: StudyFile, records: list[TrialRecord]) -> Path:
    """Put a study on disk, its trials numbered as they come."""
    root = results / study.name
    root.mkdir(parents=True)
    (root / STUDY_FILE).write_text(study.model_dump_json(), encoding="utf-8")
    for number, record in enumerate(records):
        folder = root / "trials" / f"{number:04d}-{record.purpose}"
        folder.mkdir(parents=True)
        (folder / "engine.log").write_text("ready", encoding="utf-8")
        write_trial(record.model_copy(update={"number": number}), folder)
    return root


def warm(results: Path, wanted: StudyFile | None = None) -> list[str]:
    """Return the labels of what a new study begins with."""
    found = warm_start(results, wanted or file(), OBJECTIVE, Setting.canonical)
    return [each.point.setting.label for each in found]


def test_the_best_settings_of_an_earlier_study_come_first(tmp_path: Path) -> None:
    """Its best three that are feasible, in its own order; confirmations and other spaces do not count."""
    records = [
        measured(BASELINES[0], 9.0),
        measured(ratio(2), 0.4),
        measured(ratio(3), 0.2),
        failed(ratio(4)),
        measured(ratio(5), 0.3),
        measured(ratio(6), 0.5),
        measured(ratio(6, 32), 0.1, purpose="confirm"),
    ]
    write_study(tmp_path, file("old"), records)
    assert warm(tmp_path) == [ratio(value).label for value in (3, 5, 2)]
    narrow = file(search={"space": Ranges(hicache_ratio="2,3", page_size="16").space()})
    assert warm(tmp_path, narrow) == [ratio(3).label, ratio(2).label]


def test_several_studies_take_turns(tmp_path: Path) -> None:
    """What was measured at other times is not compared: each gives its best before any gives its second best."""
    write_study(tmp_path, file("a"), [measured(ratio(2), 0.1), measured(ratio(3), 0.2), measured(ratio(4), 0.3)])
    write_study(tmp_path, file("b"), [measured(ratio(5), 7.0), measured(ratio(2), 8.0), measured(ratio(6), 9.0)])
    found = warm(tmp_path)
    assert len(found) == len(set(found)) == MOST
    assert {ratio(2).label, ratio(5).label} == set(found[:2])


@pytest.mark.parametrize(
    "wanted",
    [
        file(search={"scenario": load_scenario("cpu-smoke")}),
        file(gpus=("NVIDIA H200",)),
        file(model="another"),
        file(sglang_version="0.5.23"),
        file("old"),
    ],
)
def test_nothing_comes_from_other_conditions(tmp_path: Path, wanted: StudyFile) -> None:
    """Another scenario, GPU, model or engine; nor from the study itself."""
    write_study(tmp_path, file("old"), [measured(ratio(2), 0.1)])
    assert warm(tmp_path) == [ratio(2).label]
    assert warm(tmp_path, wanted) == []


@pytest.mark.parametrize("damaged", [STUDY_FILE, f"trials/0000-search/{TRIAL_FILE}"])
def test_a_study_that_cannot_be_read_gives_nothing(tmp_path: Path, damaged: str) -> None:
    """It is no reason not to search."""
    root = write_study(tmp_path, file("old"), [measured(ratio(2), 0.1)])
    (root / damaged).write_text("{", encoding="utf-8")
    assert warm(tmp_path) == []


def test_case_53_matching_trials_are_imported_into_a_study_over_other_choices(tmp_path: Path) -> None:
    """Baselines and settings of the new space, each as it was measured, under the numbers that are free (case 53)."""
    records = [
        measured(BASELINES[0], 2.0),
        measured(BASELINES[1], 1.0),
        measured(ratio(2), 0.4),
        measured(ratio(9), 0.3),
        invalid(ratio(3)),
        failed(ratio(4)),
        measured(ratio(2), 0.5, purpose="confirm", seed=1001),
    ]
    source, root = write_study(tmp_path, file("old"), records), tmp_path / "new"
    wanted = file(search={"space": Ranges(hicache_ratio="2,3,4", page_size="16").space(), "constraints": ()})
    check_import(source, wanted)
    points = import_trials(source, root, wanted.search, Setting.canonical)
    assert [point.setting for point in points] == [ratio(2), ratio(4)]
    found = read_trials(root)
    assert [record.setting for record in found] == [*BASELINES, ratio(2), ratio(4)]
    assert [record.number for record in found] == [0, 1, 2, 3]
    assert found[2] == records[2].model_copy(update={"number": 2})
    assert (root / "trials/0002-search/engine.log").read_text() == "ready"
    assert "optional import of matching trials" in expected(53)["offer"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (file(search={"seed": 2}), "seed: was 1, is 2"),
        (file(search={"scenario": load_scenario("cpu-smoke")}), "scenario: its content has changed"),
        (file(search={"engine_args": ("--page-size=64",)}), "engine_args: was"),
        (file(sglang_version="0.5.23"), "sglang_version was 0.5.15, is 0.5.23"),
        (file(processor="another"), "processor was A processor @ 2.0 GHz, is another"),
    ],
)
def test_case_53_an_import_under_other_conditions_names_the_difference(
    tmp_path: Path, wanted: StudyFile, said: str
) -> None:
    """Measurements that differ are never pooled (design rule 11)."""
    source = write_study(tmp_path, file("old"), [measured(ratio(2), 0.4)])
    with pytest.raises(ConfigError, match="--import old: its trials were measured under other conditions: ") as refused:
        check_import(source, wanted)
    assert said in str(refused.value)


def test_an_import_of_no_study_is_refused(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(HicacheTuneError, match=r"there is no study in .*none"):
        check_import(tmp_path / "none", file())
