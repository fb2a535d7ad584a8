"""nightly.toml: what it may say, and that every mistake is named with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ConfigError
from tuning.nightly.config import NightlyConfig, read_config

LEAST: dict[str, Any] = {"job": "chat", "production": "--enable-hierarchical-cache", "search": {"engine": "cpu"}}


def config(**changes: Any) -> NightlyConfig:
    """Read the least file with changes."""
    return NightlyConfig.parse({**LEAST, **changes}, where="nightly.toml")


def test_what_is_left_out_has_a_place_below_the_results() -> None:
    """History and metrics of a job are in a folder of its own, which is no study."""
    found = config()
    assert found.history_path == Path("results/chat/history.sqlite")
    assert found.textfile_path == Path("results/chat/nightly.prom")
    assert found.seeds == (1001, 1002)


def test_production_is_words_or_a_text_as_in_a_shell() -> None:
    """Both are the same flags."""
    words = ["--hicache-ratio", "2", "--chat-template", "a b"]
    assert config(production=words) == config(production="--hicache-ratio 2 --chat-template 'a b'")


def test_the_flags_of_a_search_are_keys_with_dashes_or_underscores() -> None:
    """As in hicache-tune.toml; numbers need no quotes."""
    search = {"engine": "cpu", "page-size": 16, "load_limit": "5m", "search": ["schedule-policy=fcfs,lpm"]}
    options = config(search=search).search
    assert (options.page_size, options.load_limit, options.search_flag) == ("16", "5m", ("schedule-policy=fcfs,lpm",))


def test_a_search_leaves_a_quarter_of_the_budget_for_production() -> None:
    """A regression must be measured again after it."""
    assert config(budget="2h").options("s", resume=False).budget == "5400s"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"jab": "chat"}, "nightly.toml: unknown key `jab`; did you mean `job`?"),
        ({"job": "a/b"}, "nightly.toml: `job`: use letters, digits, dots, dashes and underscores, as it names folders"),
        ({"mode": "seek"}, "nightly.toml: `mode`: input should be 'confirm' or 'search'"),
        ({"threshold": 0}, "nightly.toml: `threshold`: input should be greater than 0"),
        ({"rounds": 0}, "nightly.toml: `rounds`: input should be greater than or equal to 1"),
        ({"budget": "soon"}, "nightly.toml: budget soon: write a duration above zero"),
        ({"every": "1d"}, "nightly.toml: every 1d: write a duration above zero"),
        ({"production": None}, "nightly.toml: `production` is missing: give the engine's flags in production, [] for"),
        ({"search": {"engin": "cpu"}}, "nightly.toml: `search`: unknown key `engin`; did you mean `engine`?"),
        ({"search": {"study": "s"}}, "nightly.toml: `search`: `study` is no key of [search]: each night names its own"),
        ({"search": {"budget": "1h"}}, "nightly.toml: `search`: `budget` is no key of [search]: write `budget` above"),
        ({"search": {"trials": "many"}}, "nightly.toml: `search.trials`: input should be a valid integer"),
        ({"webhook": {"url": "https://x"}}, "nightly.toml: unknown key `webhook.url`; did you mean `url_env`?"),
        ({"proposal": {"form": "helm"}}, "nightly.toml: `proposal.form`: input should be 'patch', 'systemd' or 'kub"),
        (
            {"proposal": {"form": "systemd"}},
            'nightly.toml: `proposal.form` = "systemd" replaces the whole command',
        ),
        ({"retention": {"nights": 0}}, "nightly.toml: `retention.nights`: input should be greater than or equal to 1"),
        (
            {"search": {"engine": "attach", "url": "http://127.0.0.1:9"}},
            "nightly.toml: nothing restarts the server at search.url, so production is what it runs",
        ),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], said: str) -> None:
    """One sentence: the file, the key, and what is valid."""
    with pytest.raises(ConfigError) as raised:
        config(**changes)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read (No such file or directory)"), ("job = ", "not valid TOML (")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    """The path is in the sentence."""
    path = tmp_path / "nightly.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    assert str(raised.value).startswith(f"--config {path}: {said}")


def test_the_webhooks_address_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No webhook needs none."""
    monkeypatch.setenv("HOOK", "https://hooks.example/x")
    assert config(webhook={"url_env": "HOOK"}).webhook_url() == "https://hooks.example/x"
    assert config().webhook_url() is None
