"""What runs in production: read as a setting, and written with another one in its own words."""

from __future__ import annotations

import pytest

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tuning.nightly.production import production_setting, proposed_words, tuned_words

COMMAND = (
    *("python", "-m", "sglang.launch_server", "--model-path", "Org/Name", "--port", "30000", "--enable-metrics"),
    *("--context-length", "8192", "--enable-hierarchical-cache", "--hicache-ratio=2", "--schedule-policy", "lpm"),
)
FIXED = ("--context-length=8192",)
TUNED = ["--enable-hierarchical-cache", "--hicache-ratio=2", "--schedule-policy", "lpm"]


def test_a_whole_launch_command_is_read_as_its_tuned_flags() -> None:
    """The model, the port, what is measured with, and what every launch has anyway are no part of the setting."""
    setting = Setting(hicache=True, hicache_ratio=2, extra={"schedule-policy": "lpm"}).canonical()
    assert production_setting(COMMAND, FIXED) == setting
    assert production_setting(TUNED) == setting
    assert tuned_words(COMMAND, FIXED) == TUNED


def test_no_flags_are_sglangs_defaults() -> None:
    """HiCache off."""
    assert production_setting([]) == Setting()


def test_a_proposal_keeps_what_both_settings_have_as_it_is_written() -> None:
    """Only the ratio changes; defaults that nobody wrote are not written."""
    now = production_setting(COMMAND, FIXED)
    winner = now.model_copy(update={"hicache_ratio": 4.0})
    assert proposed_words(COMMAND, now, winner, FIXED) == (
        *("--enable-hierarchical-cache", "--hicache-ratio", "4.0", "--schedule-policy", "lpm"),
    )


def test_a_proposal_without_hicache_has_none_of_its_flags() -> None:
    """What is tuned and not proposed is gone."""
    now = production_setting(COMMAND, FIXED)
    assert proposed_words(COMMAND, now, Setting(), FIXED) == ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hicache-ratio", "two"], "production: setting: `hicache_ratio`: input should be a valid number"),
        (["--page-size", "0"], "production: setting: `page_size`: input should be greater than 0"),
        (["--api-key", "hush"], "production: --api-key is a secret, and none is needed here; leave it out"),
    ],
)
def test_a_mistake_is_named(words: list[str], said: str) -> None:
    """The value and the flag, never a secret's."""
    with pytest.raises(ConfigError) as raised:
        production_setting(words)
    assert str(raised.value).startswith(said)
    assert "hush" not in str(raised.value)
