"""The report of a study as Markdown, for a pull request, a wiki or a mail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tuning.config import Search
from tuning.report import words
from tuning.report.command import one_flag_a_line
from tuning.report.conditions import conditions, method
from tuning.report.costs import cost_rows
from tuning.report.data import StudyResult
from tuning.report.fronts import Front
from tuning.report.rows import STRESS, TrialRow
from tuning.report.sensitivity import Sensitivity, Slice, value_text
from tuning.report.table import FOOTNOTE, candidate_cells, candidate_heads, detail_rows, trial_columns
from tuning.report.trade_offs import front_cells, front_heads
from tuning.verdict import Verdict

SPECIAL = re.compile(r"[\\`*\[\]|~$&<>]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^(?:#+|[+-])(?=\s|$)|^(\d+)(?=[.)](?:\s|$))")
"""What means something anywhere, underscores at the ends of words, and what opens a heading or a list."""
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(result: StudyResult, search: Search) -> str:
    """Write the whole report; what comes from outside is escaped, so that no label can be markup."""
    parts = (
        _verdict(result),
        _launch(result),
        _confirmation(result),
        _trade_offs(result.verdict),
        _stress(result.trials),
        _trials(result.trials),
        _left_out(result),
        _latency(result),
        _table_of_costs(result),
        _sensitivity(result.sensitivity),
        _fronts(result.fronts, result.trials),
        _conditions(result, search),
        _section("How it was measured", (f"- {text(each)}" for each in method(search))),
        _section("Remarks", (f"- {text(each)}" for each in result.remarks)),
    )
    lines = [line for part in parts for line in part]
    return "\n".join(lines).rstrip() + "\n"


def text(said: object) -> str:
    """Take the meaning of markup from a text and put it on one line."""
    return SPECIAL.sub(_harmless, " ".join(str(said).split()))


def _harmless(found: re.Match[str]) -> str:
    if found[1]:
        return f"{found[1]}\\"
    return ENTITIES.get(found[0], f"\\{found[0]}")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words_first: int = 1) -> Iterator[str]:
    """Yield a table whose first `words_first` columns are words, and all others figures."""
    yield f"| {' | '.join(map(text, heads))} |"
    yield f"|{'|'.join('---' if place < words_first else '--:' for place in range(len(heads)))}|"
    for row in rows:
        yield f"| {' | '.join(words.UNKNOWN if cell == words.UNKNOWN else text(cell) for cell in row)} |"


def code(content: str) -> Iterator[str]:
    """Yield a block of code that nothing in `content` can end."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}sh", content, fence)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    content = "\n".join(lines).strip()
    if content:
        yield from (f"## {title}", "", content, "")


def _verdict(result: StudyResult) -> Iterator[str]:
    sentence, environment = result.verdict.sentence.rstrip("."), result.environment
    yield from (f"# {text(sentence[:1].upper() + sentence[1:])}.", "")
    yield from (
        f"{text(result.verdict.kind.value.capitalize())}. Study {text(result.study)}, "
        f"scenario {text(result.scenario)}, {text(environment.model)}, SGLang {text(environment.sglang_version)} on "
        f"{text(environment.device)}.",
        "",
    )


def _launch(result: StudyResult) -> Iterator[str]:
    if result.launch_command:
        title = "Launch the winner" if result.verdict.winner else "Launch the best so far"
        yield from _section(title, code(one_flag_a_line(result.launch_command)))


def _confirmation(result: StudyResult) -> Iterator[str]:
    verdict = result.verdict
    if verdict.candidates:
        rows = [candidate_cells(candidate, verdict) for candidate in verdict.candidates]
        rule = ("", f"Recommended by {text(verdict.rule)}.") if verdict.rule else ()
        lines = ("Fresh sessions, the same for every setting.", "", *table(candidate_heads(verdict), rows), *rule)
        yield from _section("Confirmation", lines)


def _trials(rows: Sequence[TrialRow]) -> Iterator[str]:
    feasible = [row for row in rows if row.feasible and row.purpose != STRESS]
    columns = trial_columns(wide=True)
    if feasible:
        lines = table(
            [column.head for column in columns], [[c.cell(row) for c in columns] for row in feasible], words_first=2
        )
        yield from _section("Trials", ("TTFT of the steady window, in seconds.", "", *lines, "", text(FOOTNOTE)))


def _trade_offs(verdict: Verdict) -> Iterator[str]:
    if verdict.front:
        said = "Settings of the search, one trial each, that no other one beats in every goal:"
        lines = table(front_heads(verdict), map(front_cells, verdict.front), words_first=2)
        yield from _section("Trade-offs", (said, "", *lines))


def _stress(rows: Sequence[TrialRow]) -> Iterator[str]:
    found = [
        (row.label, words.seconds(row.ttft.p99_s if row.ttft else None), words.share(row.error_rate),
         "holds" if row.feasible else row.why or row.outcome.value)
        for row in rows
        if row.purpose == STRESS
    ]  # fmt: skip
    heads = ("setting", "TTFT P99, s", "errors", "outcome")
    yield from _section("Under more load", table(heads, found) if found else ())


def _left_out(result: StudyResult) -> Iterator[str]:
    heads = ("why", "trials", "for example", "what follows")
    rows = [
        (each.why, ", ".join(map(str, each.trial_numbers)), each.example or words.UNKNOWN, each.meaning)
        for each in result.left_out
    ]
    yield from _section("Left out, and why", table(heads, rows, words_first=4) if rows else ())


def _latency(result: StudyResult) -> Iterator[str]:
    rows = [
        (detail.role if place == 0 else "", title, words.count(each.count),
         *map(words.seconds, (each.p50_s, each.p90_s, each.p99_s, each.p999_s, each.max_s)))
        for detail in result.details
        for place, (title, each) in enumerate(detail_rows(detail))
    ]  # fmt: skip
    heads = ("setting", "metric", "values", "P50", "P90", "P99", "P99.9", "max")
    yield from _section("Latencies, in seconds", table(heads, rows, words_first=2) if rows else ())


def _table_of_costs(result: StudyResult) -> Iterator[str]:
    rows = [(name, *cells) for name, cells in cost_rows(result.costs)]
    yield from _section(
        "Headroom and reload cost", table(("", *(cost.role for cost in result.costs)), rows) if rows else ()
    )


def _sensitivity(found: Sensitivity) -> Iterator[str]:
    lines: list[str] = []
    if found.importance:
        rows = [
            (i.flag, words.share(i.share), words.share(i.by_chance), "yes" if i.stands_out else "no")
            for i in found.importance
        ]
        lines += [f"What tells the best {found.best} of {found.trials} settings from the others (PED-ANOVA).", ""]
        lines += [*table(("flag", "importance", "by chance", "stands out"), rows), ""]
    elif found.why_none:
        lines += [f"No importance: {text(found.why_none)}.", ""]
    alone = [row for each in found.slices for row in _alone(each)]
    if alone:
        lines += ["Settings that differ from the leading one in a single flag, each from one trial:", ""]
        lines += table(("flag", "value", "TTFT P99, s", "trial"), alone, words_first=2)
    yield from _section("What decides", lines)


def _alone(found: Slice) -> Iterator[Sequence[object]]:
    for place, point in enumerate(found.alone):
        yield found.flag if place == 0 else "", value_text(point.value), words.seconds(point.p99_s), point.trial


def _fronts(fronts: Sequence[Front], rows: Sequence[TrialRow]) -> Iterator[str]:
    labels = {row.number: row.label for row in rows}
    for front in fronts:
        ahead = [
            (labels[place.trial], f"{front.shown(place):,.4g}", words.seconds(place.p99_s), place.trial)
            for place in front.places
            if place.on_front
        ]
        heads = ("setting", f"{front.goal}, {front.shown_unit}", "TTFT P99, s", "trial")
        said = "Feasible settings of the search, one trial each, that no other one beats in both:"
        yield from _section(f"TTFT P99 against {front.goal}", (said, "", *table(heads, ahead)))


def _conditions(result: StudyResult, search: Search) -> Iterator[str]:
    yield from _section("Environment", table(("condition", "value"), conditions(result, search), words_first=2))
