"""What is wrong with a dashboard or a rule file before Grafana or Prometheus shows it to anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from dashboards.known import known_metrics
from dashboards.queries import metric_names, panels, queries
from scenarios.strict import closest

COLUMNS = 24
VARIABLE_UID = re.compile(r"\$\{?(\w+)\}?")


def lint(board: Mapping[str, Any]) -> list[str]:
    """Name every fault that shows once a dashboard is provisioned or imported, one short phrase each."""
    id_is_set = ["id is not null"] if board.get("id") is not None else []
    return [*_inputs(board), *_datasources(board), *id_is_set, *_overlaps(board), *_queries(board)]


def lint_for_readers(board: Mapping[str, Any]) -> list[str]:
    """Name what readers miss: a stable address, and what each panel means and counts in."""
    found = [] if board.get("uid") else ["uid is missing: a link to the dashboard breaks with each import"]
    for panel in panels(board):
        if panel.get("targets") and not panel.get("description"):
            found.append(f"panel {panel['id']} has no description")
        if panel.get("targets") and not panel.get("fieldConfig", {}).get("defaults", {}).get("unit"):
            found.append(f"panel {panel['id']} has no unit")
    return found


def lint_rules(rules: Mapping[str, Any]) -> list[str]:
    """Name every fault of a Prometheus rule file; what `promtool check rules` sees is left to it."""
    all_rules = [rule for group in rules.get("groups", []) for rule in group.get("rules", [])]
    known = known_metrics() | recorded(rules)
    found = []
    for rule in all_rules:
        name = rule.get("alert") or rule.get("record")
        found += [f"rule {name}: {fault}" for fault in _faults_of(rule["expr"], known)]
        if "alert" in rule:
            missing = {"summary", "description"} - rule.get("annotations", {}).keys()
            found += [f"rule {name} has no {word}" for word in sorted(missing)]
            if "severity" not in rule.get("labels", {}):
                found.append(f"rule {name} has no severity")
    return found


def recorded(rules: Mapping[str, Any]) -> frozenset[str]:
    """Name the series that the rules record."""
    return frozenset(rule["record"] for g in rules.get("groups", []) for rule in g["rules"] if "record" in rule)


def _inputs(board: Mapping[str, Any]) -> Iterator[str]:
    if "__inputs" in board:
        yield "__inputs present"


def _datasources(board: Mapping[str, Any]) -> Iterator[str]:
    choices = {each["name"] for each in _variables(board) if each.get("type") == "datasource"}
    for where, uid in _datasource_uids(board):
        variable = VARIABLE_UID.fullmatch(uid)
        if variable is None:
            yield f"{where} has the fixed datasource uid {uid}"
        elif variable[1] not in choices:
            yield f"{where} uses {uid} but no templating variable of type datasource with that name"


def _datasource_uids(board: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every place that names a datasource, once for each of its uids."""
    for panel in panels(board):
        sources = [panel.get("datasource"), *(target.get("datasource") for target in panel.get("targets", []))]
        for uid in dict.fromkeys(source["uid"] for source in sources if isinstance(source, dict) and "uid" in source):
            yield f"panel {panel['id']}", uid
        if any(isinstance(source, str) for source in sources):
            yield f"panel {panel['id']}", next(source for source in sources if isinstance(source, str))
    for each in (*_variables(board), *board.get("annotations", {}).get("list", [])):
        source = each.get("datasource")
        if isinstance(source, dict) and source.get("uid") not in (None, "-- Grafana --"):
            yield f"{each['name']}", source["uid"]


def _overlaps(board: Mapping[str, Any]) -> Iterator[str]:
    placed = [(panel["id"], panel["gridPos"]) for panel in panels(board) if "gridPos" in panel]
    for number, at in placed:
        if at["x"] + at["w"] > COLUMNS:
            yield f"panel {number} reaches past the right edge"
    for (one, a), (other, b) in combinations(placed, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        if not beside and not above:
            yield f"panels {one} and {other} overlap"


def _queries(board: Mapping[str, Any]) -> Iterator[str]:
    names = {each["name"] for each in _variables(board)}
    known = known_metrics()
    for query in queries(board):
        where = f"panel {query.panel_id}" if query.panel_id is not None else f"annotation {query.title}"
        for name in sorted(query.variables - names):
            yield f"{where} uses ${name}, which is no variable"
        filled = query.filled(dict.fromkeys(query.variables, "x"))
        yield from (f"{where}: {fault}" for fault in _faults_of(filled, known))


def _faults_of(expr: str, known: frozenset[str]) -> list[str]:
    try:
        names = metric_names(expr)
    except ValueError as problem:
        return [f"no PromQL: {str(problem).splitlines()[0]}"]
    return [f"unknown metric {name}{_meant(name, known)}" for name in sorted(names - known)]


def _meant(name: str, known: frozenset[str]) -> str:
    near = closest(name, known)
    return f"; did you mean {near}?" if near else ""


def _variables(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = board.get("templating", {}).get("list", [])
    return listed
