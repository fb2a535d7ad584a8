"""A launch command of an article, given to this tool."""

from __future__ import annotations

import pytest

from harness.engine.old_names import translate_command
from harness.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["--enable-hicache"], ("--hicache", "on")),
        (["--enable-hierarchical-cache"], ("--hicache", "on")),
        (["--hicache-host-memory-gb", "60"], ("--hicache-size", "60")),
        (["--hicache-host-memory-gb=60"], ("--hicache-size=60",)),
        (["--tp-size", "1", "--hicache-host-memory-gb=60"], ("--tp-size", "1", "--hicache-size=60")),
    ],
)
def test_flags_of_articles_become_ours(words: list[str], written: tuple[str, ...]) -> None:
    """The command works, and says once for each what it was taken as."""
    translated = translate_command(words)
    assert translated.words == written
    assert len(translated.warnings) == 1


def test_the_unit_is_told() -> None:
    """The article's total is a size for each rank today."""
    (said,) = translate_command(["--hicache-host-memory-gb", "60"]).warnings
    assert said.endswith("taken as --hicache-size; it is a whole number of GB (1e9 bytes) for each rank")


@pytest.mark.parametrize("ranks", [["--tp-size", "4"], ["--tp-size=4"], ["--dp-size=4"]])
def test_a_total_is_not_multiplied_by_the_ranks(ranks: list[str]) -> None:
    """60 GB of an article on 4 ranks would pin 240 GB."""
    with pytest.raises(ConfigError, match=r"is a total, and --(tp|dp)-size 4 makes a host pool on each rank"):
        translate_command([*ranks, "--hicache-host-memory-gb", "60"])


def test_other_words_stay() -> None:
    """What is not one of these names is left alone."""
    words = ["--model", "m", "--engine-arg=--enable-hicache", "--hicache-size", "60", "--tp-size"]
    assert translate_command(words).words == tuple(words)
    assert translate_command(words).warnings == ()
