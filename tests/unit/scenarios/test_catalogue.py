"""Scenarios are found by name and by path; what is wrong with a file is said with its place."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.arrivals import Recorded
from scenarios.catalogue import BUILTIN, list_scenarios, load_scenario
from scenarios.errors import ScenarioError
from scenarios.model import Mix, Synthetic, parse_scenario

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
    assert list_scenarios() == (
        "agentic-tools",
        "code-completion",
        "coding-agent",
        "cpu-chat",
        "cpu-smoke",
        "few-shot-classify",
        "long-system-prompt",
        "low-sharing",
        "mixed-night",
        "rag-multi-doc",
        "support-chat",
    )


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
        "no scenario is named `suport-chat`, did you mean `support-chat`? (built in: agentic-tools, "
        "code-completion, coding-agent, cpu-chat, cpu-smoke, few-shot-classify, long-system-prompt, low-sharing, "
        "mixed-night, rag-multi-doc, support-chat; or give a YAML file)"
    )


def test_a_strange_name_is_answered_with_the_list() -> None:
    """With nothing near, the list is enough."""
    assert _message("qqq").startswith("no scenario is named `qqq` (built in: agentic-tools, code-completion,")


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace(", ramp_s: 0", ""),
            ": `sessions.ramp_s` is missing: the seconds over which the first sessions arrive",
        ),
        (
            GOOD.replace("concurrency: 2, ramp_s: 0", ""),
            ": one of `sessions.concurrency`, `sessions.working_set` and `arrivals` is needed",
        ),
        (
            GOOD + "arrivals: {kind: poisson, rate_per_s: 1}\n",
            ": `sessions.concurrency` and `arrivals` exclude each other; keep one",
        ),
        (
            GOOD.replace("concurrency: 2,", "") + "arrivals: {kind: poisson, rate_per_s: 1}\n",
            ": `sessions.ramp_s` has no meaning in an open load; leave it out",
        ),
        (
            GOOD.replace("ramp_s: 0", "ramp_s: 0, warm_up_s: 3"),
            ": `sessions.warm_up_s` has a meaning only in an open load; leave it out",
        ),
        (GOOD.replace("concurrency: 2", "working_set: 3x"), ": `sessions.working_set`: string should match pattern"),
        (
            GOOD + "arrivals: {kind: poison, rate_per_s: 1}\n",
            ": `arrivals`: unknown kind `poison`; did you mean `poisson`?",
        ),
        (GOOD + "arrivals: {rate_per_s: 1}\n", ": `arrivals`: the key `kind` is missing"),
        (
            GOOD + "arrivals: {kind: spikes, rate_per_s: 1, every_s: 3, spike_s: 4, factor: 2}\n",
            ": `arrivals`: a spike of 4 s does not fit in a period of 3 s",
        ),
        (
            GOOD + "arrivals: {kind: recorded, times_s: [1, 3, 2]}\n",
            ": `arrivals`: time 3 is 2 s, before the 3 s of the one above it; sort them",
        ),
        (
            GOOD + "documents: {count: 3, tokens: 5}\n",
            ": `documents`: needs one of `per_session` and `per_turn`",
        ),
        (
            GOOD + "branches: {regenerate: 0.6, edit: 0.6}\n",
            ": `branches`: `regenerate` and `edit` add up to 1.2, above 1",
        ),
        (GOOD + "tools: {share: 2, tokens: 5, think_s: 1}\n", ": `tools.share`: input should be less than or equal"),
    ],
)
def test_what_is_wrong_with_a_load(tmp_path: Path, text: str, message: str) -> None:
    """Open and closed loads exclude each other, and each key says what it needs."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert _message(path).startswith(f"{path}{message}")


MIX = """\
schema_version: 1
name: both
sessions: {counted: 4, concurrency: 2, ramp_s: 0}
mix:
  - {scenario: parts/mine.yaml, share: 3}
  - {scenario: cpu-chat, share: 1}
"""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Write a mix of a file and a built-in scenario."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.yaml").write_text(GOOD)
    path = tmp_path / "mix.yaml"
    path.write_text(MIX)
    return path


def test_a_mix_is_read_whole(mixed: Path) -> None:
    """The scenarios of a mix are found from its own folder, and are part of what is loaded."""
    mix = load_scenario(mixed)
    assert isinstance(mix, Mix)
    assert [(p.scenario.name, p.share) for p in mix.mix] == [("mine", 3), ("cpu-chat", 1)]
    assert parse_scenario(mix.model_dump(mode="json"), where="copy") == mix


def test_a_mix_in_a_mix_takes_its_share(mixed: Path) -> None:
    """The entries of an inner mix share what the outer one gives to it."""
    outer = mixed.with_name("outer.yaml")
    outer.write_text(MIX.replace("parts/mine.yaml", "mix.yaml"))
    mix = load_scenario(outer)
    assert isinstance(mix, Mix)
    assert [(p.scenario.name, p.share) for p in mix.mix] == [("mine", 2.25), ("cpu-chat", 0.75), ("cpu-chat", 1)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parts/mine.yaml", "mix.yaml", "mix.yaml: its mix leads back to"),
        ("parts/mine.yaml", "none.yaml", "cannot read the scenario"),
        ("cpu-chat", "cpu-chta", "no scenario is named `cpu-chta`, did you mean `cpu-chat`?"),
        ("share: 3", "share: -3", "mix.yaml: `mix.0.share`: input should be greater than 0"),
        ("share: 3", "shre: 3", "mix.yaml: unknown key `mix.0.shre`; did you mean `share`?"),
        ("  - {scenario: parts/mine.yaml, share: 3}\n", "  - 3\n", "mix.yaml: `mix.0`: input should be"),
    ],
)
def test_what_is_wrong_in_a_mix(mixed: Path, old: str, new: str, message: str) -> None:
    """A mix that holds itself, names nothing, or has a wrong share is refused with its place."""
    mixed.write_text(MIX.replace(old, new))
    assert message in _message(mixed)


def test_recorded_arrivals_are_read_from_their_file(tmp_path: Path) -> None:
    """One time a line, found from the scenario's folder; a bad line is named."""
    path = tmp_path / "open.yaml"
    path.write_text(GOOD.replace("concurrency: 2, ramp_s: 0", "") + "arrivals: {kind: recorded, file: times.txt}\n")
    (tmp_path / "times.txt").write_text("0\n1.5\n\n4\n")
    arrivals = load_scenario(path).arrivals
    assert isinstance(arrivals, Recorded)
    assert arrivals.times_s == (0, 1.5, 4)
    (tmp_path / "times.txt").write_text("0\nx\n")
    assert _message(path) == f"{tmp_path}/times.txt, line 2: `x` is no number of seconds; correct it"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60), place=st.integers(0, len(GOOD)))
def test_damage_is_never_a_traceback(tmp_path: Path, text: str, place: int) -> None:
    """Whatever is typed into a file, it loads or fails as a ScenarioError."""
    path = tmp_path / "damaged.yaml"
    path.write_text(GOOD[:place] + text + GOOD[place:], encoding="utf-8")
    with contextlib.suppress(ScenarioError):
        assert isinstance(load_scenario(path), Synthetic)
