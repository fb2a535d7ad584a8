"""Headroom and reload cost of the compared settings: in data, in the terminal, on the page and as remarks."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from harness.load_conditions import DeviceConditions, HostConditions, LoadConditions, ScrapeConditions
from harness.reload_cost import ReloadCost
from harness.telemetry import Headroom
from tests.support.study_data import GIB, RATIO_3, Made
from tuning.report import costs_table, study_result
from tuning.report.costs import Cost, cost_rows, costs
from tuning.report.html import write_report
from tuning.report.played import Played, played
from tuning.report.remarks import remarks

KV_BYTES = 57_344


@pytest.fixture(scope="module")
def settings(confirmed: Made) -> list[Played]:
    """Give both baselines and the winner of a study that ends well."""
    return played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)


def with_headroom(setting: Played, *headrooms: Headroom) -> Played:
    """Give its trials these headrooms, and a cost that was kept."""
    kept = ReloadCost(
        reloads=1, tokens=1, bytes=1, kv_bytes_per_token=KV_BYTES, transfer_s=None, bytes_per_s=None,
        mean_bytes_per_s=None, write_amplification=None, eviction_s=None, eviction_share=None,
        compute_s_per_token=None, reload_s_per_token=None, reload_fixed_s=None, break_even_tokens=None,
        pcie_ceiling_bytes_per_s=63e9,
    )  # fmt: skip
    records = zip(setting.records, headrooms, strict=True)
    return replace(setting, records=tuple(r.model_copy(update={"headroom": h, "reload": kept}) for r, h in records))


def test_the_least_of_all_trials_counts(settings: list[Played]) -> None:
    """A setting has the headroom of its worst trial; what one trial does not know is not known."""
    one, other = Headroom(5 * GIB, 9, None, None, None, 3, None), Headroom(4 * GIB, 8, 7, None, None, 2, 1)
    cost = costs([with_headroom(settings[-1], one, other)])[0]
    assert (cost.device_headroom_bytes, cost.host_headroom_bytes, cost.cgroup_headroom_bytes) == (4 * GIB, 8, None)
    assert (cost.device_double_bytes, cost.host_double_bytes) == (2, None)


def test_reloads_of_all_trials_are_added_and_fitted_together(settings: list[Played]) -> None:
    """Tokens of both rounds, bytes by what the records kept, and one fit of all requests."""
    headroom = Headroom(None, 9, None)
    reload = costs([with_headroom(settings[-1], headroom, headroom)])[0].reload
    assert reload is not None
    tokens = [record.cache.load_back_tokens or 0 for record in settings[-1].records if record.cache]
    assert len(tokens) == 2
    assert reload.tokens == sum(tokens) > 0
    assert reload.bytes == sum(tokens) * KV_BYTES
    assert reload.pcie_ceiling_bytes_per_s == 63e9
    assert reload.compute_s_per_token is not None


def test_a_load_that_was_not_sustained_has_counts_and_no_fit(settings: list[Played]) -> None:
    """Its latencies are those of a queue that only grew."""
    reload = costs([replace(settings[-1], sustained=False)])[0].reload
    assert reload is not None
    assert reload.tokens
    assert (reload.compute_s_per_token, reload.added_ttft) == (None, ())


def test_without_hicache_there_is_no_reload(settings: list[Played]) -> None:
    """The baseline shows its headroom only."""
    assert settings[0].role == "HiCache off"
    assert costs(settings[:1])[0].reload is None


def test_rows_that_nobody_knows_are_left_out(settings: list[Played]) -> None:
    """A column for each setting, a dash for what one does not know."""
    rows = dict(cost_rows(costs(settings)))
    assert "least device memory free, GiB" not in rows
    assert rows["least host memory free, GiB"] == ["9.0"] * 3
    assert rows["reloaded tokens"][0] == "-"
    assert "[" in rows["compute, us a token"][2]


def test_terminal_page_and_data_tell_the_same(confirmed: Made, settings: list[Played]) -> None:
    """Every row of the table is on the page; the data has the figures unrounded and loads again."""
    made = confirmed
    result = study_result(made.root, made.study, made.records, made.verdict, made.objective)
    assert [Cost.parse(found, where="json") for found in json.loads(result.model_dump_json())["costs"]] == list(
        result.costs
    )
    console = Console(file=io.StringIO(), width=140)
    console.print(costs_table(result.costs))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    page = write_report(made.root, made.study, made.records, made.verdict, made.objective).read_text()
    assert ">Headroom and reload cost</h2>" in page
    for name, _ in cost_rows(result.costs):
        assert f'<th scope="row" class="words">{name}</th>' in page
        assert name in shown


def test_what_happened_on_the_machine_is_a_remark(confirmed: Made) -> None:
    """The same remark of two trials is made once, with both numbers."""
    busy = LoadConditions(
        device=DeviceConditions(), host=HostConditions(foreign_share=0.4), scrapes=ScrapeConditions(count=1, failed=0)
    )
    records = [r.model_copy(update={"conditions": busy}) if r.number in (0, 1) else r for r in confirmed.records]
    said = list(remarks(confirmed.root, confirmed.study, records, confirmed.verdict))
    assert "Trials 0, 1: the machine was busy with other work, which took more than 25% of its cores." in said
