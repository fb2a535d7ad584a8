"""Finds the recordings and the cases in tests/data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from harness.telemetry import MetricsSnapshot

DATA = Path(__file__).parents[1] / "data"
METRICS = DATA / "metrics"


def case_folder(number: int) -> Path:
    """Return the folder of one case."""
    (folder,) = (DATA / "cases").glob(f"{number:02d}-*")
    return folder


def expected(number: int) -> dict[str, Any]:
    """Return what one case expects."""
    case = json.loads((case_folder(number) / "case.json").read_text())
    return dict(case["expected"])


def case_snapshot(number: int, name: str, taken_ns: int = 0) -> MetricsSnapshot:
    """Parse one scrape of a case."""
    return MetricsSnapshot.parse((case_folder(number) / name).read_text(), taken_ns=taken_ns)


def recorded(path: str) -> MetricsSnapshot:
    """Parse one recorded scrape, named relative to tests/data/metrics."""
    return MetricsSnapshot.parse(gzip.decompress((METRICS / path).read_bytes()).decode(), taken_ns=0)
