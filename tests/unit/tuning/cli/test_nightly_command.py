"""`hicache-tune nightly`, night after night over a simulated engine: outcomes, exit codes, and what is left on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from filelock import FileLock

from harness.engine.failure import FailureKind
from harness.environment import Environment
from harness.store import TrialRecord
from tests.support.console import Run, Said
from tests.support.simulated_nights import Calendar, NightEngine
from tests.support.trials import failed, invalid, measured, not_sustainable
from tuning.nightly.history import History, NightRecord
from tuning.nightly.production import production_setting
from tuning.nightly.words import NightSummary
from tuning.search import Searcher

JOB = """
job = "chat"
production = "--enable-hierarchical-cache --hicache-ratio 2 --page-size 16"
threshold = 0.1
baseline = {baseline}
{more}

[search]
engine = "cpu"
scenario = "cpu-smoke"
{search}
"""
PRODUCTION = production_setting(["--enable-hierarchical-cache", "--hicache-ratio=2", "--page-size=16"])
Usage = namedtuple("Usage", "total used free")
Night = Callable[[], Said]


def write_job(more: str = "", search: str = "", *, baseline: bool = False) -> None:
    """Write nightly.toml."""
    text = JOB.format(more=more, search=search, baseline=str(baseline).lower())
    Path("nightly.toml").write_text(text, encoding="utf-8")


def nights() -> list[NightRecord]:
    """Read the history, the first night first."""
    with History(Path("results/chat/history.sqlite")) as history:
        return history.nights("chat")[::-1]


def outcomes() -> list[str | None]:
    """Return how the nights ended; None for one that did not."""
    return [record.night.outcome if record.night else None for record in nights()]


def interrupt(record: TrialRecord) -> None:
    """Ask for a stop three times, as an impatient person and systemd do; SIGTERM is heeded in the background too."""
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> NightEngine:
    """Put a simulated engine in place of trials."""
    simulated = NightEngine()
    monkeypatch.setattr("tuning.search.Searcher", partial(Searcher, measure=simulated))
    monkeypatch.setattr("tuning.nightly.night.run_trial", simulated)
    return simulated


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> Calendar:
    """Put a clock of the test's own in place of the real one."""
    clock = Calendar()
    monkeypatch.setattr("tuning.nightly.run.utc_now", clock)
    return clock


@pytest.fixture
def night(run: Run, engine: NightEngine, calendar: Calendar) -> Night:
    """Run the next night."""

    def next_night() -> Said:
        said = run("nightly")
        calendar.pass_days(1)
        return said

    write_job()
    return next_night


def test_a_first_night_has_nothing_to_compare_with(night: Night) -> None:
    """It is good, and later nights are compared with it."""
    said = night()
    assert said.code == 0
    assert "TTFT P99" in said.err
    assert "there is no good night before to compare with" in said.err
    assert outcomes() == ["good"]


def test_an_equal_night_is_compared_with_the_one_before(night: Night, engine: NightEngine) -> None:
    """Production is measured once on each seed, the same ones each night, and has not changed."""
    night()
    said = night()
    assert said.code == 0
    assert "+0% [+0%, +0%] against the good night of 2026-11-01" in said.err
    assert engine.asked == [("confirm", PRODUCTION, seed) for seed in (1001, 1002)] * 2
    assert nights()[-1].night is not None
    assert nights()[-1].night.change_ratio == 0.0  # type: ignore[union-attr]


def test_a_slow_down_is_a_regression_once_a_repeat_shows_it_too(night: Night, engine: NightEngine) -> None:
    """Exit code 3, the repeat's figure, and the cause: nothing that is recorded differs."""
    night()
    engine.factor = 1.5
    said = night()
    assert said.code == 3
    assert "+50% [+50%, +50%] against the good night of 2026-11-01; likely cause: conditions that are not" in said.err
    assert len(engine.asked) == 2 + 4
    regression = nights()[-1].night
    assert regression is not None
    assert (regression.outcome, regression.cause) == ("regression", "conditions")
    assert regression.change_ratio == pytest.approx(0.5)


def test_what_a_repeat_does_not_show_is_noise(night: Night, engine: NightEngine) -> None:
    """The night is good, says so, and tomorrow's is compared with the repeat, not with the outlier."""
    night()
    engine.factors.extend((1.5, 1.5))
    said = night()
    assert said.code == 0
    assert "within noise, first it was TTFT P99 +50%" in said.err
    assert [record.night.cause for record in nights() if record.night] == [None, "noise"]
    engine.factor = 1.3
    assert night().code == 3


def test_a_regression_stays_one_until_a_person_accepts_it(night: Night, engine: NightEngine, run: Run) -> None:
    """Bad nights are never compared with; --accept makes the latest the new standard."""
    night()
    engine.factor = 1.5
    assert [night().code, night().code] == [3, 3]
    said = run("nightly", "--accept")
    assert (said.code, said.err) == (0, "Later nights are compared with chat-20261103\n")
    assert night().code == 0


def test_a_p99_does_not_creep_up_unseen(night: Night, engine: NightEngine) -> None:
    """Each night is within the threshold of the one before; the third is not within that of the first."""

    def slower(factor: float) -> int:
        engine.factor = factor
        return night().code

    assert [slower(factor) for factor in (1.0, 1.08, 1.16)] == [0, 0, 3]
    assert "+16% [+16%, +16%] against the good night of 2026-11-01" in nights()[-1].sentence


@pytest.mark.parametrize(
    ("changes", "cause", "said"),
    [
        ({"sglang_version": "0.5.16"}, "engine version", "sglang_version was 0.5.15, is 0.5.16"),
        ({"driver": "570.1"}, "driver", "driver was none, is 570.1"),
        ({"gpus": ("H100",)}, "conditions", "gpus was none, is H100"),
    ],
)
def test_a_regression_is_put_down_to_what_has_changed(
    night: Night,
    engine: NightEngine,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    cause: str,
    said: str,
) -> None:
    """A changed engine, driver or GPU is named as the likely cause."""
    night()
    of = Environment.of
    monkeypatch.setattr(Environment, "of", lambda *given: of(*given).model_copy(update=changes))
    engine.factor = 1.5
    answer = night()
    assert answer.code == 3
    assert f"likely cause: {cause} ({said})" in answer.err
    assert nights()[-1].night.cause == cause  # type: ignore[union-attr]


def test_another_workload_is_named_and_compared_as_a_whole(night: Night, engine: NightEngine) -> None:
    """Sessions that have nothing to do with each other are not paired."""
    night()
    write_job(search="sessions = 9")
    engine.factor = 3.0
    said = night()
    assert said.code == 3
    assert "likely cause: workload (the scenario has changed)" in said.err


def test_a_night_is_compared_with_one_of_equal_conditions(
    night: Night, engine: NightEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an excursion to another engine, the last night on the same one counts, though it is older."""
    night()
    of = Environment.of
    with monkeypatch.context() as other:
        other.setattr(Environment, "of", lambda *given: of(*given).model_copy(update={"sglang_version": "0.5.16"}))
        engine.factor = 0.5
        assert "(sglang_version was 0.5.15, is 0.5.16)" in night().err
    engine.factor = 1.0
    said = night()
    assert said.code == 0
    assert "+0% [+0%, +0%] against the good night of 2026-11-01" in said.err


def test_hicache_off_tells_whether_all_of_the_engine_got_slower(night: Night, engine: NightEngine) -> None:
    """The baseline is measured in turn with production, and its change is in the summary."""
    write_job(baseline=True)
    night()
    engine.factor = 1.5
    assert night().code == 3
    page = Path("results/chat-20261102/night.md").read_text()
    assert "- HiCache off at SGLang's defaults: TTFT P99 +50% [+50%, +50%] since the last good night" in page
    assert "| baseline | HiCache off |" in page


def test_production_that_does_not_sustain_the_load_any_more_is_a_regression(night: Night, engine: NightEngine) -> None:
    """There is no figure to compare, and the repeat shows the same."""
    night()
    engine.answers[PRODUCTION.key].extend([not_sustainable(PRODUCTION)] * 4)
    said = night()
    assert said.code == 3
    assert "time to first token only grew during the load; likely cause: conditions" in said.err
    assert nights()[-1].night.change_ratio is None  # type: ignore[union-attr]


def test_production_that_never_was_feasible_is_exit_code_2(night: Night, engine: NightEngine) -> None:
    """A broken constraint on the first night is no regression; there is nothing to compare with."""
    engine.answers[PRODUCTION.key].extend([measured(PRODUCTION, error_rate=0.5)] * 2)
    said = night()
    assert said.code == 2
    assert "breaks errors <= 1%, and there is no good night before" in said.err
    assert outcomes() == ["failed"]


def test_a_failed_engine_is_a_failed_night(night: Night, engine: NightEngine) -> None:
    """Its last lines are printed, and the night is in the history with its conditions."""
    engine.answers[PRODUCTION.key].extend([failed(PRODUCTION, FailureKind.CRASH)] * 2)
    said = night()
    assert said.code == 1
    assert "failed: HiCache ratio 2" in said.err
    assert "last of the last lines" in said.err
    assert outcomes() == ["failed"]
    assert nights()[0].conditions is not None
    assert 'outcome="failed"} 1.0' in Path("results/chat/nightly.prom").read_text()
    assert Path("results/chat-20261101/junit.xml").exists()


def test_a_client_that_does_not_keep_up_is_no_data(night: Night, engine: NightEngine) -> None:
    """No data is no pass."""
    engine.answers[PRODUCTION.key].extend([invalid(PRODUCTION)] * 2)
    assert night().code == 1
    assert outcomes() == ["no data"]


def test_a_budget_that_ends_too_early_is_exit_code_124(night: Night, engine: NightEngine) -> None:
    """The first trial is run in any case; it shows that a second one does not fit."""
    write_job('budget = "20s"')
    said = night()
    assert said.code == 124
    assert "the budget ended before production was measured on every seed" in said.err
    assert len(engine.asked) == 1
    assert outcomes() == ["no data"]


def test_a_full_disk_is_seen_before_anything_is_measured(
    night: Night, engine: NightEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says how much is missing and what to do."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5 * 2**20))
    said = night()
    assert said.code == 1
    assert "results: 5 MiB are free, a night needs 1024; free space, or keep fewer nights" in said.err
    assert engine.asked == []
    assert outcomes() == ["failed"]


def test_a_disk_that_fills_in_the_middle_is_a_failed_night(
    night: Night, engine: NightEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system said, and about which file."""

    def full(record: TrialRecord) -> None:
        raise OSError(28, "No space left on device", "results/x")

    engine.after_each = full
    said = night()
    assert said.code == 1
    assert "results/x: No space left on device; free space" in said.err
    assert outcomes() == ["failed"]


def test_a_history_that_cannot_be_written_never_passes_for_a_success(night: Night, engine: NightEngine) -> None:
    """The night is measured and told all the same."""

    def hold(record: TrialRecord) -> None:
        sqlite3.connect("results/chat/history.sqlite").execute("DROP TABLE IF EXISTS answers").connection.close()

    engine.after_each = hold
    said = night()
    assert said.code == 1
    assert "history.sqlite: cannot be used (no such table: answers)" in said.err
    assert "TTFT P99" in said.err


def test_missed_nights_are_found_from_the_history(night: Night, calendar: Calendar) -> None:
    """They are named on the page and in the JUnit report; the night itself is what it is."""
    night()
    calendar.pass_days(2)
    said = night()
    assert said.code == 0
    assert "2 nights were missed since 2026-11-01 01:00 UTC" in said.err
    assert "- 2 nights were missed" in Path("results/chat-20261104/night.md").read_text()


def test_a_night_that_was_stopped_is_gone_on_with(night: Night, engine: NightEngine, run: Run) -> None:
    """A stop, asked for however often, is exit code 130; the same command that day measures what is missing."""
    engine.after_each = interrupt
    stopped = run("nightly")
    assert stopped.code == 130
    assert "Nothing is lost; give the same command again today" in stopped.err
    assert outcomes() == [None]
    engine.after_each = lambda _: None
    assert night().code == 0
    assert [seed for _, _, seed in engine.asked] == [1001, 1002]
    assert [record.study for record in nights()] == ["chat-20261101"]


def test_a_night_that_was_cut_is_closed_on_another_day(night: Night, engine: NightEngine) -> None:
    """It has no data, and the next one is a night of its own."""
    engine.after_each = interrupt
    night()
    engine.after_each = lambda _: None
    assert night().code == 0
    assert outcomes() == ["no data", "good"]


def test_a_night_that_was_cut_is_not_gone_on_with_under_other_conditions(
    night: Night, engine: NightEngine, run: Run
) -> None:
    """A changed load on the same day begins a study of its own (design rule 11)."""
    engine.after_each = interrupt
    run("nightly")
    engine.after_each = lambda _: None
    write_job(search="sessions = 9")
    assert night().code == 0
    assert [(record.study, record.night and record.night.outcome) for record in nights()] == [
        ("chat-20261101", "no data"),
        ("chat-20261101-anew", "good"),
    ]


def test_a_second_night_of_a_day_is_one_of_its_own(night: Night, run: Run) -> None:
    """Its study gets a number."""
    run("nightly")
    run("nightly")
    assert [record.study for record in nights()] == ["chat-20261101", "chat-20261101-2"]


def test_a_night_is_skipped_while_something_else_measures(night: Night, tmp_path: Path) -> None:
    """Two measurements on one device would disturb each other."""
    with FileLock(tmp_path / f"hicache-tune-{os.getuid()}-cpu.lock"):
        said = night()
    assert said.code == 1
    assert "skipped: another hicache-tune measures on cpu of this machine" in said.err
    assert outcomes() == ["skipped"]


def test_two_nights_of_a_job_do_not_run_at_once(night: Night) -> None:
    """The second ends at once and leaves the history to the first."""
    night()
    with FileLock("results/chat/.lock"):
        said = night()
    assert (said.code, said.err) == (1, "hicache-tune: another night of the job chat runs; wait for it, or end it\n")
    assert outcomes() == ["good"]


def test_results_that_cannot_be_made_are_named(night: Night) -> None:
    """A file stands in their place."""
    Path("results").touch()
    said = night()
    assert said.code == 1
    assert (
        said.err
        == "hicache-tune: results/chat/.lock: cannot be made (Not a directory); free space or choose other results\n"
    )


def test_a_search_proposes_what_is_surely_faster_and_applies_nothing(night: Night, engine: NightEngine) -> None:
    """The winner was confirmed in turn with production; the proposal is a file."""
    write_job('mode = "search"\nrounds = 1', "trials = 5\nconfirm-top = 1\nhicache = 'on'\nhicache-ratio = '5,6'")
    said = night()
    assert said.code == 0
    assert "Proposed, for you to apply: " in said.err
    record = nights()[0]
    assert record.proposal is not None
    assert "--hicache-ratio 2" in record.proposal.read_text()
    assert record.night is not None
    assert record.night.winner is not None
    assert "ratio 6" in record.night.winner.setting or "ratio 5" in record.night.winner.setting
    assert record.night.baseline is not None
    assert len([ask for ask in engine.asked if ask == ("confirm", PRODUCTION, 1001)]) == 1


def test_the_metrics_and_the_junit_report_are_what_readers_ask_for(night: Night, engine: NightEngine) -> None:
    """One textfile of the latest night, and one failure for a regression."""
    night()
    engine.factor = 2.0
    night()
    metrics = Path("results/chat/nightly.prom").read_text()
    assert 'hicache_tune_nightly_outcome_state{job_name="chat",outcome="regression"} 1.0' in metrics
    assert re.search(r'hicache_tune_nightly_change_ratio\{job_name="chat"\} (1\.0|0\.9999)', metrics)
    assert 'hicache_tune_nightly_ttft_p99_seconds{job_name="chat",role="production"}' in metrics
    suite = ElementTree.parse("results/chat-20261102/junit.xml").getroot()  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")


def test_the_webhook_is_told_and_its_failure_costs_nothing(
    night: Night, engine: NightEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address comes from the environment alone, and is in no file."""
    told: list[tuple[str, NightSummary, str]] = []
    monkeypatch.setattr("tuning.nightly.publish.send", lambda url, summary, *, kind: told.append((url, summary, kind)))
    monkeypatch.setenv("CHAT_HOOK", "https://hooks.example/secret")
    write_job()
    with Path("nightly.toml").open("a") as file:
        file.write('[webhook]\nurl_env = "CHAT_HOOK"\nkind = "slack"\n')
    night()
    ((url, summary, kind),) = told
    assert (url, kind, summary.exit_code, summary.job) == ("https://hooks.example/secret", "slack", 0, "chat")
    assert all(b"hooks.example" not in path.read_bytes() for path in Path("results").rglob("*") if path.is_file())


def test_json_is_the_night(night: Night, run: Run) -> None:
    """For programs, on stdout alone."""
    said = run("nightly", "--json")
    printed = json.loads(said.out)
    assert (printed["study"], printed["exit_code"], printed["night"]["outcome"]) == ("chat-20261101", 0, "good")


def test_a_dry_run_measures_nothing_and_leaves_nothing(run: Run, engine: NightEngine) -> None:
    """The command of production is there to be read."""
    write_job()
    said = run("nightly", "--dry-run")
    assert said.code == 0
    assert "job chat: HiCache ratio 2" in said.err
    assert "--hicache-ratio 2.0" in said.err
    assert not Path("results").exists()
    assert engine.asked == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--config", "none.toml"), "--config none.toml: cannot be read (No such file or directory); name the job's"),
        (("--accept",), "--accept: the job chat has no night yet; run it first"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """One sentence, exit code 1."""
    write_job()
    answer = run("nightly", *arguments)
    assert answer.code == 1
    assert said in answer.err


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ('scenario = "none.yaml"', "cannot read the scenario none.yaml: No such file or directory"),
        ("concurrency = 0", "concurrency"),
        ("tp-size = 0", "the flags: `tp_size`: input should be greater than or equal to 1"),
        ("trials = 1", "the flags: `trials`: input should be greater than or equal to 2"),
        ('constraint = ["error <= 1%"]', "constraint `error <= 1%`: unknown metric `error`; did you mean `errors`?"),
        ('load-limit = "soon"', "--load-limit soon: write a duration above zero"),
    ],
)
def test_a_mistake_in_the_file_is_named_before_a_night_begins(run: Run, search: str, said: str) -> None:
    """One sentence, exit code 1, and nothing is made on disk."""
    Path("nightly.toml").write_text(f'job = "chat"\nproduction = []\n[search]\nengine = "cpu"\n{search}\n')
    answer = run("nightly")
    assert answer.code == 1
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("results").exists()


def test_flags_of_production_that_the_engine_does_not_have_are_a_failed_night(run: Run, engine: NightEngine) -> None:
    """An engine may lose a flag overnight; nothing is launched to find out."""
    write_job()
    path = Path("nightly.toml")
    path.write_text(path.read_text().replace("--page-size 16", "--page-sizes 16"))
    answer = run("nightly")
    assert answer.code == 1
    assert (
        "failed: production: --page-sizes 16: SGLang 0.5.15 has no --page-sizes; did you mean `page-size`?"
        in answer.err
    )
    assert engine.asked == []
    assert outcomes() == ["failed"]


def test_a_missing_variable_is_named_before_hours_are_spent(run: Run, engine: NightEngine) -> None:
    """The webhook's address is read first."""
    write_job('webhook = {url_env = "NO_HOOK"}')
    answer = run("nightly")
    assert answer.code == 1
    assert "webhook.url_env: the variable NO_HOOK is not set; set it to the address" in answer.err
    assert engine.asked == []


def test_units_are_written_for_the_job_and_never_over_a_file(run: Run, engine: NightEngine) -> None:
    """They name the job's file; a second time is refused in one sentence, and nothing is launched."""
    write_job()
    answer = run("nightly", "--write-units", "units")
    assert answer.code == 0, answer.err
    service = Path("units/hicache-tune-nightly.service").read_text(encoding="utf-8")
    assert str(Path("nightly.toml").absolute()) in service
    assert answer.err.count("wrote units/") == len(list(Path("units").iterdir())) == 4
    again = run("nightly", "--write-units", "units")
    assert again.code == 1
    assert "is there already, and may hold changes of yours" in again.err
    assert engine.asked == []
