"""Every metric of the compared settings, in data, in words and in the terminal."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from harness.metrics import MetricName, Slo
from tests.support.study_data import RATIO_3, SESSIONS, TURNS, Made
from tuning.report import details_table, study_result
from tuning.report.detail import Detail, details, groups, in_words
from tuning.report.played import Played, played

REQUESTS = 2 * SESSIONS * TURNS
"""Of one setting in the confirmation: two rounds."""


@pytest.fixture(scope="module")
def settings(confirmed: Made) -> list[Played]:
    """Give both baselines and the winner of a study that ends well."""
    return played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)


@pytest.fixture(scope="module")
def found(settings: list[Played]) -> tuple[Detail, ...]:
    """Give their details under a service level."""
    return details(settings, Slo(ttft_s=0.5, tpot_s=0.05))


def test_all_trials_of_a_setting_count_together(found: tuple[Detail, ...], settings: list[Played]) -> None:
    """Figures are of the raw requests of both rounds, not means of the figures of each."""
    assert [detail.role for detail in found] == ["HiCache off", "HiCache on, defaults", "winner"]
    overall = found[-1].metrics[MetricName.TTFT].overall
    assert overall is not None
    assert overall.count == REQUESTS
    assert overall.p999_s == np.quantile(settings[-1].requests["ttft_s"], 0.999)
    assert [len(detail.windows) for detail in found] == [2, 2, 2]


def test_every_metric_is_there_by_turn_tier_and_prompt(found: tuple[Detail, ...]) -> None:
    """Also the gaps between deltas, which are more than the requests."""
    metrics = found[-1].metrics
    assert set(metrics) == set(MetricName)
    gaps = metrics[MetricName.ITL].overall
    assert gaps is not None
    assert gaps.count == 6 * REQUESTS
    named = [(title, name) for title, name, _ in groups(metrics[MetricName.TTFT])]
    assert named == [
        ("served from", "host"), ("served from", "none"),
        *(("turn", str(turn)) for turn in range(TURNS)),
        ("prompt tokens", "256-512"), ("prompt tokens", "512-1k"), ("prompt tokens", "1k-2k"),
    ]  # fmt: skip


def test_goodput_is_told_in_a_sentence(found: tuple[Detail, ...]) -> None:
    """The level, the share with its interval, the rate, and what was not judged."""
    good = found[-1].goodput
    assert good is not None
    assert good.judged == REQUESTS
    text = in_words(good)
    assert text.startswith("goodput under TTFT <= 0.5 s, TPOT <= 0.05 s: ")
    assert f"of {REQUESTS} requests [" in text
    assert text.endswith("not judged: 0 that the end of the load cut")
    assert "and 3 without a value" not in text


def test_without_a_service_level_there_is_no_goodput(settings: list[Played]) -> None:
    """Nobody's limits are guessed."""
    assert [detail.goodput for detail in details(settings, None)] == [None, None, None]


def test_latencies_of_a_load_that_was_not_sustained_are_no_figures(unsustained: Made) -> None:
    """Design rule 12: they depend on how long one looks. Its goodput can be told all the same."""
    off, winner = details(played(unsustained.root, unsustained.records, RATIO_3.key, confirmed=True), Slo(ttft_s=1.0))
    assert (off.sustained, off.metrics) == (False, {})
    assert off.goodput is not None
    assert winner.metrics


def test_the_result_holds_the_details(confirmed: Made, infeasible: Made) -> None:
    """Programs find them in result.json; a study without requests has none."""
    good, bad = (
        study_result(made.root, made.study, made.records, made.verdict, made.objective)
        for made in (confirmed, infeasible)
    )
    assert [detail.role for detail in good.details] == ["HiCache off", "HiCache on, defaults", "winner"]
    assert bad.details == ()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_shows_the_tiers(found: tuple[Detail, ...], width: int) -> None:
    """Each setting is named once, each metric has its line, and TTFT those of its tiers."""
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(details_table(found))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    for words in ("TTFT", "  host", "  none", "TPOT", "ITL", "End to end", "P99.9", "2,880"):
        assert words in text
    assert text.count("winner") == 2, "in the title and once as the setting"
