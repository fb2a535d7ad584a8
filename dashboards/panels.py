"""The few kinds of panels that our dashboards are made of, and the board that lays them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Whichever Prometheus the reader chooses: a uid of ours would exist nowhere else."""
UID_PREFIX = "hicache-tune-"
TAG = "hicache-tune"


PanelBuilder = timeseries.Panel | stat.Panel | table.Panel
Kind = TypeVar("Kind", timeseries.Panel, stat.Panel, table.Panel)


@dataclass(frozen=True)
class Query:
    """One PromQL expression and the name of its series."""

    expr: str
    legend: str = ""


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    steps: bool = False,
    signed: bool = False,
    width: int = 12,
) -> PanelBuilder:
    """Show values over time. `steps`: values hold until the next trial ends; `signed`: they may be negative."""
    legend = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
        .show_legend(True)
    )
    panel = timeseries.Panel().legend(legend).fill_opacity(30 if stacked else 5)
    panel = panel if signed else panel.min(0)
    panel = panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if steps:
        panel = panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    return _finished(panel, title, description, unit, queries, width=width, height=8)


def number(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    worse_above: float | None = None,
    worse_below: float | None = None,
    words: dict[str, str] | None = None,
    width: int = 4,
) -> PanelBuilder:
    """Show the latest value, red past a threshold; `words` names single values."""
    latest = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    panel = stat.Panel().reduce_options(latest).graph_mode(common.BigValueGraphMode.NONE)
    steps = [dashboard.Threshold(value=None, color="text")]
    if worse_above is not None:
        steps = [dashboard.Threshold(value=None, color="green"), dashboard.Threshold(value=worse_above, color="red")]
    if worse_below is not None:
        steps = [dashboard.Threshold(value=None, color="red"), dashboard.Threshold(value=worse_below, color="green")]
    panel = panel.thresholds(builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
    if words:
        options = {value: dashboard.ValueMappingResult(text=text) for value, text in words.items()}
        panel = panel.mappings([dashboard.ValueMap(options=options)])
    return _finished(panel, title, description, unit, queries, width=width, height=4)


def rows(title: str, description: str, query: Query, columns: tuple[str, ...], *, width: int = 12) -> PanelBuilder:
    """Show the labels `columns` of each series, one row a series."""
    kept = dashboard.DataTransformerConfig("filterFieldsByName", options={"include": {"names": list(columns)}})
    panel = table.Panel().with_transformation(kept)
    return _finished(panel, title, description, "none", (query,), width=width, height=4, as_table=True)


def _finished(
    panel: Kind,
    title: str,
    description: str,
    unit: str,
    queries: tuple[Query, ...],
    *,
    width: int,
    height: int,
    as_table: bool = False,
) -> Kind:
    panel = panel.title(title).description(description).unit(unit).datasource(DATASOURCE)
    panel = panel.span(width).height(height).no_value("no data")
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(DATASOURCE)
        target = target.legend_format(query.legend) if query.legend else target
        target = target.instant().format(PromQueryFormat.TABLE) if as_table else target.range()
        panel = panel.with_target(target)
    return panel


class Board:
    """A dashboard that is being laid out: rows of panels, from left to right, numbered as they come."""

    def __init__(self, name: str, title: str, description: str, *, since: str, refresh: str) -> None:
        self._panels = 0
        self._builder = (
            builders.Dashboard(title)
            .uid(UID_PREFIX + name)
            .description(description)
            .tags([TAG])
            .time(since, "now")
            .refresh(refresh)
            .timezone("browser")
            .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
            .readonly()
            .link(
                builders.DashboardLink("hicache-tune")
                .type(dashboard.DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .as_dropdown(True)
                .keep_time(True)
            )
            .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        )

    def variable(self, name: str, label: str, query: str, *, many: bool = False) -> Board:
        """Add a choice among the values of a label."""
        choice = (
            builders.QueryVariable(name)
            .label(label)
            .query(query)
            .datasource(DATASOURCE)
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dashboard.VariableSort.ALPHABETICAL_DESC)
        )
        self._builder = self._builder.with_variable(
            choice.multi(True).include_all(True).all_value(".*") if many else choice
        )
        return self

    def annotation(self, name: str, expr: str, color: str) -> Board:
        """Mark the times at which `expr` has a value."""
        mark = builders.AnnotationQuery().name(name).datasource(DATASOURCE).expr(expr).icon_color(color).enable(True)
        self._builder = self._builder.annotation(mark)
        return self

    def row(self, title: str, *panels: PanelBuilder) -> Board:
        """Add a headed row of panels."""
        self._builder = self._builder.with_row(builders.Row(title).id(self._next_id()))
        for panel in panels:
            self._builder = self._builder.with_panel(panel.id(self._next_id()))
        return self

    def build(self) -> dashboard.Dashboard:
        """Return the finished dashboard."""
        return self._builder.build()

    def _next_id(self) -> int:
        self._panels += 1
        return self._panels
