"""study.json: what makes two searches the same study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.errors import StoreError
from scenarios.errors import ConfigError
from tests.support.recordings import case_folder, expected
from tests.support.study_data import study_file
from tuning.config import STUDY_FILE, Effort, StudyFile, open_study, read_study
from tuning.space import Dimension, Ranges, Space


def searching(space: Space | None = None, **changes: Any) -> StudyFile:
    """Describe a study with this space and other changes to what is searched."""
    file = study_file()
    update = changes | ({"space": space} if space else {})
    return file.model_copy(update={"search": file.search.model_copy(update=update)})


def refused(root: Path, wanted: StudyFile) -> str:
    """Return why a resume with `wanted` is refused."""
    with pytest.raises(ConfigError) as refusal:
        open_study(root, wanted, resume=True)
    return str(refusal.value)


def test_a_new_study_is_written_and_read_back(tmp_path: Path) -> None:
    """The folder is made, and the file says all that was asked for."""
    root = tmp_path / "results" / "demo"
    open_study(root, study_file(), resume=False)
    assert read_study(root) == study_file()


def test_an_equal_study_is_resumed(tmp_path: Path) -> None:
    """The same search under the same conditions goes on, and the file stays as it was."""
    open_study(tmp_path, study_file(), resume=False)
    before = (tmp_path / STUDY_FILE).read_bytes()
    open_study(tmp_path, study_file(), resume=True)
    assert (tmp_path / STUDY_FILE).read_bytes() == before


def test_a_study_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """Without --resume the message names both ways out."""
    open_study(tmp_path, study_file(), resume=False)
    with pytest.raises(
        ConfigError, match=r"the study demo exists in .*; give --resume to go on or another --study name"
    ):
        open_study(tmp_path, study_file(), resume=False)


def test_a_resume_without_a_study_is_refused(tmp_path: Path) -> None:
    """Nothing is made in its place."""
    with pytest.raises(ConfigError, match="--resume: there is no study in"):
        open_study(tmp_path / "none", study_file(), resume=True)
    assert not (tmp_path / "none").exists()


def test_case_53_other_choices_are_refused_before_anything_is_launched(tmp_path: Path) -> None:
    """Optuna would die of it in the middle of the night; the message names dimension and both lists (case 53)."""
    spaces = {}
    for name in ("old", "new"):
        content = json.loads((case_folder(53) / f"{name}.json").read_text())
        layouts = Dimension(name="hicache_mem_layout", choices=content["hicache_mem_layout"], needs_hicache=True)
        low, high = content["mem_fraction_static"]
        fractions = Dimension(name="mem_fraction_static", low=low, high=high, step=0.01)
        spaces[name] = layouts, fractions
    open_study(tmp_path, searching(Space(dimensions=spaces["old"])), resume=False)
    said = refused(tmp_path, searching(Space(dimensions=spaces["new"])))
    assert "hicache_mem_layout: was layer_first,page_first, is layer_first,page_first,page_first_direct" in said
    assert "mem_fraction_static" not in said
    assert "choose another --study name" in said
    assert expected(53)["at_start"].startswith("refuse before any server launch")


def test_case_53_other_ends_of_a_range_are_allowed_and_recorded(tmp_path: Path) -> None:
    """0.95 may become 0.97; the file keeps what was searched before (case 53)."""
    old, new, newer = (
        searching(Ranges(mem_fraction_static=f"0.70:{high}:0.01").space()) for high in ("0.95", "0.97", "0.96")
    )
    open_study(tmp_path, old, resume=False)
    open_study(tmp_path, new, resume=True)
    open_study(tmp_path, newer, resume=True)
    found = read_study(tmp_path)
    assert found.search == newer.search
    assert found.earlier_spaces == (old.search.space, new.search.space)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"hicache_ratio": "2:4:1"}, {"hicache_ratio": "2:4:0.5"}, "hicache_ratio: was 2:4:1, is 2:4:0.5"),
        ({"page_size": "16,32"}, {"page_size": "16:32:16"}, "page_size: was 16,32, is 16:32:16"),
        ({"page_size": "16"}, {}, "page_size: was 16, is not searched"),
        ({}, {"page_size": "16"}, "page_size: was not searched, is 16"),
        ({"hicache": "off,on"}, {"hicache": "on"}, "hicache: was off,on, is on"),
    ],
)
def test_a_range_does_not_become_another_kind(
    tmp_path: Path, old: dict[str, str], new: dict[str, str], said: str
) -> None:
    """Whole numbers, other numbers and lists are different to Optuna, and so is a dimension that comes or goes."""
    open_study(tmp_path, searching(Ranges(**old).space()), resume=False)
    assert said in refused(tmp_path, searching(Ranges(**new).space()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other"}, "model: was tiny, is other"),
        ({"seed": 2}, "seed: was 1, is 2"),
        ({"constraints": ("errors <= 2%",)}, "constraints: was ('errors <= 1%', 'headroom.host >= 1GiB'), is ('errors"),
        ({"load_limit_s": 60.0}, "load_limit_s: was 600.0, is 60.0"),
        ({"scenario": study_file().search.scenario.scaled(concurrency=3)}, "scenario: its content has changed"),
    ],
)
def test_another_search_is_another_study(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """Measurements under different conditions are never pooled (design rule 11)."""
    open_study(tmp_path, study_file(), resume=False)
    assert said in refused(tmp_path, searching(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"sglang_version": "0.5.23"}, "sglang_version was 0.5.15, is 0.5.23"), ({"cores": 64}, "cores was 2, is 64")],
)
def test_another_machine_or_engine_is_another_study(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """The environment counts as the flags do."""
    open_study(tmp_path, study_file(), resume=False)
    assert said in refused(tmp_path, study_file(**changes))


@pytest.mark.parametrize("text", ["{", "{}", "[]", '"text"', "\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """The message says which file, and never what Python thought."""
    (tmp_path / STUDY_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=rf"{STUDY_FILE}: not readable"):
        read_study(tmp_path)


def test_a_newer_file_asks_for_an_upgrade(tmp_path: Path) -> None:
    """A version that is not known is not guessed at."""
    (tmp_path / STUDY_FILE).write_text('{"schema_version": 99}', encoding="utf-8")
    with pytest.raises(StoreError, match="written by a newer hicache-tune"):
        read_study(tmp_path)


def test_a_misspelled_key_is_named(tmp_path: Path) -> None:
    """study.json is as strict as every other file."""
    content = json.loads(study_file().model_dump_json())
    content["search"]["modle"] = content["search"].pop("model")
    (tmp_path / STUDY_FILE).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unknown key `search\.modle`; did you mean `model`\?"):
        read_study(tmp_path)


def test_a_whole_confirmation_is_the_top_and_both_baselines_in_each_round() -> None:
    """Three settings and two baselines, twice."""
    effort = Effort(trials=20, confirm_top=3, confirm_rounds=2, ready_timeout_s=600)
    assert effort.confirm_trials(2) == 10


@pytest.mark.parametrize("changes", [{"trials": 1}, {"confirm_top": -1}, {"budget_s": 0.0}, {"ready_timeout_s": 0.0}])
def test_an_effort_that_makes_no_sense_is_refused(changes: dict[str, float]) -> None:
    """Fewer trials than baselines, or no time, is no search."""
    values: dict[str, Any] = {"trials": 20, "confirm_top": 3, "confirm_rounds": 2, "ready_timeout_s": 600}
    with pytest.raises(ValidationError):
        Effort(**(values | changes))


def test_a_study_of_before_there_was_a_choice_of_objectives_is_resumed(tmp_path: Path) -> None:
    """Its file names none, and the default adds none to new ones."""
    open_study(tmp_path, study_file(), resume=False)
    text = (tmp_path / STUDY_FILE).read_text(encoding="utf-8")
    assert {"objective", "pareto"}.isdisjoint(json.loads(text)["search"])
    assert read_study(tmp_path).search.objective == "ttft.p99"
    open_study(tmp_path, study_file(), resume=True)


def test_another_objective_is_another_study(tmp_path: Path) -> None:
    """Optuna was told the values of the old one."""
    open_study(tmp_path, searching(objective="e2e.p90"), resume=False)
    assert "objective: was e2e.p90, is tpot.p95" in refused(tmp_path, searching(objective="tpot.p95"))
    assert "pareto: was (), is ('host_memory',)" in refused(
        tmp_path, searching(objective="e2e.p90", pareto=("host_memory",))
    )
