"""The engine's flags, and arguments checked against them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.flag_meanings import FLAGS_THAT_MATTER
from harness.engine.flag_source import shipped
from harness.engine.flags import FlagTable, check_arguments, check_flag, human_int, split_arguments
from harness.errors import ConfigError

EARLY, LATE = shipped("0.5.15"), shipped("0.5.23")


@pytest.mark.parametrize(
    ("given_words", "arguments"),
    [
        (["--schedule-policy=lpm"], ("--schedule-policy=lpm",)),
        (["--schedule-policy", "lpm"], ("--schedule-policy=lpm",)),
        (["--disable-overlap-schedule"], ("--disable-overlap-schedule",)),
        (["--chunked-prefill-size=-1"], ("--chunked-prefill-size=-1",)),
        (["--max-total-tokens=64k"], ("--max-total-tokens=64k",)),
        (["--cuda-graph-bs-decode", "1", "2", "4"], ("--cuda-graph-bs-decode", "1", "2", "4")),
        (["--preferred-sampling-params={}"], ("--preferred-sampling-params={}",)),
        (["--dtype", "float32", "--enable-mixed-chunk"], ("--dtype=float32", "--enable-mixed-chunk")),
        ([], ()),
    ],
)
def test_good_arguments_pass(given_words: list[str], arguments: tuple[str, ...]) -> None:
    """What the engine takes passes, in one spelling and without a warning."""
    checked = check_arguments(given_words, EARLY)
    assert checked.arguments == arguments
    assert checked.warnings == ()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--schedul-policy=lpm", "SGLang 0.5.15 has no such flag; did you mean `schedule-policy`?"),
        ("--mem-frac=0.8", "SGLang 0.5.15 has no such flag; did you mean `mem-fraction-static`?"),
        ("--xyzzy=1", "SGLang 0.5.15 has no such flag; see `python -m sglang.launch_server --help`"),
        ("--schedule-policy=lmp", "unknown value `lmp`; did you mean `lpm`?"),
        ("--num-continuous-decode-steps=x", "`x` is not a whole number"),
        ("--num-continuous-decode-steps=1.5", "`1.5` is not a whole number"),
        ("--schedule-conservativeness=high", "`high` is not a number"),
        ("--max-total-tokens=64K", "`64K` is not a whole number, also as 64k or 64Ki"),
        ("--max-total-tokens=1.5Ki", "`1.5Ki` is not a whole number, also as 64k or 64Ki"),
        ("--disable-overlap-schedule=true", "it is a switch and takes no value; leave `=...` out"),
        ("--chunked-prefill-size", "its value is missing; write --engine-arg=--chunked-prefill-size=VALUE"),
        ("lpm", "no flag stands before this value; write it as --flag=value"),
        ("--enable-hicache", "HiCache is what is searched; give `--hicache on`"),
        ("--enable-hierarchical-cache", "HiCache is what is searched; give `--hicache on`"),
        ("--hicache-host-memory-gb=60", "HiCache is what is searched; give --hicache-size itself"),
        ("--hicache-mem-layout=page_first", "HiCache is what is searched; give --transfer IO_BACKEND/MEM_LAYOUT"),
        ("--port=30000", "leave it out; every launch gets a port that is free"),
        ("--model=m", "give the model with --model"),
        ("--tensor-parallel-size=2", "give --tp-size itself"),
        ("--dp=2", "give --dp-size itself"),
    ],
)
def test_bad_arguments_are_refused(word: str, said: str) -> None:
    """A typo, a wrong value, an abbreviation and what the harness sets itself are named with what to do."""
    with pytest.raises(ConfigError) as refused:
        check_arguments([word], EARLY)
    assert str(refused.value).startswith("--engine-arg=")
    assert said in str(refused.value)


def test_without_a_search_hicache_is_a_flag_as_any_other() -> None:
    """One launch may have its HiCache flags; where it listens stays ours."""
    checked = check_arguments(["--enable-hicache", "--hicache-host-memory-gb=60"], EARLY, searched=False)
    assert checked.arguments == ("--enable-hierarchical-cache", "--hicache-size=60")
    assert len(checked.warnings) == 2
    with pytest.raises(ConfigError, match="leave it out"):
        check_arguments(["--port=1"], EARLY, searched=False)


def test_one_value_where_one_is_taken() -> None:
    """A second value of a flag that takes one is named."""
    with pytest.raises(ConfigError, match="it takes one value and has 2; keep one"):
        check_arguments(["--dtype", "float32", "auto"], EARLY)


def test_names_of_older_versions_are_translated() -> None:
    """0.5.23 dropped the old names of the graph flags; 0.5.15 still takes them and calls them deprecated."""
    late = check_arguments(["--cuda-graph-max-bs=16"], LATE)
    assert late.arguments == ("--cuda-graph-max-bs-decode=16",)
    assert late.warnings == ("--cuda-graph-max-bs is an older name; taken as --cuda-graph-max-bs-decode",)
    early = check_arguments(["--cuda-graph-max-bs=16"], EARLY)
    assert early.arguments == ("--cuda-graph-max-bs=16",)
    assert early.warnings == ("--engine-arg=--cuda-graph-max-bs: SGLang 0.5.15 calls it deprecated",)


def test_what_an_unknown_version_may_have_is_a_warning() -> None:
    """Against the flags of another version an unknown name passes, and its known names are still checked."""
    table = EARLY.model_copy(update={"exact": False})
    checked = check_arguments(["--brand-new=1"], table)
    assert checked.arguments == ("--brand-new=1",)
    assert "could not be read" in checked.warnings[0]
    with pytest.raises(ConfigError, match="unknown value `lmp`"):
        check_arguments(["--schedule-policy=lmp"], table)


def test_arguments_are_split_as_argparse_does() -> None:
    """Values follow their flag or its equals sign; an empty one stays."""
    words = ["--a", "--b=1", "--c", "2", "3", "--d="]
    assert [(flag.name, flag.values, flag.value) for flag in split_arguments(words)] == [
        ("a", (), True),
        ("b", ("1",), "1"),
        ("c", ("2", "3"), "2 3"),
        ("d", ("",), ""),
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("schedule-policy", "lpm", None),
        ("disable-overlap-schedule", True, None),
        ("max-running-requests", 64, None),
        ("schedule-policy", "hrrn", "unknown value `hrrn`"),
        ("disable-overlap-schedule", "yes", "is a switch; give on or off"),
        ("max-running-requests", "many", "is not a whole number"),
        ("schedule-polic", "lpm", "has no --schedule-polic; did you mean `schedule-policy`?"),
    ],
)
def test_searched_flags_are_checked(name: str, value: bool | int | str, said: str | None) -> None:
    """A flag of the search space is checked before the first launch."""
    if said is None:
        check_flag(name, value, EARLY, where="--search")
    else:
        with pytest.raises(ConfigError, match="--search") as refused:
            check_flag(name, value, EARLY, where="--search")
        assert said in str(refused.value)


def test_a_policy_of_the_newer_version() -> None:
    """Choices are those of the version at hand."""
    check_flag("schedule-policy", "hrrn", LATE, where="--search")
    check_flag("radix-eviction-policy", "tlru", LATE, where="--search")


@pytest.mark.parametrize(
    ("text", "value"), [("1k", 1000), ("25.6k", 25_600), ("1Ki", 1024), ("2M", 2 * 10**6), ("7", 7)]
)
def test_human_numbers(text: str, value: int) -> None:
    """The examples in SGLang's own docstring of `human_readable_int`."""
    assert human_int(text) == value


@given(st.text(max_size=8))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Any text is a number or a ValueError."""
    with contextlib.suppress(ValueError):
        assert isinstance(human_int(text), int)


@pytest.mark.parametrize("table", [EARLY, LATE], ids=lambda table: table.sglang_version)
def test_every_flag_that_matters_is_in_the_tables(table: FlagTable) -> None:
    """A flag that is explained exists in this version, unless its explanation says that it is of the newer one."""
    missing = {meaning.name for meaning in FLAGS_THAT_MATTER if table.find(meaning.name) is None}
    of_late = {meaning.name for meaning in FLAGS_THAT_MATTER if "0.5.23" in meaning.does}
    assert missing <= (of_late if table is EARLY else set())
    names = [meaning.name for meaning in FLAGS_THAT_MATTER]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "early", "late"),
    [
        ("hicache-ratio", 2.0, None),
        ("hicache-size", 0, 0),
        ("hicache-write-policy", "write_through", "write_through"),
        ("hicache-io-backend", "kernel", "kernel"),
        ("hicache-mem-layout", "page_first", "page_first"),
        ("hicache-storage-prefetch-policy", "timeout", "timeout"),
        ("schedule-policy", "fcfs", "fcfs"),
        ("schedule-conservativeness", 1.0, 1.0),
        ("radix-eviction-policy", "lru", "lru"),
        ("max-prefill-tokens", 16384, 16384),
        ("watchdog-timeout", 300, 300),
    ],
)
def test_defaults_of_both_versions(name: str, early: float | str | None, late: float | str | None) -> None:
    """The defaults are those that were read in the sources of both versions (facts, sections 1a and 1d)."""
    for table, default in ((EARLY, early), (LATE, late)):
        flag = table.find(name)
        assert flag is not None
        assert flag.default == default
    alias = LATE.find("enable-hicache")
    assert alias is not None
    assert alias.name == "enable-hierarchical-cache"
    assert EARLY.find("enable-hicache") is None
