"""`scenario convert` and `scenario anonymise` as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios import load_scenario
from scenarios.trace_file import read_sessions, read_trace_file
from tests.support.console import Run
from tests.support.traces import AZURE_CODE, CONVERSATION, few_sessions, json_lines

ROWS = [{"timestamp": n * 1000, "input_length": 1024 + 512 * n, "hash_ids": [0, *range(1, 2 + n)]} for n in range(3)]


def test_convert_says_what_was_done_and_writes_a_scenario(run: Run, tmp_path: Path) -> None:
    """Sessions are drawn, arrivals spread; the scenario beside the file can be loaded."""
    said = run("scenario", "convert", str(CONVERSATION), "out.jsonl", "--sessions", "50", "--spread-ticks")
    assert said.code == 0
    assert "mooncake: 50 sessions" in said.err
    assert "requests belong to sessions that were not drawn" in said.err
    assert "arrivals were spread" in said.err
    assert len(list(read_sessions(tmp_path / "out.jsonl"))) == 50
    assert load_scenario(tmp_path / "out.yaml").name == "out"


def test_convert_makes_a_closed_scenario_where_starts_are_not_recorded(run: Run, tmp_path: Path) -> None:
    """Claude Code sessions have clocks of their own; their gaps are capped."""
    said = run(
        "scenario",
        "convert",
        str(few_sessions(tmp_path / "in")),
        "cc.jsonl.gz",
        "--think-cap",
        "60s",
        "--sessions",
        "5",
    )
    assert said.code == 0
    assert "were cut to it" in said.err
    assert "concurrency: 16" in (tmp_path / "cc.yaml").read_text(encoding="utf-8")
    assert load_scenario(tmp_path / "cc.yaml").sessions.concurrency == 16


def test_a_scenario_that_exists_is_kept(run: Run, tmp_path: Path) -> None:
    """The trace file is written again, the user's scenario is not."""
    json_lines(tmp_path / "in", ROWS)
    (tmp_path / "out.yaml").write_text("mine", encoding="utf-8")
    for _ in range(2):
        said = run("scenario", "convert", "in", "out.jsonl")
        assert said.code == 0
        assert "out.yaml exists and stays as it is" in said.err
    assert (tmp_path / "out.yaml").read_text(encoding="utf-8") == "mine"


def test_sessions_are_inferred_on_demand(run: Run, tmp_path: Path) -> None:
    """Without the flag it is named."""
    json_lines(tmp_path / "in", ROWS)
    assert "--infer-sessions joins those" in run("scenario", "convert", "in", "a.jsonl").err
    said = run("scenario", "convert", "in", "b.jsonl", "--infer-sessions")
    assert "mooncake: 1 sessions, 3 requests" in said.err
    assert read_trace_file(tmp_path / "b.jsonl").info.sessions_inferred


def test_skipped_lines_are_printed(run: Run, tmp_path: Path) -> None:
    """Each with its line; one too many is exit code 1 and nothing is written."""
    json_lines(tmp_path / "in", [ROWS[0], "{", ROWS[1]])
    said = run("scenario", "convert", "in", "out.jsonl")
    assert (said.code, (tmp_path / "out.jsonl").exists()) == (1, False)
    assert "in, line 2: not valid JSON" in said.err
    assert "--skip-bad 1" in said.err
    said = run("scenario", "convert", "in", "out.jsonl", "--skip-bad", "1")
    assert said.code == 0
    assert "skipped in, line 2: not valid JSON" in said.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--infer-sessions"], "no global block ids"),
        (["--spread-ticks"], "leave out --spread-ticks"),
        (["--think-cap", "soon"], "--think-cap"),
        (["--skip-bad", "-1"], "--skip-bad"),
        (["--sessions", "0"], "--sessions"),
        (["--format", "azur"], "did you mean `azure-llm`"),
        (["--max-context", "5"], "line 2: prompt and reply are 4818 tokens, over the limit of 5"),
    ],
)
def test_flags_that_do_not_fit(flags: list[str], words: str, run: Run, tmp_path: Path) -> None:
    """One sentence, exit code 1, no file."""
    said = run("scenario", "convert", str(AZURE_CODE), "out.jsonl", *flags)
    assert said.code == 1
    assert words in said.err
    assert not (tmp_path / "out.jsonl").exists()


def test_other_files_are_not_written_over(run: Run, tmp_path: Path) -> None:
    """Neither the source nor a file that no conversion wrote."""
    json_lines(tmp_path / "in", ROWS)
    for out in ("in", "notes"):
        (tmp_path / "notes").write_text("mine", encoding="utf-8")
        said = run("scenario", "convert", "in", out)
        assert said.code == 1
        assert f"{out} exists and is no trace file" in said.err
    run("scenario", "convert", "in", "out.jsonl")
    assert run("scenario", "convert", "out.jsonl", "out.jsonl").code == 1


def test_anonymise(run: Run, model: Path, tmp_path: Path) -> None:
    """Text needs a model; with one, the result is a trace of blocks."""
    json_lines(tmp_path / "in", [{"messages": [{"role": "user", "content": "Anna knows"}]}])
    said = run("scenario", "anonymise", "in", "out.jsonl")
    assert said.code == 1
    assert "give --model" in said.err
    said = run("scenario", "anonymise", "in", "out.jsonl", "--model", str(model))
    assert said.code == 0
    assert "Anna" not in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert read_trace_file(tmp_path / "out.jsonl").info.block_tokens == 16
