"""Scenarios are found by name and by path; what is wrong with a file is said with its place."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.catalogue import BUILTIN, list_scenarios, load_scenario
from scenarios.errors import ScenarioError
from scenarios.model import Scenario

GOOD = """\
schema_version: 1
name: mine
sessions: {counted: 3, concurrency: 2, ramp_s: 0}
turns: 2
first_user_tokens: 20
user_tokens: {kind: uniform, min: 5, max: 9}
output_tokens: 4
think_s: 0.5
"""


def _message(path: str | Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return str(caught.value)


def test_the_built_in_scenarios_are_listed() -> None:
    """The names are those that the documentation promises, sorted."""
    assert list_scenarios() == ("coding-agent", "cpu-chat", "cpu-smoke", "low-sharing", "support-chat")


@pytest.mark.parametrize("name", list_scenarios())
def test_built_in_scenario_is_valid(name: str) -> None:
    """Every built-in scenario loads, says what it is, and is called like its file."""
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.description
    assert (BUILTIN / f"{name}.yaml").read_text().startswith("# yaml-language-server: $schema=")


def test_a_path_is_loaded(tmp_path: Path) -> None:
    """A YAML file of the user's own is loaded by path."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert load_scenario(path).name == load_scenario(str(path)).name == "mine"


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    """The user gets the nearest name and all the others."""
    assert _message("suport-chat") == (
        "no scenario is named `suport-chat`, did you mean `support-chat`? (built in: coding-agent, cpu-chat, "
        "cpu-smoke, low-sharing, support-chat; or give a YAML file)"
    )


def test_a_strange_name_is_answered_with_the_list() -> None:
    """With nothing near, the list is enough."""
    assert _message("qqq").startswith("no scenario is named `qqq` (built in: coding-agent, cpu-chat,")


def test_unreadable_files(tmp_path: Path) -> None:
    """A missing file, a folder and a binary file each get their reason."""
    missing, binary = tmp_path / "none.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    assert _message(missing) == (f"cannot read the scenario {missing}: No such file or directory; check the path")
    assert "Is a directory" in _message(tmp_path)
    assert _message(binary) == f"{binary}: not UTF-8 text at byte 6; save it as UTF-8"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD + "think: {kind: [\n",
            ", line 10: not valid YAML: expected the node content, but found '<stream end>'; correct that line",
        ),
        (GOOD + "turns: 3\n", ", line 9: not valid YAML: the key `turns` stands twice; correct that line"),
        (GOOD.replace("max: 9", "max: 9, max: 8"), ", line 6: not valid YAML: the key `max` stands twice"),
        (GOOD.replace("mine", "2020-13-45"), ": not valid YAML: month must be in 1..12; correct it"),
        (GOOD.replace("mine", "a\0b"), ": not valid YAML: unacceptable character #x0000"),
        ("", ": holds no keys; a scenario begins with `schema_version: 1`"),
        ("- 1\n", ": holds no keys;"),
        (GOOD + "think_time: 3\n", ": unknown key `think_time`; did you mean `think_s`?"),
        (GOOD.replace("counted", "count"), ": unknown key `sessions.count`; did you mean `counted`? (and 1"),
        (GOOD.replace("uniform", "unifrom"), ": `user_tokens`: unknown kind `unifrom`; did you mean `uniform`?"),
        (GOOD.replace("min: 5", "mim: 5"), ": unknown key `user_tokens.mim`; did you mean `min`? (and 1 more)"),
        (GOOD.replace("turns: 2", "turns: 0"), ": `turns`: can be 0, must be at least 1"),
        (GOOD.replace("concurrency: 2", "concurrency: '2'"), ": `sessions.concurrency`: input should be a valid"),
        (GOOD.replace("turns: 2\n", ""), ": `turns`: field required"),
        (GOOD.replace("version: 1", "version: 2"), ": `schema_version`: input should be 1"),
        (
            GOOD + "system_prompts: {tokens: 5, shared: false, count: 2}\n",
            ": `system_prompts`: `count` has a meaning only with `shared: true`; leave it out",
        ),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    """The message begins with the file, then the line or the key, then what to do."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert _message(path).startswith(f"{path}{message}")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60), place=st.integers(0, len(GOOD)))
def test_damage_is_never_a_traceback(tmp_path: Path, text: str, place: int) -> None:
    """Whatever is typed into a file, it loads or fails as a ScenarioError."""
    path = tmp_path / "damaged.yaml"
    path.write_text(GOOD[:place] + text + GOOD[place:], encoding="utf-8")
    with contextlib.suppress(ScenarioError):
        assert isinstance(load_scenario(path), Scenario)
