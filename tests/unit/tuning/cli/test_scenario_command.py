"""`hicache-tune scenario`: what is shown, checked and printed of a load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios import list_scenarios
from tests.support.console import Run

MINE = """\
schema_version: 1
name: mine
sessions: {counted: 3, %s}
turns: 2
system_prompts: {tokens: 20}
first_user_tokens: 60
user_tokens: 9
output_tokens: 4
think_s: 2
%s
"""
SIZED = MINE % ("working_set: 2x device KV, ramp_s: 1", "")
OPEN = MINE % ("warm_up_s: 5", "arrivals: {kind: poisson, rate_per_s: 2}\nreply: scripted")


@pytest.fixture
def files() -> None:
    """Write both scenarios where the command runs."""
    Path("sized.yaml").write_text(SIZED)
    Path("open.yaml").write_text(OPEN)


def test_list_says_how_each_is_loaded(run: Run) -> None:
    """Slots of closed scenarios, rates of open ones."""
    lines = {line.split()[0]: line for line in run("scenario", "list").out.splitlines()}
    assert lines.keys() >= set(list_scenarios())
    assert " 320 " in lines["support-chat"]
    assert " 8/s, poisson " in lines["few-shot-classify"]


@pytest.mark.usefixtures("files")
def test_show_needs_the_pool_of_a_sized_scenario(run: Run) -> None:
    """Without the engine's pool the figures are not known, and the message says which flag gives it."""
    refused = run("scenario", "show", "sized.yaml")
    assert refused.code == 1
    assert "the scenario mine fills 2x device KV, and the size of the engine's KV pool is not known yet" in refused.err
    assert "--device-kv-tokens N" in refused.err
    shown = run("scenario", "show", "sized.yaml", "--device-kv-tokens", "2000")
    assert shown.code == 0
    assert "working set, x device KV" in shown.out
    figures = json.loads(run("scenario", "show", "sized.yaml", "--device-kv-tokens", "2000", "--json").out)
    assert 0.9 * 4000 < figures["working_set_tokens"] < 1.1 * 4000


@pytest.mark.usefixtures("files")
def test_show_estimates_live_sessions_of_an_open_scenario(run: Run) -> None:
    """Two sessions a second of 2 s pause and two replies: about 6 are alive."""
    figures = json.loads(run("scenario", "show", "open.yaml", "--json").out)
    assert (figures["concurrency"], figures["rate_per_s"]) == (None, 2.0)
    assert figures["live_sessions"] == pytest.approx(2 * (2 + 2 * 0.58))


@pytest.mark.usefixtures("files")
def test_validate_checks_every_file(run: Run) -> None:
    """Each good file gets a line; the first bad one ends with code 1 and its place."""
    good = run("scenario", "validate", "open.yaml", "sized.yaml", "mixed-night")
    assert good.code == 0
    assert "open.yaml: good; mine, 2/s, poisson" in good.out
    assert "sized.yaml: good; mine, 2x device KV" in good.out
    Path("bad.yaml").write_text(OPEN.replace("turns", "turn"))
    bad = run("scenario", "validate", "bad.yaml")
    assert (bad.code, bad.out) == (1, "")
    assert "bad.yaml: unknown key `turn`; did you mean `turns`?" in bad.err
    assert "no file is given" in run("scenario", "validate").err


@pytest.mark.usefixtures("files")
def test_sample_prints_sessions_role_by_role(run: Run) -> None:
    """Shortened unless asked for in full; scripted replies are shown, and arrivals of open loads."""
    short = run("scenario", "sample", "open.yaml", "--sessions", "2").out
    assert short.count("counted-0-") == 2
    assert "(2 turns, arrives at " in short
    assert short.count("system 20 tokens") == 2
    assert short.count("user 0 60 tokens") == 2
    assert "user 1 9 tokens, 2 s later" in short
    assert short.count("assistant 4 tokens") == 4
    full = run("scenario", "sample", "open.yaml", "--sessions", "2", "--full").out
    assert " ... " in short
    assert " ... " not in full


@pytest.mark.usefixtures("files")
def test_sample_says_what_is_the_models_own(run: Run) -> None:
    """Without scripted replies only their length is known."""
    said = run("scenario", "sample", "sized.yaml", "--sessions", "1", "--device-kv-tokens", "2000").out
    assert said.count("assistant up to 4 tokens of the model's own") == 2


def test_a_converted_trace_can_be_shown_and_sampled(run: Run) -> None:
    """A recorded trace becomes a scenario whose lengths are the recorded ones; what is left out is said."""
    lines = [
        {"timestamp": 1000 * n, "input_length": tokens, "output_length": 9, "hash_ids": blocks}
        for n, (tokens, blocks) in enumerate([(1500, [0, 1, 2]), *((700, [0, 10 + n]) for n in range(11))])
    ]
    Path("mooncake.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("scenario", "convert", "mooncake.jsonl", "mine.jsonl").code == 0
    Path("short.yaml").write_text(
        "{schema_version: 1, name: short, api: generate, replay: {trace: mine.jsonl, max_context_tokens: 1000}}"
    )
    shown = run("scenario", "show", "short.yaml")
    assert shown.code == 0
    assert "11, and 1 left out as too long" in shown.out
    assert "user 0 700 tokens" in run("scenario", "sample", "short.yaml").out
    assert "short.yaml: good; short, as recorded" in run("scenario", "validate", "short.yaml").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sample", "cpu-chat", "--sessions", "0"), "--sessions"),
        (("show", "cpu-chat", "--seed", "-1"), "--seed"),
        (("show", "cpu-chat", "--device-kv-tokens", "0"), "--device-kv-tokens"),
    ],
)
def test_numbers_out_of_range_name_their_flag(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """A number that makes no sense is refused before anything is made."""
    said = run("scenario", *arguments)
    assert said.code == 1
    assert message in said.err
