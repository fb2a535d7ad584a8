"""Our own metrics: base units, own registry, and nothing claimed before it is known."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.errors import ConfigError, StoreError
from harness.telemetry import Exporter, Headroom

UNITS = re.compile(r"_(seconds|bytes|tokens|info|planned|done|total|created)$")


def written(exporter: Exporter, folder: Path) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Write the textfile and read its samples, without the creation times and the study label."""
    path = folder / "hicache_tune.prom"
    exporter.write_textfile(path)
    return {
        (sample.name, frozenset(item for item in sample.labels.items() if item[0] != "study")): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Name one sample."""
    return f"hicache_tune_{name}", frozenset(labels.items())


def finish(exporter: Exporter, outcome: str = "measured", **changes: float | None) -> None:
    """End a trial whose figures are all known, but for `changes`."""
    reload_tokens = changes.get("reload_tokens", 1200)
    exporter.trial_finished(
        outcome=outcome,
        ttft_quantiles_s={0.5: 0.1, 0.99: 0.9},
        headroom=Headroom(device_bytes=None, host_bytes=800, cgroup_bytes=300, device_reason="no GPU"),
        reload_tokens=None if reload_tokens is None else int(reload_tokens),
        best_ttft_p99_s=changes.get("best_ttft_p99_s", 0.8),
    )


def test_nothing_is_claimed_before_it_is_known(tmp_path: Path) -> None:
    """A study that has just started has its plan, and no best TTFT of zero."""
    exporter = Exporter("s")
    assert written(exporter, tmp_path) == {}
    exporter.study_started(planned_trials=8, done_trials=3)
    assert written(exporter, tmp_path) == {
        key("study_trials_planned"): 8,
        key("study_trials_done"): 3,
    }


def test_a_trial_shows_what_was_measured(tmp_path: Path) -> None:
    """Every figure of a trial has its series, in base units; what is unknown has none."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=8)
    exporter.trial_started(4, "write_back, host 20 GB")
    assert written(exporter, tmp_path)[key("current_trial_info", trial="4", setting="write_back, host 20 GB")] == 1
    finish(exporter)
    assert written(exporter, tmp_path) == {
        key("study_trials_planned"): 8,
        key("study_trials_done"): 1,
        key("trials_total", outcome="measured"): 1,
        key("best_ttft_p99_seconds"): 0.8,
        key("last_trial_ttft_seconds", quantile="0.5"): 0.1,
        key("last_trial_ttft_seconds", quantile="0.99"): 0.9,
        key("last_trial_headroom_bytes", kind="host"): 800,
        key("last_trial_headroom_bytes", kind="cgroup"): 300,
        key("last_trial_reload_tokens"): 1200,
    }


def test_a_failed_trial_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Figures of an earlier trial do not stand under a later one; the best stays."""
    exporter = Exporter("s")
    exporter.study_started(planned_trials=2)
    finish(exporter)
    exporter.trial_started(1, "off")
    exporter.trial_finished(
        outcome="failed", ttft_quantiles_s={}, headroom=None, reload_tokens=None, best_ttft_p99_s=None
    )
    assert written(exporter, tmp_path) == {
        key("study_trials_planned"): 2,
        key("study_trials_done"): 2,
        key("trials_total", outcome="measured"): 1,
        key("trials_total", outcome="failed"): 1,
        key("best_ttft_p99_seconds"): 0.8,
    }


def test_names_end_in_units_and_the_global_registry_is_left_alone(tmp_path: Path) -> None:
    """Base units by name; two studies in one process do not meet."""
    exporter = Exporter("s")
    Exporter("s")
    exporter.study_started(planned_trials=1)
    exporter.trial_started(0, "off")
    finish(exporter)
    assert all(UNITS.search(name) for name, _ in written(exporter, tmp_path))
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
