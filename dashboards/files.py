"""Where the files of the dashboards are: made ones and written ones, for Grafana, Prometheus and Docker."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
JSON_FOLDER = FOLDER / "grafana" / "json"
PROMETHEUS_FOLDER = FOLDER / "prometheus"
RULES_FOLDER = PROMETHEUS_FOLDER / "rules"
COMPOSE_FILE = FOLDER / "compose.yaml"
EXPORTED = ("grafana", "prometheus", "compose.yaml")
"""What a user needs to run them."""


def dashboard_files() -> list[Path]:
    """List the committed dashboards."""
    return sorted(JSON_FOLDER.glob("*.json"))
