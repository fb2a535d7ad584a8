"""Our own metrics: base units, own registry, and nothing claimed before it is known."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import httpx
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.errors import ConfigError, StoreError
from harness.telemetry import Exporter, Headroom
from harness.telemetry.exporter import LoadFigures
from harness.telemetry.exposition import Exposition
from harness.telemetry.trial_metrics import ON, ReloadFigures, TrialFigures

UNITS = re.compile(r"_(seconds|seconds_per_token|bytes|tokens|ratio|info|running|planned|done|total|state|requests)$")
PROGRESS = "last_progress_timestamp_seconds"
FIGURES = TrialFigures(
    4,
    "write_back, host 20 GB",
    "search",
    "measured",
    ttft_s={0.5: 0.1, 0.99: 0.9},
    headroom=Headroom(
        device_bytes=None, host_bytes=800, cgroup_bytes=300, device_reason="no GPU", host_double_bytes=-50
    ),
    cached_ratio={"device": 0.5, "host": 0.25},
    requests={"ok": 90, "failed": 2},
    reload_tokens=1200,
    evicted_tokens=3000,
    eviction_s=0.25,
    reload=ReloadFigures({"estimate": 0.01, "low": -0.02}, {"estimate": 2e-6}, {"high": 5e-5}, None),
    steps_s={"load": 30.0},
    remarks={"swapped": True, "xid": False},
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def written(exposition: Exposition, folder: Path) -> Samples:
    """Write the textfile and read its samples, without the study label and the time of the last progress."""
    path = folder / "hicache_tune.prom"
    exposition.write_textfile(path)
    return {
        (sample.name, frozenset(item for item in sample.labels.items() if item[0] != "study")): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if not sample.name.endswith(PROGRESS)
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Name one sample."""
    return f"hicache_tune_{name}", frozenset(labels.items())


def of_role(samples: Samples, role: str) -> dict[str, float]:
    """Return the figures of one role by name and further labels."""
    return {
        " ".join([name.removeprefix("hicache_tune_trial_"), *sorted(v for k, v in labels if k not in ("role",))]): value
        for (name, labels), value in samples.items()
        if ("role", role) in labels and not name.endswith("_info")
    }


def test_nothing_is_claimed_before_it_is_known(tmp_path: Path) -> None:
    """A study that has just started has its plan, and no best TTFT of zero."""
    exporter = Exporter("s")
    assert written(exporter, tmp_path) == {}
    exporter.study_started(planned_trials=8, about={"scenario": "chat", "gpu": ""})
    assert written(exporter, tmp_path) == {
        key("study_info", scenario="chat", gpu=""): 1,
        key("study_running"): 1,
        key("study_trials_planned"): 8,
        key("study_trials_done"): 0,
        key("trials_started_total"): 0,
    }


def test_a_trial_shows_what_was_measured(tmp_path: Path) -> None:
    """Every figure of a trial has its series, in base units; what is unknown has none."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    exporter.trial_finished(FIGURES)
    samples = written(exporter, tmp_path)
    assert of_role(samples, "last") == {
        "ttft_seconds 0.5": 0.1,
        "ttft_seconds 0.99": 0.9,
        "headroom_bytes host": 800,
        "headroom_bytes cgroup": 300,
        "headroom_doubled_bytes host": -50,
        "remark_state swapped": 1,
        "remark_state xid": 0,
        "cached_ratio device": 0.5,
        "cached_ratio host": 0.25,
        "reload_tokens": 1200,
        "evicted_tokens": 3000,
        "eviction_seconds": 0.25,
        "reload_fixed_seconds estimate": 0.01,
        "reload_fixed_seconds low": -0.02,
        "reload_seconds_per_token estimate": 2e-6,
        "compute_seconds_per_token high": 5e-5,
        "step_seconds load": 30.0,
    }
    assert samples[key("trial_info", role="last", trial="4", setting=FIGURES.setting, outcome="measured")] == 1
    assert samples[key("trials_total", purpose="search", outcome="measured")] == 1
    assert samples[key("requests_total", status="failed")] == 2
    assert samples[key("study_trials_done")] == 1


def test_a_running_trial_is_shown_until_it_ends(tmp_path: Path) -> None:
    """Trial, step and load have series while they last, and no longer."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    exporter.trial_started(4, "off", remaining_s=600)
    exporter.step_started("load")
    exporter.load_progressed(LoadFigures(done=5, of=20, failed=1, in_flight=3, ttft_p50_s=0.2))
    samples = written(exporter, tmp_path)
    running = {
        key("current_trial_info", trial="4", setting="off"): 1,
        key("current_step_info", step="load"): 1,
        key("current_trial_requests", state="done"): 5,
        key("current_trial_requests", state="planned"): 20,
        key("current_trial_requests", state="failed"): 1,
        key("current_trial_requests", state="in_flight"): 3,
        key("current_trial_ttft_p50_seconds"): 0.2,
    }
    assert running.items() <= samples.items()
    assert samples[key("study_remaining_seconds")] == 600
    assert samples[key("trials_started_total")] == 1
    exporter.trial_finished(FIGURES)
    assert running.keys().isdisjoint(written(exporter, tmp_path))


def test_a_failed_trial_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Figures of an earlier trial do not stand under a later one; the best and the baselines stay."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=2)
    exporter.trial_finished(FIGURES, best=FIGURES, baseline=ON)
    exporter.trial_finished(TrialFigures(5, "off", "search", "failed", failure="gpu_oom"))
    samples = written(exporter, tmp_path)
    assert of_role(samples, "last") == {}
    assert of_role(samples, "best") == of_role(samples, "on") != {}
    assert samples[key("trials_total", purpose="search", outcome="failed")] == 1
    assert samples[key("trial_failures_total", failure="gpu_oom")] == 1


def test_a_baseline_that_failed_does_not_replace_one_that_was_measured(tmp_path: Path) -> None:
    """A second try that fails leaves the first's figures."""
    exporter = Exporter("s")
    exporter.trial_finished(FIGURES, baseline=ON)
    exporter.trial_finished(TrialFigures(5, "on", "search", "failed"), baseline=ON)
    assert of_role(written(exporter, tmp_path), "on")["ttft_seconds 0.99"] == 0.9


def test_confirmation_counts_no_setting(tmp_path: Path) -> None:
    """A setting that is measured again was tried before."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    exporter.trial_finished(TrialFigures(9, "off", "confirm", "measured"))
    samples = written(exporter, tmp_path)
    assert samples[key("study_trials_done")] == 0
    assert samples[key("trials_total", purpose="confirm", outcome="measured")] == 1


def test_a_setting_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    """An invalid trial is repeated; rates of a search for a limit count each, what was interrupted does not."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    for number in (1, 2):
        exporter.trial_finished(TrialFigures(number, "off", "search", "invalid"))
    assert written(exporter, tmp_path)[key("study_trials_done")] == 1
    for number in (3, 4):
        exporter.trial_finished(TrialFigures(number, "off", "limit", "measured"))
    exporter.trial_finished(TrialFigures(5, "on", "search", "interrupted"))
    assert written(exporter, tmp_path)[key("study_trials_done")] == 3


def test_requests_that_stand_still_are_no_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The time of the last progress moves with answered requests, steps and trials alone."""
    now_s = 100.0
    monkeypatch.setattr("harness.telemetry.exporter.time.time", lambda: now_s)
    exporter = Exporter("s")

    def progress_at_s() -> float:
        exporter.write_textfile(tmp_path / "x.prom")
        families = text_string_to_metric_families((tmp_path / "x.prom").read_text())
        return next(s.value for f in families for s in f.samples if s.name.endswith(PROGRESS))

    exporter.study_started(planned_trials=8)
    assert progress_at_s() == 100
    now_s = 200.0
    exporter.load_progressed(LoadFigures(5, 20, 0, 3, None))
    assert progress_at_s() == 200
    now_s = 300.0
    exporter.load_progressed(LoadFigures(5, 20, 0, 4, None))
    assert progress_at_s() == 200
    exporter.load_progressed(LoadFigures(6, 20, 0, 3, None))
    assert progress_at_s() == 300


def test_an_ended_study_keeps_its_figures_and_nothing_that_runs(tmp_path: Path) -> None:
    """What is left for node_exporter says that nothing runs, so that no alert says that it is stuck."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    exporter.trial_finished(FIGURES, best=FIGURES)
    exporter.trial_started(5, "off", remaining_s=60)
    exporter.engine_at("http://127.0.0.1:4711")
    exporter.study_ended()
    samples = written(exporter, tmp_path)
    assert samples[key("study_running")] == 0
    assert of_role(samples, "best")
    assert not [name for name, _ in samples if "current" in name or "remaining" in name]
    assert exporter.targets() == []


def test_names_end_in_units_and_the_global_registry_is_left_alone(tmp_path: Path) -> None:
    """Base units by name; two studies in one process do not meet."""
    exporter = Exporter("s")
    Exporter("s")
    exporter.study_started(planned_trials=1)
    exporter.trial_finished(FIGURES)
    exporter.trial_started(0, "off", remaining_s=1)
    exporter.load_progressed(LoadFigures(5, 20, 0, 3, 0.1))
    assert [name for name, _ in written(exporter, tmp_path) if not UNITS.search(name)] == []
    assert "hicache_tune" not in prometheus_client.generate_latest().decode()


def test_metrics_are_served_on_loopback_until_closed() -> None:
    """Port 0 takes a free port, and closing frees it."""
    with Exporter("s") as exporter:
        exporter.study_started(planned_trials=5)
        port = exporter.start(0)
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        assert 'hicache_tune_study_trials_planned{study="s"} 5.0' in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)


def test_the_end_waits_for_a_scrape_that_began_after_it() -> None:
    """Prometheus sees the last trial too: what it read before does not count."""
    with Exporter("s") as exporter:
        url = f"http://127.0.0.1:{exporter.start(0)}/metrics"
        httpx.get(url, trust_env=False)
        waiting = threading.Thread(target=exporter.wait_scraped, kwargs={"limit_s": 60})
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        httpx.get(url, trust_env=False)
        waiting.join(30)
        assert not waiting.is_alive()


def test_the_end_does_not_wait_where_nobody_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for the engine's address is no scrape."""

    def sleep(_: float) -> None:
        raise AssertionError("waited")

    with Exporter("s") as exporter:
        httpx.get(f"http://127.0.0.1:{exporter.start(0)}/targets", trust_env=False)
        monkeypatch.setattr("harness.telemetry.exposition.time.sleep", sleep)
        exporter.wait_scraped()


def test_the_end_waits_no_longer_than_it_may() -> None:
    """A Prometheus that has gone does not hold up the answer."""
    with Exporter("s") as exporter:
        httpx.get(f"http://127.0.0.1:{exporter.start(0)}/metrics", trust_env=False)
        exporter.wait_scraped(limit_s=0.01)


def test_prometheus_is_told_where_the_engine_is(tmp_path: Path) -> None:
    """The engine of the trial that runs is a target under the study's name, until it is stopped."""
    with Exporter("s") as exporter:
        url = f"http://127.0.0.1:{exporter.start(0)}/targets"
        assert httpx.get(url, trust_env=False).json() == []
        exporter.engine_at("http://127.0.0.1:4711")
        answer = httpx.get(url, trust_env=False)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == [{"targets": ["127.0.0.1:4711"], "labels": {"study": "s", "instance": "s"}}]
        exporter.engine_gone()
        assert httpx.get(url, trust_env=False).json() == []


def test_a_port_in_use_is_a_config_error() -> None:
    """The sentence names the port and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} .*choose another port"):
            Exporter("s").start(port)


def test_a_folder_that_is_missing_is_a_store_error(tmp_path: Path) -> None:
    """The sentence names the file."""
    with pytest.raises(StoreError, match=r"nowhere/x\.prom: the metrics cannot be written"):
        Exporter("s").write_textfile(tmp_path / "nowhere" / "x.prom")
