"""The committed dashboards are those that the code makes, and nothing is wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from dashboards.build import built
from dashboards.files import JSON_FOLDER, dashboard_files
from dashboards.lint import lint, lint_for_readers
from dashboards.queries import panels, queries

NAMES = ("compare", "engine", "nightly", "search")


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Read one committed dashboard."""
    found: dict[str, Any] = json.loads((JSON_FOLDER / f"hicache-tune-{request.param}.json").read_text())
    return found


def test_committed_json_is_fresh() -> None:
    """Building again gives the committed files, no more and no fewer; `make dashboards` mends it."""
    assert {path.name: path.read_text(encoding="utf-8") for path in dashboard_files()} == built()


def test_nothing_is_wrong(board: dict[str, Any]) -> None:
    """No fault that a reader or Grafana would meet."""
    assert lint(board) == []
    assert lint_for_readers(board) == []


def test_what_grafana_needs_to_import_and_provision(board: dict[str, Any]) -> None:
    """The id is null, the uid stable, the datasource a choice of the reader, and panels are told apart."""
    assert board["id"] is None
    assert board["uid"] in [f"hicache-tune-{name}" for name in NAMES]
    assert board["schemaVersion"] > 0
    first = board["templating"]["list"][0]
    assert (first["type"], first["name"], first["query"]) == ("datasource", "datasource", "prometheus")
    assert max(Counter(panel["id"] for panel in panels(board)).values()) == 1
    assert max(Counter(panel["title"] for panel in panels(board)).values()) == 1


def test_series_are_named(board: dict[str, Any]) -> None:
    """A panel of lines with several series has a legend for each query, not a list of labels."""
    unnamed = [
        panel["title"]
        for panel in panels(board)
        if panel["type"] == "timeseries" and any(not target.get("legendFormat") for target in panel["targets"])
    ]
    assert unnamed == []


def test_the_gauge_that_misleads_is_not_used(board: dict[str, Any]) -> None:
    """`sglang:cache_hit_rate` holds the last batch only (case 21)."""
    assert [query.title for query in queries(board) if "cache_hit_rate" in query.expr] == []
