"""compose.yaml is what Docker Compose takes, and fits what lies beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.files import COMPOSE_FILE, EXPORTED, FOLDER
from harness.telemetry.nightly_exporter import Measured, Night, NightlyExporter
from tests.support.node_exporter import scraped


@pytest.fixture
def services() -> dict[str, Any]:
    """Read the services."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
    return found


def test_it_is_valid_compose() -> None:
    """The Compose specification's own JSON schema takes it."""
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_everything_listens_on_loopback(services: dict[str, Any]) -> None:
    """In the host's network each service says so itself, as Docker maps no ports there."""
    assert {name for name, each in services.items() if each["network_mode"] != "host" or "ports" in each} == set()
    said = {
        name: " ".join([*each.get("command", []), *map(str, each.get("environment", {}).values())])
        for name, each in services.items()
    }
    assert {name for name, text in said.items() if "127.0.0.1" not in text} == set()


def test_images_are_pinned(services: dict[str, Any]) -> None:
    """The same today and tomorrow."""
    tags = {name: each["image"].rpartition(":")[2] for name, each in services.items()}
    assert {name for name, tag in tags.items() if tag == "latest" or not any(map(str.isdigit, tag))} == set()


def test_mounted_files_are_shipped(services: dict[str, Any]) -> None:
    """Every relative source is among what an export writes."""
    sources = [volume.split(":")[0] for each in services.values() for volume in each.get("volumes", [])]
    relative = [Path(source) for source in sources if source.startswith("./")]
    assert relative
    for source in relative:
        assert (FOLDER / source).exists()
        assert source.parts[0] in EXPORTED


def test_variables_of_the_provisioning_are_set(services: dict[str, Any]) -> None:
    """Grafana puts in an empty text for a variable that nobody sets."""
    used = set()
    for path in (FOLDER / "grafana" / "provisioning").rglob("*.yaml"):
        used |= {part.partition("}")[0] for part in path.read_text(encoding="utf-8").split("${")[1:]}
    assert used == {"HICACHE_TUNE_DASHBOARDS", "HICACHE_TUNE_PROMETHEUS"}
    environment = services["grafana"]["environment"]
    assert used <= environment.keys()
    mounted = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert environment["HICACHE_TUNE_DASHBOARDS"] in mounted


def test_provisioning_sets_no_uid() -> None:
    """The dashboards name none, and file provisioning that other tools do must not clash."""
    source = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8"))
    assert [each for each in source["datasources"] if "uid" in each] == []
    board = yaml.safe_load((FOLDER / "grafana/provisioning/dashboards/hicache-tune.yaml").read_text(encoding="utf-8"))
    (provider,) = board["providers"]
    assert (board["apiVersion"], provider["type"], provider["allowUiUpdates"]) == (1, "file", False)


def test_what_nights_and_searches_leave_is_shown(services: dict[str, Any], tmp_path: Path) -> None:
    """A real node_exporter, started as compose.yaml says, has the metrics of jobs and of studies that have ended."""
    exporter = services["node-exporter"]
    (mounted,) = (volume.split(":")[-2] for volume in exporter["volumes"] if "RESULTS" in volume)
    for job, p99_s in (("chat", 0.25), ("code", 0.5)):
        night = Night("good", 1.0, 2.0, {"gpu": "H200"}, production=Measured("--page-size 64", p99_s))
        (tmp_path / job).mkdir()
        NightlyExporter(job, night).write_textfile(tmp_path / job / "nightly.prom")
    (tmp_path / "chat-20261130").mkdir()
    (tmp_path / "chat-20261130" / "metrics.prom").write_text("hicache_tune_trials_total 3\n", encoding="utf-8")
    command = [word.replace(mounted, str(tmp_path)) for word in exporter["command"]]
    lines = scraped([word for word in command if not word.startswith("--path.rootfs")]).split("\n")
    for job, p99_s in (("chat", 0.25), ("code", 0.5)):
        assert f'hicache_tune_nightly_ttft_p99_seconds{{job_name="{job}",role="production"}} {p99_s}' in lines
    assert "hicache_tune_trials_total 3" in lines
    assert "node_textfile_scrape_error 0" in lines
