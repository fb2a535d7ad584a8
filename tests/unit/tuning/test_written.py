"""Settings as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tests.support.study_data import StudyMaker
from tuning.space import TRANSFERS, WRITE_POLICIES
from tuning.study import BASELINES
from tuning.written import read_setting

OFF, ON = BASELINES
DIRECT = Setting(hicache=True, hicache_size=20, hicache_io_backend="direct", hicache_mem_layout="layer_first")
NOWHERE = Path("results")
LARGE = Setting(hicache=True, hicache_ratio=4.0, hicache_write_policy="write_back", page_size=32).canonical()


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("off", OFF),
        ("baseline", OFF),
        ("default", OFF),
        ("HiCache off", OFF),
        ("hicache", ON),
        ("on", ON),
        ("hicache,ratio=4,write_back,page=32", LARGE),
        ("ratio=4, policy=write_back, page_size=32", LARGE),
        ("HiCache ratio 4, write_back, kernel/page_first, page 32", LARGE),
        ("off,fraction=0.88", Setting(mem_fraction_static=0.88)),
        ("HiCache 20 GB", Setting(hicache=True, hicache_size=20)),
        ("size=20,direct/layer_first", DIRECT),
        ("off,schedule-policy=lpm", Setting(extra={"schedule-policy": "lpm"})),
        ("off,--max-running-requests=64", Setting(extra={"max-running-requests": 64})),
        ("off,enable-mixed-chunk=on", Setting(extra={"enable-mixed-chunk": True})),
    ],
)
def test_a_setting_is_read_as_people_write_it(text: str, setting: Setting) -> None:
    """Short words, the words of a report, and engine flags give the canonical setting."""
    assert read_setting(text, NOWHERE) == setting.canonical()


pools = st.one_of(
    st.fixed_dictionaries({"hicache_ratio": st.sampled_from([1.5, 2.0, 4.0, 6.0])}),
    st.fixed_dictionaries({"hicache_size": st.integers(1, 900)}),
)
common = st.fixed_dictionaries(
    {},
    optional={
        "mem_fraction_static": st.integers(50, 95).map(lambda percent: percent / 100),
        "page_size": st.sampled_from([1, 16, 32, 64]),
        "extra": st.dictionaries(
            st.sampled_from(["schedule-policy", "chunked-prefill-size", "enable-mixed-chunk"]),
            st.one_of(st.booleans(), st.integers(1, 9999), st.sampled_from(["lpm", "fcfs"])),
        ),
    },
)


@given(pools, st.sampled_from(WRITE_POLICIES), st.sampled_from(TRANSFERS), common)
def test_the_label_of_a_setting_is_read_back(
    pool: dict[str, float], policy: str, transfer: str, others: dict[str, object]
) -> None:
    """What a report shows can be pasted."""
    io_backend, layout = transfer.split("/")
    copied = {"hicache_write_policy": policy, "hicache_io_backend": io_backend, "hicache_mem_layout": layout}
    setting = Setting.parse({"hicache": True, **pool, **copied, **others}, where="test").canonical()
    assert read_setting(setting.label, NOWHERE) == setting


@given(common)
def test_the_label_of_a_setting_without_hicache_is_read_back(others: dict[str, object]) -> None:
    """It has no words of a host pool."""
    setting = Setting.parse(others, where="test").canonical()
    assert read_setting(setting.label, NOWHERE) == setting


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "setting ``: a word is missing; write it as `off`, `hicache,ratio=4,write_through,page=32` or `my-study:7`",
        ),
        ("offf", "setting `offf`: unknown word `offf`; did you mean `off`?"),
        ("hicache,write_trough", "unknown word `write_trough`; did you mean `write_through`?"),
        ("off,ratio=4", "setting `off,ratio=4`: without HiCache there is no hicache_ratio; leave `off` or the rest"),
        ("ratio=4,ratio=6", "setting `ratio=4,ratio=6`: hicache_ratio is given twice; keep one"),
        ("ratio", "setting `ratio`: unknown word `ratio`; did you mean `ratio=`?"),
        ("ratio=4,size=9", "setting `ratio=4,size=9`: hicache_size and hicache_ratio are both set"),
        ("ratio=x", "setting `ratio=x`: `hicache_ratio`: input should be a valid number"),
        ("fraction=1.5", "setting `fraction=1.5`: `mem_fraction_static`: input should be less than 1"),
        ("hicache,transfer=kernel", "transfer is IO_BACKEND/MEM_LAYOUT, such as kernel/page_first"),
        ("none:7", "there is no study in results/none"),
    ],
)
def test_what_is_no_setting_is_refused_in_one_sentence(text: str, said: str) -> None:
    """It names the words at fault and what to write."""
    with pytest.raises(ConfigError) as refused:
        read_setting(text, NOWHERE)
    assert said in str(refused.value)


def test_a_trial_of_a_study_lends_its_setting(tmp_path: Path) -> None:
    """By the number of the trial, as the report shows it; another number is answered by those that there are."""
    study = StudyMaker(tmp_path / "mine")
    study.measured(OFF, ttft_s=1.0)
    study.measured(LARGE, ttft_s=0.5)
    study.made()
    assert read_setting("mine:1", tmp_path) == LARGE
    with pytest.raises(ConfigError, match=r"mine has no trial 7; it has 0, 1"):
        read_setting("mine:7", tmp_path)
