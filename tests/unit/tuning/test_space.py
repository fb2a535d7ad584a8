"""What the user may say of the search space, and the settings that come out of it."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tuning.space import TRANSFERS, WITH_HICACHE, Dimension, Ranges, Space, one_setting, preset_space, setting_of
from tuning.space import only as space_of

DEFAULTS = [preset_space("local"), preset_space("cpu")]


def only(**flags: str) -> Dimension:
    """Return the dimension of the one flag that is given."""
    return Ranges(**flags).space().dimensions[1]


def propose(space: Space, **values: Any) -> Setting:
    """Let Optuna answer with these values."""
    study = optuna.create_study()
    study.enqueue_trial(values)
    setting = space.propose(study.ask())
    assert study.trials[0].params == values, "it was asked for something else, or for more"
    return setting


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


@pytest.mark.parametrize("space", DEFAULTS)
def test_flags_of_hicache_are_asked_for_only_when_it_is_on(space: Space) -> None:
    """Without HiCache its flags do not exist, so Optuna must not model them there."""
    off: dict[str, Any] = {"hicache": False, "mem_fraction_static": 0.88, "page_size": 16}
    assert propose(space, **off) == Setting(mem_fraction_static=0.88, page_size=16)
    on = off | {"hicache": True, "hicache_ratio": 3.0, "hicache_write_policy": "write_back"}
    setting = propose(space, **on, transfer="direct/layer_first")
    assert (setting.hicache_ratio, setting.hicache_write_policy) == (3.0, "write_back")
    assert (setting.hicache_io_backend, setting.hicache_mem_layout) == ("direct", "layer_first")


def test_proposals_that_give_the_same_server_are_one_setting() -> None:
    """Defaults spelled out, integers for floats and pairs that SGLang rewrites have one key."""
    plain = setting_of({"hicache": True})
    spelled = setting_of({"hicache": True, "hicache_ratio": 2, "transfer": "kernel/page_first"})
    assert plain.key == spelled.key
    rewritten, written = (
        setting_of({"hicache": True, "transfer": f"{io}/page_first_direct"}) for io in ("kernel", "direct")
    )
    assert rewritten.key == written.key != plain.key
    assert setting_of({"hicache": False, "hicache_ratio": 4.0}).key == setting_of({"hicache": False}).key


def test_pairs_that_sglang_rewrites_are_searched_once() -> None:
    """kernel/page_first_direct and direct/page_first become direct/page_first_direct, and are named so."""
    text = "kernel/page_first,kernel/page_first_direct,direct/page_first,direct/page_first_direct"
    assert only(transfer=text).choices == ("kernel/page_first", "direct/page_first_direct")
    assert only(transfer=",".join(TRANSFERS)).choices == TRANSFERS


def test_names_that_are_no_field_of_a_setting_are_further_engine_flags() -> None:
    """A dimension of any other name reaches the launch command as that flag."""
    assert list(setting_of({"hicache": False, "chunked-prefill-size": 4096}).flags()) == [
        "--chunked-prefill-size",
        "4096",
    ]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"hicache": "off,on"}, "off,on"),
        ({"hicache": "on,on"}, "on"),
        ({"mem_fraction_static": "0.7:0.95:0.1"}, "0.7:0.9:0.1"),
        ({"page_size": "1,16"}, "1,16"),
    ],
)
def test_values_are_shown_as_the_user_would_write_them(flags: dict[str, str], text: str) -> None:
    """What is shown can be given back as the flag."""
    assert Ranges(**flags).space().dimensions[-1].values_text == text


def test_a_space_survives_its_file() -> None:
    """study.json gives back the same space, integers as integers and switches as switches."""
    for space in DEFAULTS:
        again = Space.model_validate_json(space.model_dump_json())
        assert again == space
        assert [list(map(type, d.choices)) for d in again.dimensions] == [
            list(map(type, d.choices)) for d in space.dimensions
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schedule-policy=fcfs,lpm", Dimension(name="schedule-policy", choices=("fcfs", "lpm"))),
        ("--schedule-policy=fcfs, lpm", Dimension(name="schedule-policy", choices=("fcfs", "lpm"))),
        ("enable-mixed-chunk=off,on", Dimension(name="enable-mixed-chunk", choices=(False, True))),
        ("enable-mixed-chunk=on", Dimension(name="enable-mixed-chunk", choices=(True,))),
        ("chunked-prefill-size=2048,8192", Dimension(name="chunked-prefill-size", choices=(2048, 8192))),
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


@pytest.mark.parametrize(
    ("dimension", "ends"),
    [
        (Dimension(name="a", choices=("x", "y")), ("x", "y")),
        (Dimension(name="a", low=1, high=9, step=2), (1, 9)),
        (Dimension(name="a", low=0.5, high=1.5, step=0.5), (0.5, 1.5)),
    ],
)
def test_the_ends_of_a_dimension(dimension: Dimension, ends: tuple[Any, ...]) -> None:
    """Every choice, or both ends of a range, whole where the range is."""
    assert dimension.ends == ends
    assert [type(end) for end in dimension.ends] == [type(end) for end in ends]


@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(hicache=True, hicache_ratio=3.0, page_size=64, mem_fraction_static=0.88).canonical(),
        Setting(
            hicache=True, hicache_size=60, hicache_io_backend="direct", extra={"schedule-policy": "lpm"}
        ).canonical(),
    ],
)
def test_a_setting_that_cannot_be_changed_is_a_space_of_its_own(setting: Setting) -> None:
    """A search of it proposes it and nothing else, and a search for a limit takes it as it is."""
    space = Space.model_validate_json(space_of(setting).model_dump_json())
    assert one_setting(space) == setting
    assert space.propose(optuna.create_study().ask()) == setting
