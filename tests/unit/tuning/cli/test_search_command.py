"""`hicache-tune search` and `report`: plans, exit codes and what is printed where."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.engine.failure import FailureKind
from harness.store import TrialRecord
from tests.support.console import Run, Said
from tests.support.simulated import SimulatedEngine
from tests.support.trials import failed, invalid
from tuning.cli.options import SearchOptions
from tuning.config import read_study
from tuning.space import WITH_HICACHE, Dimension
from tuning.study import BASELINES

OFF, ON = BASELINES
CPU = ("search", "--engine", "cpu", "--study", "s", "--scenario", "cpu-smoke")
SMALL = (
    *CPU,
    "--hicache",
    "on",
    "--mem-fraction-static",
    "0.88",
    "--page-size",
    "16",
    "--transfer",
    "direct/layer_first",
)
QUICK = (*SMALL, "--hicache-write-policy", "write_back", "--hicache-ratio", "3,4")


def launch_lines(said: Said) -> list[str]:
    """Return the launch commands that were printed."""
    return [line for line in said.err.splitlines() if "sglang.launch_server" in line]


def test_a_dry_run_prints_the_baselines_and_launches_nothing(run: Run, model: Path) -> None:
    """The plan is there to be read: what is searched, and each first command whole."""
    said = run(*CPU, "--dry-run", "--trials", "4")
    assert (said.code, said.out) == (0, "")
    assert "4 settings, then 10 trials of confirmation; constraints: errors <= 1%, headroom.host >= 1GiB" in said.err
    assert "  hicache: off,on\n" in said.err
    assert "  hicache_ratio: 1.5:6:0.5 (with HiCache)\n" in said.err
    off, on, *proposals = launch_lines(said)
    assert off.startswith(f"engine/python -m sglang.launch_server --model-path {model} --host 127.0.0.1 --port ")
    assert "hierarchical" not in off
    assert "--enable-hierarchical-cache --hicache-ratio 2.0 --hicache-write-policy write_through" in on
    assert len(proposals) == 2
    assert not Path("results").exists()


def test_a_disk_that_is_full_is_said_in_one_sentence(run: Run, engine: SimulatedEngine) -> None:
    """With what to do; the study goes on where it was."""

    def full(record: TrialRecord) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "results/s/study.log")

    engine.after_each = full
    said = run(*QUICK, "--trials", "3")
    assert said.code == 1
    assert "results/s/study.log: the disk is full; free space or choose another --results" in said.err
    engine.after_each = lambda record: None
    assert run(*QUICK, "--trials", "3", "--resume").code == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--engine", "cpu"), "trials of confirmation; constraints"),
        (("--engine", "cpu", "--stress"), "trials of confirmation, the winner under more load; constraints"),
        (
            ("--engine", "cpu", "--confirm-rounds-most", "5"),
            "10 trials of confirmation, up to 3 more rounds of what is in question; constraints",
        ),
    ],
)
def test_what_a_confirmation_may_take_is_in_the_plan(run: Run, flags: tuple[str, ...], said: str) -> None:
    """A search on CPU stays quick unless more is asked for."""
    assert said in run("search", *flags, "--scenario", "cpu-smoke", "--dry-run").err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, (6, True)),
        ({"engine": "docker", "confirm_rounds": 1}, (3, True)),
        ({"engine": "attach"}, (6, False)),
        ({"engine": "cpu"}, (2, False)),
        ({"engine": "cpu", "confirm_rounds": 0}, (0, False)),
        ({"engine": "cpu", "confirm_rounds_most": 4, "stress": True}, (4, True)),
        ({"stress": False}, (6, False)),
    ],
)
def test_the_engine_decides_how_much_a_proof_may_take(flags: dict[str, Any], expected: tuple[int, bool]) -> None:
    """Nobody else's server is stressed, and the CPU engine is for quick searches, unless that is asked for."""
    effort = SearchOptions(**flags).effort()
    assert (effort.confirm_rounds_most, effort.stress) == expected
    assert effort.confirm_until == 0.05


def test_a_dry_run_of_the_baselines_alone_proposes_nothing(run: Run) -> None:
    """Two trials are the two baselines."""
    assert len(launch_lines(run(*CPU, "--dry-run", "--trials", "2"))) == 2


def test_flags_win_over_variables_over_the_file_over_defaults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of --trials is HICACHE_TUNE_TRIALS; the file's key is `trials` below [search]."""
    assert "20 settings" in run(*CPU, "--dry-run").err
    Path("hicache-tune.toml").write_text("[search]\ntrials = 3\nconfirm_top = 1\n", encoding="utf-8")
    assert "3 settings, then 6 trials" in run(*CPU, "--dry-run").err
    monkeypatch.setenv("HICACHE_TUNE_TRIALS", "4")
    assert "4 settings, then 6 trials" in run(*CPU, "--dry-run").err
    assert "5 settings, then 6 trials" in run(*CPU, "--dry-run", "--trials", "5").err


def test_lists_and_switches_come_from_the_file_too(run: Run) -> None:
    """Constraints as a list, a dry run as true."""
    lines = ("[search]", 'constraint = ["errors <= 2%", "ttft.p50 <= 1s"]', "dry-run = true", 'engine = "cpu"')
    Path("hicache-tune.toml").write_text("\n".join(lines), encoding="utf-8")
    assert "constraints: errors <= 2%, ttft.p50 <= 1s" in run("search").err


def test_a_size_of_the_user_takes_the_place_of_the_default_ratio(run: Run) -> None:
    """Else every search over sizes would be refused for a ratio that nobody gave."""
    said = run(*CPU, "--dry-run", "--hicache-size", "2:4")
    assert "  hicache_size: 2:4:1 (with HiCache)\n" in said.err
    assert "hicache_ratio:" not in said.err


def test_a_flag_is_left_out_of_the_space_with_default(run: Run) -> None:
    """It may then be fixed for every launch; and a flag that is fixed to the one value searched is no conflict."""
    fixed = ("--engine-arg=--page-size=64", "--engine-arg=--mem-fraction-static=0.9")
    answer = run(*CPU, "--dry-run", "--page-size", "default", "--mem-fraction-static", "0.9", *fixed)
    assert answer.code == 0
    assert "page_size" not in answer.err
    assert "mem_fraction_static: 0.9" in answer.err


TABLES = """
[search]
engine = "cpu"

[[search.dimension]]
flag = "max-running-requests"
type = "int"
range = [8, 64]
log = true

[[search.dimension]]
flag = "enable-mixed-chunk"
type = "switch"
when = { chunked-prefill-size = 512, hicache = "on" }
"""


def test_a_preset_says_what_is_searched_where_no_flag_does(run: Run) -> None:
    """The plan shows its values and, in words, when each flag exists; a flag of the user wins."""
    small = run(*CPU, "--dry-run", "--preset", "hicache").err
    assert "  hicache_ratio: 1.5:6:0.5 (with HiCache)\n" in small
    assert "page_size" not in small
    full = run(*CPU, "--dry-run", "--preset", "full", "--page-size", "32").err
    assert "  page_size: 32\n" in full
    assert "  schedule-policy: fcfs,lpm,dfs-weight\n" in full
    assert "  hicache-storage-backend: default,file (with HiCache, when transfer is direct/page_first_direct)\n" in full
    policies = "best_effort,wait_complete,timeout (with HiCache, when hicache-storage-backend is file)"
    assert f"  hicache-storage-prefetch-policy: {policies}\n" in full


def test_the_file_adds_dimensions_of_the_user_s_own(run: Run) -> None:
    """Any engine flag, with a scale and conditions; they are checked against the engine's own flags."""
    Path("hicache-tune.toml").write_text(TABLES, encoding="utf-8")
    said = run("search", "--preset", "full", "--dry-run")
    assert "  max-running-requests: 8:64:log\n" in said.err
    assert "  enable-mixed-chunk: off,on (when chunked-prefill-size is 512, with HiCache)\n" in said.err
    refused = run("search", "--dry-run")
    assert refused.code == 1
    assert "--enable-mixed-chunk, when --chunked-prefill-size: that flag is not searched; search it too" in refused.err
    Path("hicache-tune.toml").write_text(TABLES.replace("max-running", "max-runing"), encoding="utf-8")
    misspelt = run("search", "--preset", "full", "--dry-run")
    assert "SGLang 0.5.15 has no --max-runing-requests; did you mean `max-running-requests`?" in misspelt.err


def test_a_table_of_the_file_says_nothing_to_other_commands(run: Run) -> None:
    """They run beside it."""
    Path("hicache-tune.toml").write_text(TABLES, encoding="utf-8")
    assert run("scenario", "list").code == 0


def test_what_cannot_fit_is_not_searched(run: Run, engine: SimulatedEngine) -> None:
    """A note says what was cut off and why; a resume with the same flags is the same study."""
    sizes = ("--hicache-size", "1,2,900000", "--hicache-write-policy", "write_back")
    said = run(*SMALL, *sizes, "--trials", "3", "--confirm-rounds", "0")
    assert said.code == 0
    assert "note: hicache_size 1,2,900000 is cut to 1,2: a host pool of 900000.0 GB over 1 rank(s)" in said.err
    assert read_study(Path("results/s")).search.space.find("hicache_size") == Dimension(
        name="hicache_size", choices=(1, 2), when=(WITH_HICACHE,)
    )
    again = run(*SMALL, *sizes, "--trials", "4", "--confirm-rounds", "0", "--resume")
    assert again.code == 0
    refused = run(*SMALL, "--hicache-size", "900000", "--dry-run")
    assert refused.code == 1
    assert "hicache-tune: --hicache on: no setting can work: a host pool of 900000.0 GB" in refused.err


def test_a_search_ends_with_the_launch_command_and_the_report(run: Run, engine: SimulatedEngine) -> None:
    """What is for people is on stderr; stdout stays empty."""
    said = run(*QUICK, "--trials", "4", "--confirm-top", "1")
    assert (said.code, said.out) == (0, "")
    assert "lower [" in said.err
    assert "Launch it with:" in said.err
    assert any("--port 30000" in line and "--hicache-ratio 4" in line for line in launch_lines(said))
    assert Path("results/s/report.html").exists()
    assert json.loads(Path("results/s/result.json").read_text())["verdict"]["kind"] == "better"


def test_another_objective_is_searched_proven_and_traded(run: Run, engine: SimulatedEngine) -> None:
    """The plan, the progress, the verdict and result.json speak of it; --pareto lists the trade-offs."""
    goals = (*QUICK, "--pareto", "host_memory", "--pareto", "throughput", "--trials", "4", "--confirm-top", "1")
    flags = (*goals, "--objective", "ttft.p95")
    assert "objective: ttft.p95, traded against host_memory, throughput.tokens\n" in run(*flags, "--dry-run").err
    said = run(*flags)
    assert said.code == 0
    assert ": TTFT P95 0." in said.err
    assert "Trade-offs" in said.err
    verdict = json.loads(Path("results/s/result.json").read_text())["verdict"]
    assert (verdict["objective"], verdict["kind"]) == ("ttft.p95", "better")
    assert verdict["winner"]["value"] < verdict["winner"]["p99_s"]
    off = verdict["front"][-1]
    assert (off["label"], off["values"]["host_memory"]) == ("HiCache off", 0.0)
    again = run(*goals, "--resume", "--objective", "ttft.p90")
    assert "objective: was ttft.p95, is ttft.p90" in again.err


def test_trials_are_asked_for_the_goodput_that_is_searched_or_bounded(run: Run, engine: SimulatedEngine) -> None:
    """Else no record could tell it, and no setting could win."""
    level = ("--objective", "goodput{ttft=800ms}", "--constraint", "goodput{ttft=9s} >= 99%")
    said = run(*QUICK, *level, "--trials", "3", "--confirm-top", "1")
    assert said.code == 0
    assert ": goodput{ttft=800ms} " in said.err
    assert "% higher [" in said.err


def test_json_alone_is_on_stdout(run: Run, engine: SimulatedEngine) -> None:
    """A program can read it, whatever else is shown; the report command gives the same again."""
    said = run(*QUICK, "--trials", "3", "--confirm-top", "1", "--json")
    assert said.code == 0
    assert json.loads(said.out) == json.loads(Path("results/s/result.json").read_text())
    again = run("report", "s", "--json")
    assert json.loads(again.out)["verdict"] == json.loads(said.out)["verdict"]


def test_nothing_feasible_is_exit_code_2(run: Run, engine: SimulatedEngine) -> None:
    """The search has its answer: none of these."""
    for setting in (OFF, ON):
        engine.answers[setting.key].append(failed(setting))
    said = run(*CPU, "--hicache", "off", "--trials", "2", "--mem-fraction-static", "", "--page-size", "")
    assert said.code == 2
    assert "no setting of 2 is feasible: the engine failed with gpu_oom" in said.err


def test_a_budget_that_ends_before_the_verdict_is_exit_code_124(run: Run, engine: SimulatedEngine) -> None:
    """The best so far is shown, and said to be unproven."""
    said = run(*QUICK, "--trials", "3", "--budget", "1s")
    assert said.code == 124
    assert "not confirmed: best so far is " in said.err


def test_a_search_that_is_not_to_confirm_ends_well_without(run: Run, engine: SimulatedEngine) -> None:
    """Who asks for no confirmation gets what there is, and exit code 0."""
    said = run(*QUICK, "--trials", "3", "--confirm-rounds", "0")
    assert said.code == 0
    assert "not confirmed: best so far is " in said.err


def test_a_search_that_measured_nothing_valid_does_not_end_well(run: Run, engine: SimulatedEngine) -> None:
    """Not even without a confirmation."""
    for setting in (OFF, ON):
        engine.answers[setting.key].extend([invalid(setting)] * 2)
    said = run(*QUICK, "--trials", "2", "--confirm-rounds", "0")
    assert said.code == 124
    assert "nothing was measured: the load process was late" in said.err


def test_an_engine_that_cannot_start_is_exit_code_1_and_the_study_is_intact(run: Run, engine: SimulatedEngine) -> None:
    """The engine's own last lines say why; once that is mended, the same flags with --resume go on."""
    engine.answers[OFF.key].append(failed(OFF, FailureKind.BAD_FLAG))
    said = run(*QUICK, "--trials", "3", "--confirm-rounds", "0")
    assert said.code == 1
    assert "hicache-tune: the engine failed with bad_flag" in said.err
    assert "\n  last of the last lines\n" in said.err
    assert run(*QUICK, "--trials", "3", "--confirm-rounds", "0", "--resume").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_exit_code_130_and_can_be_resumed(run: Run, engine: SimulatedEngine, number: signal.Signals) -> None:
    """The trial that runs is ended in order; the sentence says how to go on."""
    before = signal.getsignal(number)

    def stop(record: TrialRecord) -> None:
        if len(engine.asked) == 2:
            os.kill(os.getpid(), number)

    engine.after_each = stop
    said = run(*QUICK, "--trials", "3")
    assert said.code == 130
    assert "Nothing is lost; go on with the same flags and --study s --resume" in said.err
    assert len(engine.asked) == 2
    assert signal.getsignal(number) is before
    assert run(*QUICK, "--trials", "3", "--resume").code == 0


def test_a_study_that_exists_is_not_mixed_with_a_new_one(run: Run, engine: SimulatedEngine) -> None:
    """Neither without --resume, nor with other flags."""
    assert run(*QUICK, "--trials", "2", "--confirm-rounds", "0").code == 0
    again = run(*QUICK, "--trials", "2")
    assert again.code == 1
    assert "the study s exists in " in again.err
    assert "give --resume to go on or another --study name" in again.err
    other = run(*CPU, "--resume", "--page-size", "32")
    assert other.code == 1
    assert "page_size: was 16, is 32" in other.err
    assert len(engine.asked) == 2


def test_the_user_says_how_long_silence_is_no_hang(run: Run, engine: SimulatedEngine) -> None:
    """Every trial waits so long."""
    assert run(*CPU, "--hang-after", "5m").code == 0
    assert {lab.hang_after_s for lab in engine.labs} == {300.0}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda: Path("results").touch(),
            "cannot be written (Not a directory); free space or choose another folder",
        ),
        (lambda: _write("results/s/study.json", "[]"), "results/s/study.json: not readable"),
    ],
)
def test_a_place_that_cannot_be_used_is_named(
    run: Run, engine: SimulatedEngine, spoil: Callable[[], None], said: str
) -> None:
    """Before anything is launched."""
    spoil()
    answer = run(*QUICK, "--resume") if Path("results/s").exists() else run(*QUICK)
    assert answer.code == 1
    assert said in answer.err
    assert engine.asked == []


def _write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True)
    Path(path).write_text(text, encoding="utf-8")


def test_a_metrics_port_that_is_taken_is_named(run: Run, engine: SimulatedEngine) -> None:
    """Nothing that holds it is touched, and nothing is launched."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        said = run(*QUICK, "--metrics-port", str(port))
    assert said.code == 1
    assert (
        f"the metrics exporter cannot listen on 127.0.0.1:{port} (Address already in use); choose another" in said.err
    )
    assert engine.asked == []


def test_device_headroom_without_a_gpu_is_refused(run: Run, engine: SimulatedEngine) -> None:
    """A bound that cannot be watched is not passed over."""
    said = run(*QUICK, "--constraint", "headroom.device >= 1GiB")
    assert said.code == 1
    assert "no GPU" in said.err
    assert engine.asked == []


def test_scenarios_can_be_listed_and_shown(run: Run) -> None:
    """The built-in names, and the figures of one."""
    assert "support-chat" in run("scenario", "list").out
    shown = run("scenario", "show", "cpu-smoke", "--json")
    assert (shown.code, json.loads(shown.out)["requests"]) == (0, 72)
