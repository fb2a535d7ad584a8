"""The plots of what a lower TTFT P99 is paid with."""

from __future__ import annotations

from harness.engine.setting import Setting
from tests.support.figures import figure_of, traces
from tests.support.rows import trial_row
from tests.support.study_data import OFF
from tuning.report.front_plots import front_plots
from tuning.report.fronts import fronts

SIZES = [Setting(hicache=True, hicache_size=gb).canonical() for gb in (8, 16)]


def test_the_front_is_apart_from_the_rest() -> None:
    """Settings stand at their host memory in GiB; those that nothing beats are joined; HiCache off keeps its mark."""
    rows = [
        trial_row(0, OFF, 3.0),
        trial_row(1, SIZES[0], 1.0, host_pool_bytes=8 * 2**30),
        trial_row(2, SIZES[1], 2.0, host_pool_bytes=16 * 2**30),
    ]
    (plot,) = front_plots(fronts(rows), rows)
    found = traces(plot)
    assert (found["front"]["x"], found["front"]["y"]) == ([0.0, 8.0], [3.0, 1.0])
    assert found["HiCache off"]["x"] == [0.0]
    assert found["HiCache on, on the front"]["x"] == [8.0]
    assert found["HiCache on"]["x"] == [16.0]
    assert figure_of(plot)["layout"]["xaxis"]["title"]["text"] == "host memory, GiB"


def test_a_front_of_one_has_no_line() -> None:
    """One setting that beats all others is a mark."""
    rows = [trial_row(n, SIZES[n], 1.0 + n, output_tokens_per_s=9.0 - n) for n in range(2)]
    (plot,) = front_plots(fronts(rows), rows)
    assert "front" not in traces(plot)
    assert "of throughput more is better" in plot.caption


def test_no_front_says_why() -> None:
    """One line and no frame."""
    (plot,) = front_plots((), [])
    assert plot.missing
