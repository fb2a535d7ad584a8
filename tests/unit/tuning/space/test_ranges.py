"""What the user may say of the search space on the command line."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tests.support.spaces import propose
from tuning.space import TRANSFERS, WITH_HICACHE, Dimension, Ranges


def only(**flags: str) -> Dimension:
    """Return the dimension of the one flag that is given."""
    return Ranges(**flags).space().dimensions[1]


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("0.7:0.9:0.05", FloatDistribution(0.7, 0.9, step=0.05)),
        ("0.7:0.9", FloatDistribution(0.7, 0.9, step=0.01)),
        ("0.7:0.95:0.1", FloatDistribution(0.7, 0.9, step=0.1)),
        ("0.8:0.8", FloatDistribution(0.8, 0.8, step=0.01)),
        ("0.7,0.9", CategoricalDistribution((0.7, 0.9))),
        ("0.7,0.9,0.7", CategoricalDistribution((0.7, 0.9))),
        (" 0.7 , 0.9 ", CategoricalDistribution((0.7, 0.9))),
        ("0.85", CategoricalDistribution((0.85,))),
        ("default, 0.85", CategoricalDistribution(("default", 0.85))),
        ("0.1:0.9:log", FloatDistribution(0.1, 0.9, log=True)),
    ],
)
def test_numbers_are_a_range_a_list_or_one_value(
    text: str, distribution: FloatDistribution | CategoricalDistribution
) -> None:
    """Each way of writing gives Optuna the values that it says, on the grid of the step."""
    trial = optuna.create_study().ask()
    only(mem_fraction_static=text).suggest(trial)
    assert trial.distributions == {"mem_fraction_static": distribution}


@pytest.mark.parametrize(
    ("flag", "text", "distribution"),
    [
        ("page_size", "16:64:16", IntDistribution(16, 64, step=16)),
        ("hicache_size", "10:13", IntDistribution(10, 13)),
        ("hicache_size", "10:13.5", IntDistribution(10, 13)),
        ("hicache_ratio", "2:4:1", IntDistribution(2, 4)),
        ("hicache_ratio", "2:4", FloatDistribution(2, 4, step=0.5)),
        ("page_size", "1,16,64", CategoricalDistribution((1, 16, 64))),
        ("hicache_size", "8:512:log", IntDistribution(8, 512, log=True)),
        ("hicache_ratio", "1.5,2", CategoricalDistribution((1.5, 2))),
    ],
)
def test_whole_numbers_stay_whole(
    flag: str, text: str, distribution: FloatDistribution | IntDistribution | CategoricalDistribution
) -> None:
    """A grid of whole numbers is asked for as integers, any other as floats."""
    trial = optuna.create_study().ask()
    only(**{flag: text}).suggest(trial)
    assert trial.distributions == {flag: distribution}


@given(
    low=st.integers(50, 90), span=st.integers(0, 9), step=st.sampled_from([0.01, 0.02, 0.03, 0.05]), seed=st.integers(0)
)
def test_every_value_of_a_range_lies_in_it_and_on_its_grid(low: int, span: int, step: float, seed: int) -> None:
    """No rounding error leaves the range, and Optuna has nothing to mend or to warn about."""
    dimension = only(mem_fraction_static=f"{low / 100}:{(low + span) / 100}:{step}")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed % 2**32))
    value = dimension.suggest(study.ask())
    assert isinstance(value, float)
    assert low / 100 <= value <= (low + span) / 100
    steps = (value - low / 100) / step
    assert steps == pytest.approx(round(steps), abs=1e-6)


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("mem_fraction_static", "high", "--mem-fraction-static high: not a number; give LOW:HIGH[:STEP]"),
        ("mem_fraction_static", "0.7,0.8:0.9", "--mem-fraction-static 0.7,0.8:0.9: not a number"),
        ("mem_fraction_static", "0.7:nan", "--mem-fraction-static 0.7:nan: not a number"),
        ("hicache_size", "0:9:log", "--hicache-size 0:9:log: 0:9:log: a logarithmic scale begins above 0"),
        ("hicache_size", "9:log", "--hicache-size 9:log: not a number; give LOW:HIGH[:STEP]"),
        ("page_size", "16,defualt", "--page-size 16,defualt: not a number"),
        ("hicache_ratio", "1:inf", "--hicache-ratio 1:inf: not a number"),
        ("mem_fraction_static", "0.7:0.8:0.01:1", "--mem-fraction-static 0.7:0.8:0.01:1: give LOW:HIGH, LOW:HIGH:"),
        ("mem_fraction_static", "0.9:0.8", "--mem-fraction-static 0.9:0.8: 0.9:0.8:0.01 is empty; give LOW <= HIGH"),
        ("hicache_ratio", "1:4:0", "--hicache-ratio 1:4:0: 1:4:0 is empty; give LOW <= HIGH and STEP > 0"),
        (
            "mem_fraction_static",
            "0.7:1.2",
            "--mem-fraction-static 0.7:1.2: `mem_fraction_static`: input should be less",
        ),
        ("page_size", "0,16", "--page-size 0,16: `page_size`: input should be greater than 0"),
        ("page_size", "1.5", "--page-size 1.5: `page_size`: input should be a valid integer"),
        ("page_size", "16:64:0.5", "--page-size 16:64:0.5: `page_size`: input should be a valid integer"),
        ("hicache", "maybe", "--hicache: unknown value `maybe`; valid: off, on"),
        ("hicache", "of", "--hicache: unknown value `of`; did you mean `off`?"),
        (
            "hicache_write_policy",
            "writeback",
            "--hicache-write-policy: unknown value `writeback`; did you mean `write_b",
        ),
        (
            "transfer",
            "kernal/page_first",
            "--transfer: unknown value `kernal/page_first`; did you mean `kernel/page_fi",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_runs(flag: str, text: str, said: str) -> None:
    """The message begins with the flag, and names the nearest valid word or what to write."""
    with pytest.raises(ConfigError) as refusal:
        Ranges(**{flag: text}).space()
    assert str(refusal.value).startswith(said)


def test_a_ratio_beside_a_size_is_refused() -> None:
    """SGLang would ignore the ratio."""
    with pytest.raises(ConfigError, match="--hicache-ratio and --hicache-size are both given"):
        Ranges(hicache_ratio="2", hicache_size="10").space()


def test_pairs_that_sglang_rewrites_are_searched_once() -> None:
    """kernel/page_first_direct and direct/page_first become direct/page_first_direct, and are named so."""
    text = "kernel/page_first,kernel/page_first_direct,direct/page_first,direct/page_first_direct"
    assert only(transfer=text).choices == ("kernel/page_first", "direct/page_first_direct")
    assert only(transfer=",".join(TRANSFERS)).choices == TRANSFERS


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"hicache": "off,on"}, "off,on"),
        ({"hicache": "on,on"}, "on"),
        ({"mem_fraction_static": "0.7:0.95:0.1"}, "0.7:0.9:0.1"),
        ({"page_size": "1,16"}, "1,16"),
        ({"page_size": "default,16"}, "default,16"),
        ({"hicache_size": "8:512:log"}, "8:512:log"),
    ],
)
def test_values_are_shown_as_the_user_would_write_them(flags: dict[str, str], text: str) -> None:
    """What is shown can be given back as the flag."""
    assert Ranges(**flags).space().dimensions[-1].values_text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schedule-policy=fcfs,lpm", Dimension(name="schedule-policy", choices=("fcfs", "lpm"))),
        ("--schedule-policy=fcfs, lpm", Dimension(name="schedule-policy", choices=("fcfs", "lpm"))),
        ("enable-mixed-chunk=off,on", Dimension(name="enable-mixed-chunk", choices=(False, True))),
        ("enable-mixed-chunk=on", Dimension(name="enable-mixed-chunk", choices=(True,))),
        ("chunked-prefill-size=default,8192", Dimension(name="chunked-prefill-size", choices=("default", 8192))),
        ("chunked-prefill-size=2048,8192", Dimension(name="chunked-prefill-size", choices=(2048, 8192))),
        ("max-running-requests=16:64:log", Dimension(name="max-running-requests", low=16, high=64, log=True)),
        ("max-running-requests=16:64:16", Dimension(name="max-running-requests", low=16, high=64, step=16)),
        (
            "schedule-conservativeness=0.5:1.5:0.25",
            Dimension(name="schedule-conservativeness", low=0.5, high=1.5, step=0.25),
        ),
        (
            "hicache-storage-prefetch-policy=best_effort,timeout",
            Dimension(name="hicache-storage-prefetch-policy", choices=("best_effort", "timeout"), when=(WITH_HICACHE,)),
        ),
    ],
)
def test_further_flags_are_searched(text: str, expected: Dimension) -> None:
    """Any engine flag can be searched: names, switches, numbers and ranges; those of HiCache only with it."""
    dimensions = Ranges().space([text]).dimensions
    assert dimensions[-1] == expected
    assert expected.name not in Setting.model_fields


def test_a_further_flag_reaches_the_command() -> None:
    """What is proposed stands on the command line; a switch that is off does not."""
    space = Ranges(hicache="off").space(["schedule-policy=fcfs,lpm", "enable-mixed-chunk=off,on"])
    values = {"hicache": False, "schedule-policy": "lpm", "enable-mixed-chunk": True}
    assert list(propose(space, **values).flags()) == ["--enable-mixed-chunk", "--schedule-policy", "lpm"]
    assert list(propose(space, **{**values, "enable-mixed-chunk": False}).flags()) == ["--schedule-policy", "lpm"]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["schedule-policy"], "give NAME=VALUES, such as schedule-policy=fcfs,lpm"),
        (["=lpm"], "give NAME=VALUES"),
        (["schedule-policy="], "give NAME=VALUES"),
        (["page-size=16,32"], "--page-size is a flag of its own here; give --page-size 16,32"),
        (["enable-hierarchical-cache=off,on"], "--hicache is a flag of its own here; give --hicache off,on"),
        (["hicache-io-backend=direct"], "are searched as a pair; give --transfer IO_BACKEND/MEM_LAYOUT"),
        (["schedule-policy=fcfs", "schedule-policy=lpm"], "--search schedule-policy: it is given twice"),
        (["max-running-requests=64:16"], "LOW <= HIGH"),
        (["max-running-requests=1:2:3:4"], "give LOW:HIGH, LOW:HIGH:STEP or LOW:HIGH:log"),
    ],
)
def test_further_flags_that_are_wrong(texts: list[str], said: str) -> None:
    """What is no flag and values, or has a flag of its own here, is refused with what to give."""
    with pytest.raises(ConfigError) as refused:
        Ranges().space(texts)
    assert said in str(refused.value)
