"""The PromQL of a dashboard, as Grafana would send it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser

GRAFANA_OWN = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h", "__range_s": "3600"}
"""What Grafana puts in by itself; any value parses."""
VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")


@dataclass(frozen=True)
class PanelQuery:
    """One query of one panel, or of an annotation."""

    panel_id: int | None
    """None for an annotation."""
    title: str
    ref_id: str
    expr: str

    @property
    def variables(self) -> set[str]:
        """Name the variables of the query, Grafana's own left out."""
        found = {short or long for long, short in VARIABLE.findall(self.expr)}
        return found - GRAFANA_OWN.keys()

    def filled(self, values: Mapping[str, str]) -> str:
        """Put values in for the variables; raise KeyError for one that has none."""
        return VARIABLE.sub(lambda found: {**GRAFANA_OWN, **values}[found[1] or found[2]], self.expr)


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel, those of collapsed rows included."""
    for panel in board.get("panels", []):
        yield panel
        yield from panel.get("panels", [])


def queries(board: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Yield every query of a dashboard."""
    for panel in panels(board):
        for target in panel.get("targets", []):
            if "expr" in target:
                yield PanelQuery(panel["id"], panel.get("title", ""), target.get("refId", "A"), target["expr"])
    for annotation in board.get("annotations", {}).get("list", []):
        if annotation.get("expr"):
            yield PanelQuery(None, annotation["name"], "A", annotation["expr"])


def metric_names(expr: str) -> set[str]:
    """Name the series that an expression without variables asks for; raise ValueError when it is no PromQL."""
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(selector, promql_parser.VectorSelector):
            named = [m.value for m in selector.matchers.matchers if m.name == "__name__"]
            found.update([selector.name] if selector.name else named)

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found
