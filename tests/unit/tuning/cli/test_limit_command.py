"""`hicache-tune find-limit`: plans, exit codes, the answer for people and for programs, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.engine.setting import Setting
from harness.lab import Lab
from harness.store import Purpose, TrialRecord, folder_of, write_trial
from scenarios.plan import Plan
from tests.support.console import Run
from tests.support.trials import failed, invalid, measured, not_sustainable
from tuning.limit_finder import LimitFinder

CPU = ("find-limit", "--engine", "cpu", "--study", "s", "--scenario", "cpu-smoke", "--sessions", "2")
LIMIT = Path("results/s/limit.json")
CAPACITY_PER_S = 5.0


class Queue:
    """An engine whose P99 grows with the rate and passes 2 s at its capacity; it keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        self.settings: set[str] = set()
        self.answer: Callable[[Setting, float], TrialRecord] = _queueing
        self.after_each: Callable[[], None] = lambda: None
        self.stopped = False

    def __call__(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        """Answer, and leave the record where a trial would."""
        assert plan.rate_per_s is not None
        assert plan.concurrency is None
        self.asked.append((plan.rate_per_s, plan.seed))
        self.settings.add(setting.key)
        update = {"number": number, "purpose": purpose, "seed": plan.seed, "rate_per_s": plan.rate_per_s}
        record = self.answer(setting, plan.rate_per_s).model_copy(update=update)
        folder_of(lab.root, number, purpose).mkdir(parents=True)
        write_trial(record, folder_of(lab.root, number, purpose))
        self.after_each()
        return record


def _queueing(setting: Setting, rate_per_s: float) -> TrialRecord:
    if rate_per_s >= 2 * CAPACITY_PER_S:
        return not_sustainable(setting)
    return measured(setting, 2.0 * rate_per_s / CAPACITY_PER_S)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Put a simulated engine in place of trials."""
    simulated = Queue()
    monkeypatch.setattr("tuning.limit_finder.LimitFinder", partial(LimitFinder, measure=simulated))
    return simulated


def test_help_names_the_level_and_the_rates(run: Run) -> None:
    """Every flag of the search for a limit is there with its meaning, beside those that say what is measured."""
    said = run("find-limit", "--help")
    assert said.code == 0
    for flag in (
        "--slo",
        "--start-rate",
        "--min-rate",
        "--max-rate",
        "--precision",
        "--budget",
        "--scenario",
        "--json",
    ):
        assert flag in said.out
    assert "TTFT" in said.out or "ttft.p99" in said.out


def test_a_dry_run_says_what_would_be_probed_and_launches_nothing(run: Run, queue: Queue) -> None:
    """The setting, its launch command, the first rate and how it goes on."""
    said = run(*CPU, "--dry-run", "--start-rate", "0.5", "--hicache-ratio", "3")
    assert (said.code, said.out, queue.asked) == (0, "", [])
    assert "--enable-hierarchical-cache --hicache-ratio 3" in said.err
    assert (
        "first rate 0.5 sessions/s, then doubled until ttft.p99 <= 2s is missed, then halved to within 10%" in said.err
    )
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        ((), Setting()),
        (("--hicache", "on"), Setting(hicache=True)),
        (("--hicache-ratio", "3"), Setting(hicache=True, hicache_ratio=3.0)),
        (("--hicache-size", "2", "--page-size", "64"), Setting(hicache=True, hicache_size=2, page_size=64)),
        (("--mem-fraction-static", "0.8"), Setting(mem_fraction_static=0.8)),
    ],
)
def test_flags_that_are_not_given_are_those_of_sglang(
    run: Run, queue: Queue, flags: tuple[str, ...], setting: Setting
) -> None:
    """Nobody has to spell a setting out; whoever describes a host pool wants HiCache."""
    assert run(*CPU, *flags, "--start-rate", "4").code == 0
    assert queue.settings == {setting.canonical().key}


def test_the_limit_is_found_and_kept(run: Run, queue: Queue) -> None:
    """A table and a sentence for people on stderr; limit.json has the same for programs; stdout stays empty."""
    said = run(*CPU, "--start-rate", "1")
    assert (said.code, said.out) == (0, "")
    limit = json.loads(LIMIT.read_text(encoding="utf-8"))
    assert (limit["schema_version"], limit["ended"]) == (1, "found")
    assert CAPACITY_PER_S / 1.11 <= limit["meets_per_s"] <= CAPACITY_PER_S < limit["misses_per_s"]
    assert f"{limit['meets_per_s']:g} sessions/s keep ttft.p99 <= 2s" in said.err
    assert "Rates probed" in said.err
    assert [probe["rate_per_s"] for probe in limit["probes"]] == sorted(rate for rate, _ in queue.asked)
    assert queue.asked[-1] == (limit["meets_per_s"], queue.asked[0][1] + 1000)
    assert len(queue.settings) == 1


def test_json_on_stdout_is_limit_json(run: Run, queue: Queue) -> None:
    """To the byte."""
    said = run(*CPU, "--start-rate", "4", "--json")
    assert said.code == 0
    assert said.out == LIMIT.read_text(encoding="utf-8")


def test_rates_stay_between_their_bounds(run: Run, queue: Queue) -> None:
    """An engine that keeps the highest allowed rate is asked for no more, and that is an answer."""
    said = run(*CPU, "--start-rate", "1", "--max-rate", "3")
    assert said.code == 0
    assert [rate for rate, _ in queue.asked] == [1.0, 2.0, 3.0, 3.0]
    assert json.loads(LIMIT.read_text(encoding="utf-8"))["ended"] == "none missed"
    assert "no rate that was probed misses it, so the limit lies at this rate or above" in said.err


def test_no_rate_that_keeps_the_level_is_exit_code_2(run: Run, queue: Queue) -> None:
    """The search has its answer: none of these."""
    said = run(*CPU, "--start-rate", "8", "--min-rate", "6", "--slo", "ttft.p99 <= 1s")
    assert said.code == 2
    assert "No rate that was probed keeps ttft.p99 <= 1s" in said.err
    assert "not even 8 sessions/s" in said.err


def test_a_budget_that_ends_is_exit_code_124_and_more_of_it_goes_on(run: Run, queue: Queue) -> None:
    """What is known is said and kept; nothing is probed twice."""
    said = run(*CPU, "--start-rate", "1", "--budget", "1s")
    assert said.code == 124
    assert json.loads(LIMIT.read_text(encoding="utf-8"))["ended"] == "budget"
    assert run(*CPU, "--start-rate", "1", "--resume").code == 0
    assert len(set(queue.asked)) == len(queue.asked)


def test_a_stop_is_exit_code_130_and_can_be_resumed(run: Run, queue: Queue) -> None:
    """The sentence says how to go on, and going on probes what a search in one go would have probed."""

    def stop() -> None:
        if len(queue.asked) == 2 and not queue.stopped:
            queue.stopped = True
            os.kill(os.getpid(), signal.SIGINT)

    queue.after_each = stop
    said = run(*CPU, "--start-rate", "1")
    assert said.code == 130
    assert "Nothing is lost; go on with the same flags and --study s --resume" in said.err
    assert run(*CPU, "--start-rate", "1", "--resume").code == 0
    in_two = list(queue.asked)
    queue.asked.clear()
    assert (
        run(
            "find-limit",
            "--engine",
            "cpu",
            "--scenario",
            "cpu-smoke",
            "--sessions",
            "2",
            "--study",
            "t",
            "--start-rate",
            "1",
        ).code
        == 0
    )
    assert queue.asked == in_two


@pytest.mark.parametrize(
    ("answer", "said"),
    [(failed, "the engine failed with gpu_oom"), (invalid, "sessions/s could not be measured: ")],
)
def test_what_no_rate_can_mend_is_exit_code_1(
    run: Run, queue: Queue, answer: Callable[[Setting], TrialRecord], said: str
) -> None:
    """An engine that does not start, and a client that cannot keep up, are named; no answer is claimed."""
    queue.answer = lambda setting, _: answer(setting)
    found = run(*CPU, "--start-rate", "1")
    assert found.code == 1
    assert said in found.err
    assert not LIMIT.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hicache-ratio", "2,3"), "--hicache-ratio 2,3: find-limit measures one setting; give one value"),
        (("--hicache", "off,on"), "--hicache off,on: find-limit measures one setting; give one value"),
        (
            ("--slo", "ttft.p99 >= 2s"),
            "--slo `ttft.p99 >= 2s`: a service level is an upper bound; write METRIC <= LIMIT",
        ),
        (("--slo", "ttft.p98 <= 2s"), "constraint `ttft.p98 <= 2s`: unknown metric `ttft.p98`; did you mean "),
        (("--min-rate", "2", "--max-rate", "1"), "--min-rate 2 is above --max-rate 1; swap them"),
        (("--start-rate", "0"), 'Invalid value "0.0" for --start-rate. Must be > 0.'),
        (("--precision", "2"), 'Invalid value "2.0" for --precision. Must be <= 1.'),
        (("--budget", "15"), "--budget 15: write a duration above zero, such as 90s, 15m, 2h or 1h30m"),
        (("--rate", "1"), "Unknown option: --rate."),
    ],
)
def test_a_mistake_is_named_with_what_to_do(run: Run, queue: Queue, arguments: tuple[str, ...], said: str) -> None:
    """One sentence on stderr, exit code 1, and nothing is launched or made on disk."""
    answer = run(*CPU, *arguments)
    assert answer.code == 1
    assert answer.err.startswith(f"hicache-tune: {said}")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert queue.asked == []
    assert not Path("results").exists()
