"""Scenarios played on one real engine: what it says of lengths and cached tokens is what the plans promise."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.engine.cpu.engine import CpuEngine, find
from harness.load.job import ApiName, LoadJob, LoadOutcome, Stopped
from harness.load.runner import run_load
from scenarios import Phase, Plan, PromptTokenizer, Scenario, load_scenario, make_plan
from scenarios.plan import Session, Turn, write_plan
from tests.support.cpu_engine import RunningEngine, launched
from tests.support.page_cache import page_exact
from tuning.cli.app import run

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

DATA = Path(__file__).parents[1] / "data" / "scenarios"
PAGE_TOKENS = 16
BLOCK_TOKENS = 512
"""Of Mooncake's traces."""
POINTS = 0.04
"""How far the hit rate that is expected before the load may lie from the one that is measured in it."""


@dataclass(frozen=True)
class Played:
    """One plan that has been played on the engine."""

    plan: Plan
    outcome: LoadOutcome
    records: pd.DataFrame
    """In the order of sending."""


class Stage:
    """The running engine, and what plays on it."""

    def __init__(self, engine: RunningEngine, installed: CpuEngine) -> None:
        self.engine = engine
        self.tokenizer = PromptTokenizer.load(installed.model_path)

    def play(self, scenario: Scenario, folder: Path) -> Played:
        """Play `scenario` against an empty cache."""
        plan = make_plan(scenario, 1, self.tokenizer)
        write_plan(plan, folder / "plan.jsonl")
        self.flush()
        job = LoadJob(
            base_url=str(self.engine.client.base_url),
            api=ApiName(scenario.api),
            model="tiny",
            plan_path=folder / "plan.jsonl",
            out_dir=folder / "out",
            limit_s=90,
            absent_cache_means_zero=True,
        )
        result = run_load(job)
        records = result.records.sort_values("sent_ns", ignore_index=True)
        assert result.outcome.stopped is Stopped.COMPLETE
        assert set(records["status"]) <= {"ok", "cancelled", "cut"}, records["error"].dropna().tolist()
        return Played(plan, result.outcome, records)

    def aborted(self) -> int:
        """Read how many requests the engine counts as aborted."""
        text = self.engine.client.get("/metrics").raise_for_status().text
        found = re.findall(r"^sglang:num_aborted_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
        return sum(int(float(value)) for value in found)

    def flush(self, limit_s: float = 30.0) -> None:
        """Empty the cache once nothing runs, before which the engine refuses to: left replies go on for seconds."""
        deadline = time.monotonic() + limit_s
        while not self.engine.client.post("/flush_cache").is_success:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Launch the engine once: no HiCache, pages of 16, a device pool of some 6,000 tokens."""
    installed = find()
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with launched(installed, log, "--page-size", str(PAGE_TOKENS)) as engine:
        yield Stage(engine, installed)


def test_sessions_of_an_open_plan_begin_by_the_clock(stage: Stage, tmp_path: Path) -> None:
    """Each session begins when Poisson said, to the millisecond of the plan, whatever runs; none waits for another."""
    played = stage.play(load_scenario(DATA / "open-poisson.yaml"), tmp_path)
    starts_s = {session.session_id: session.start_s for session in played.plan.sessions}
    firsts = played.records[played.records["turn"] == 0]
    due_ns = [played.outcome.started_ns + round(starts_s[str(name)] * 1e9) for name in firsts["session_id"]]
    assert firsts["scheduled_ns"].tolist() == due_ns
    assert (played.records["sent_ns"] >= played.records["scheduled_ns"]).all()
    counted = played.records[played.records["phase"] == Phase.COUNTED]
    assert len(counted) == played.plan.counted_turns == 16
    assert _alive_together(played.records) > 1
    lengths = stage.tokenizer.count(_templated(played.plan.sessions[0], 0))
    assert set(firsts["prompt_tokens"]) == {lengths}


def test_users_who_leave_are_aborted_and_go_on(stage: Stage, tmp_path: Path) -> None:
    """The engine aborts exactly the replies that users left, and every later prompt holds what the plan says.

    That is what went before on its own branch, with as much of a reply as was read; and it is cached, to the page.
    """
    before = stage.aborted()
    played = stage.play(load_scenario(DATA / "branches.yaml"), tmp_path)
    records = played.records[played.records["status"] != "cut"]
    planned = {(s.session_id, n): turn for s in played.plan.sessions for n, turn in enumerate(s.turns)}
    sent = [(row["session_id"], row["turn"]) for row in records.to_dict("records")]
    left = [planned[key].cancel_after_tokens is not None for key in sent]
    assert (records["status"] == "cancelled").tolist() == left
    assert played.outcome.turns_not_played == 0
    assert sum(left) >= 5
    assert any(planned[key].after is not None for key in sent)
    cut = len(played.records) - len(records)
    stage.flush()
    assert sum(left) <= stage.aborted() - before <= sum(left) + cut
    reckoned = page_exact(played.plan, records, PAGE_TOKENS)
    assert records["prompt_tokens"].tolist() == [each.prompt_tokens for each in reckoned]
    assert records["cached_tokens"].tolist() == [each.cached_tokens for each in reckoned]


@pytest.mark.parametrize("name", ["few-shot", "documents"])
def test_cached_tokens_are_the_shared_prefix_to_the_page(stage: Stage, tmp_path: Path, name: str) -> None:
    """Examples, documents and own histories are found in the cache, as far as the plan shares them and no further."""
    played = stage.play(load_scenario(DATA / f"{name}.yaml"), tmp_path)
    whole = played.records[played.records["status"] == "ok"]
    reckoned = page_exact(played.plan, whole, PAGE_TOKENS)
    assert whole["prompt_tokens"].tolist() == [each.prompt_tokens for each in reckoned]
    assert whole["cached_tokens"].tolist() == [each.cached_tokens for each in reckoned]
    across = [each.cached_tokens for each in reckoned if each.turn == 0]
    assert sum(map(bool, across)) >= 4


def test_a_mooncake_trace_is_played_as_recorded(stage: Stage, tmp_path: Path) -> None:
    """Prompts are as long as recorded, and hit as far as the trace's blocks say.

    Between sessions that is whole blocks; within a session a prompt goes on from the whole prompt before it.
    """
    assert run(["scenario", "convert", str(DATA / "mooncake-cut.jsonl"), str(tmp_path / "cut.jsonl")]) == 0
    with (tmp_path / "cut.yaml").open("a", encoding="utf-8") as scenario:
        scenario.write("  speed: 12\n")
    played = stage.play(load_scenario(tmp_path / "cut.yaml"), tmp_path)
    lines = [json.loads(line) for line in (DATA / "mooncake-cut.jsonl").read_text(encoding="utf-8").splitlines()]
    found = played.records.sort_values("scheduled_ns")
    assert found["prompt_tokens"].tolist() == [row["input_length"] for row in lines]
    assert found["cached_tokens"].tolist() == _shared_tokens(lines)


def test_a_chat_log_is_sent_word_for_word(stage: Stage, tmp_path: Path) -> None:
    """English and Chinese: the engine counts as many prompt tokens as for the messages of the log's own lines."""
    log = DATA / "chats.jsonl"
    assert run(["scenario", "convert", str(log), str(tmp_path / "c.jsonl")]) == 0
    played = stage.play(load_scenario(tmp_path / "c.yaml"), tmp_path)
    asked = []
    for line in log.read_text(encoding="utf-8").splitlines():
        request = {"model": "tiny", "messages": json.loads(line)["messages"], "max_tokens": 1}
        answer = stage.engine.client.post("/v1/chat/completions", json=request).raise_for_status()
        asked.append(answer.json()["usage"]["prompt_tokens"])
    assert played.records.sort_values("scheduled_ns")["prompt_tokens"].tolist() == asked


def test_chinese_prompts_have_the_asked_length(stage: Stage, tmp_path: Path) -> None:
    """Every prompt has as many tokens on the engine as its messages in the template."""
    played = stage.play(load_scenario(DATA / "chinese.yaml"), tmp_path)
    sessions = {session.session_id: session for session in played.plan.sessions}
    whole = played.records[played.records["status"] == "ok"]
    texts = [_templated(sessions[row["session_id"]], row["turn"]) for row in whole.to_dict("records")]
    assert whole["prompt_tokens"].tolist() == [stage.tokenizer.count(text) for text in texts]
    assert all(re.search("[\u4e00-\u9fff]", text) for text in texts)
    bare = stage.tokenizer.count(_template([("system", ""), ("user", "")]))
    assert set(whole[whole["turn"] == 0]["prompt_tokens"]) == {60 + 80 + bare}


def test_the_hit_rate_is_as_analyzed(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pool that is too small hits about as often as `analyze` expects of it before any request is sent."""
    pool = stage.engine.kv_pool_tokens()
    played = stage.play(load_scenario(DATA / "shelf.yaml"), tmp_path)
    whole = played.records[played.records["status"] == "ok"]
    service_s = float(((whole["end_ns"] - whole["sent_ns"]) / 1e9).mean())
    flags = ["--device-kv-tokens", str(pool), "--page-size", str(PAGE_TOKENS), "--service-s", f"{service_s:.3f}"]
    capsys.readouterr()
    assert run(["analyze", str(DATA / "shelf.yaml"), *flags, "--json"]) == 0
    analysis = json.loads(capsys.readouterr().out)
    counted = whole[whole["phase"] == Phase.COUNTED]
    measured = counted["cached_tokens"].sum() / counted["prompt_tokens"].sum()
    expected = analysis["cache"]["marks"][0]["device_hit_rate"]
    endless = max(analysis["cache"]["curve"]["hit_rates"])
    assert measured == pytest.approx(expected, abs=POINTS)
    assert measured < endless - 2 * POINTS


def _alive_together(records: pd.DataFrame) -> int:
    """Return the most sessions that were alive at one time."""
    spans = records.groupby("session_id").agg(begin=("sent_ns", "min"), end=("end_ns", "max"))
    return max(int(((spans["begin"] <= at) & (spans["end"] > at)).sum()) for at in spans["begin"])


def _shared_tokens(lines: list[dict[str, Any]]) -> list[int]:
    """Return what each request of a Mooncake trace finds in an endless cache, to the engine's page."""
    shared = []
    for number, row in enumerate(lines):
        most = 0
        for other in lines[:number]:
            blocks = next(
                (n for n, (a, b) in enumerate(zip(row["hash_ids"], other["hash_ids"], strict=False)) if a != b),
                min(len(row["hash_ids"]), len(other["hash_ids"])),
            )
            own = other["input_length"] if other["session_id"] == row["session_id"] else 0
            most = max(most, blocks * BLOCK_TOKENS, own)
        shared.append(min(most, row["input_length"] - 1) // PAGE_TOKENS * PAGE_TOKENS)
    return shared


def _template(messages: list[tuple[str, str]]) -> str:
    said = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return f"{said}<|im_start|>assistant\n"


def _templated(session: Session, index: int) -> str:
    """Write the prompt of a turn as the tiny model's chat template does."""
    messages = [("system", session.system_text or "")]
    for turn in session.turns[:index]:
        messages += _said(turn)
    return _template([*messages, ("user", session.turns[index].text or "")])


def _said(turn: Turn) -> list[tuple[str, str]]:
    return [("user", turn.text or ""), ("assistant", turn.reply_text or "")]
