"""Every panel shows data: a real Prometheus scrapes a real search of the real engine on CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboards.queries import PanelQuery, queries
from tests.support.monitored import STUDY, Monitored, boards, searched
from tests.support.panel_sources import ELSEWHERE, source_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

QUERIES = [(name, query) for name, board in boards().items() for query in queries(board)]
FROM_SEARCH = [(name, query) for name, query in QUERIES if source_of(name, query) is None]
OTHERS = [(name, query) for name, query in QUERIES if source_of(name, query) is not None]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Search once, with Prometheus watching."""
    with searched(tmp_path_factory.mktemp("monitored")) as found:
        yield found


def names(found: list[tuple[str, PanelQuery]]) -> list[str]:
    """Name queries for a message."""
    return [f"{board}: {query.title} {query.ref_id}" for board, query in found]


def test_everything_is_scraped(monitored: Monitored) -> None:
    """The exporter, and the engine at the port that the exporter told, under the study's name."""
    up = {(t["labels"]["job"], t["labels"]["instance"]) for t in monitored.targets if t["health"] == "up"}
    assert ("hicache-tune-engine", STUDY) in up
    assert {"hicache-tune", "sglang", "node", "dcgm"} <= {job for job, _ in up}


def test_every_panel_shows_the_search(monitored: Monitored) -> None:
    """Each query has data, but for those that say what else they need."""
    assert names([(board, query) for board, query in FROM_SEARCH if not monitored.data(query)]) == []


def test_what_the_search_cannot_show_is_shown_by_what_stands_in(monitored: Monitored) -> None:
    """Each query that needs a GPU, another SGLang or a nightly job has data from its fixture."""
    empty = []
    for board, query in OTHERS:
        source = source_of(board, query)
        assert source is not None
        if not monitored.data(query, **source.variables):
            empty.append((board, query))
    assert names(empty) == []


def test_no_excuse_is_stale(monitored: Monitored) -> None:
    """What the search does show is not listed as something that it cannot; what is listed exists."""
    listed = {(board, title, ref) for (board, title), refs in ELSEWHERE.items() for ref in refs}
    assert listed <= {(board, query.title, query.ref_id) for board, query in QUERIES}
    needless = []
    for board, query in OTHERS:
        source = source_of(board, query)
        if source is not None and source.variables and not source.may_happen and monitored.data(query):
            needless.append((board, query))
    assert names(needless) == []


def test_engine_names_keep_their_colon(monitored: Monitored) -> None:
    """A Prometheus before 3.0 is given `sglang_...` by the engine; our configuration gives the colon back."""
    labels = [
        series.labels["__name__"]
        for series in monitored.prometheus.over('{__name__=~"sglang_.*"}', monitored.start_s, monitored.end_s, 5.0)
    ]
    assert labels == []


def test_hit_rates_of_the_engine_and_of_the_search_agree(monitored: Monitored) -> None:
    """The engine's own counters, as Prometheus saw them, hold at least what the last trial's load counted."""
    query = next(q for name, q in QUERIES if (name, q.title) == ("search", "Where prompt tokens came from"))
    shown = {series.labels["tier"]: series.values[-1][1] for series in monitored.data(query)}
    assert 0 < shown["device"] < 1
    assert shown["host"] > 0, "the last trial has HiCache on, and reloads"


def test_rules_are_evaluated(monitored: Monitored) -> None:
    """Prometheus takes every rule, and those of the engine have values."""
    assert [rule["name"] for rule in monitored.prometheus.rules() if rule["health"] != "ok"] == []
    for record in ("instance:hicache_hit:ratio_rate5m", "instance:hicache_host_pool_fill:ratio"):
        found = monitored.prometheus.over(f'{record}{{study="{STUDY}"}}', monitored.start_s, monitored.end_s)
        assert found, record


def test_an_ended_search_leaves_its_metrics(monitored: Monitored) -> None:
    """For node_exporter: figures and conditions are there, and nothing claims to run."""
    text = monitored.metrics_file.read_text(encoding="utf-8")
    samples = {s.name: s for family in text_string_to_metric_families(text) for s in family.samples}
    assert samples["hicache_tune_study_running"].value == 0
    assert samples["hicache_tune_study_trials_done"].value == 2
    assert samples["hicache_tune_study_info"].labels["scenario"] == "cpu-smoke"
    assert "hicache_tune_current_trial_info" not in samples
