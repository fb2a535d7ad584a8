"""One night on a page for people (Markdown), and as a JUnit report for what runs jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from harness.telemetry.nightly_exporter import Measured, Night
from tuning.nightly.history import NightRecord

SHOWN_NIGHTS = 14


def markdown(record: NightRecord, nights: Sequence[NightRecord]) -> str:
    """Write the night as a page; `nights` are those of the job, the latest first."""
    return "\n".join(_page(record, nights)) + "\n"


def junit(record: NightRecord) -> str:
    """Write the night as JUnit XML: whether it ran, and whether production got slower."""
    night = record.night
    outcome = night.outcome if night else "no data"
    suite = ElementTree.Element("testsuite", name=f"hicache-tune nightly {record.job}")
    ran = _case(suite, record, "the night was measured")
    slower = _case(suite, record, "production is not slower than on the last good night")
    if outcome == "failed":
        ElementTree.SubElement(ran, "error", message=record.sentence, type=outcome)
    elif outcome in ("skipped", "no data"):
        ElementTree.SubElement(ran, "skipped", message=record.sentence)
    if outcome == "regression":
        cause = night.cause if night and night.cause else "unknown"
        ElementTree.SubElement(slower, "failure", message=record.sentence, type=cause)
    elif outcome != "good":
        ElementTree.SubElement(slower, "skipped", message=f"nothing to compare: {outcome}")
    if record.notes:
        ElementTree.SubElement(ran, "system-out").text = "\n".join(record.notes)
    cases = list(suite.iter("testcase"))
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("error", "failure", "skipped")}
    suite.attrib |= {
        "tests": str(len(cases)),
        "errors": str(counts["error"]),
        "failures": str(counts["failure"]),
        "skipped": str(counts["skipped"]),
        "time": f"{night.duration_s if night else 0:.3f}",
        "timestamp": f"{record.started_at:%Y-%m-%dT%H:%M:%S}",
    }
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, record: NightRecord, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=record.job, name=name)


def _page(record: NightRecord, nights: Sequence[NightRecord]) -> Iterator[str]:
    night = record.night
    outcome = night.outcome if night else "no data"
    yield f"# {record.job}: {outcome}"
    yield ""
    yield f"{_cell(record.sentence)}."
    yield ""
    yield f"Night of {record.started_at:%Y-%m-%d %H:%M} UTC, study `{record.study}`, exit code {record.exit_code}."
    if night and (rows := list(_roles(night))):
        yield from ("", "| | setting | TTFT P99 | 95 % interval | least memory free | from a cache |")
        yield "|---|---|---|---|---|---|"
        yield from rows
    if record.proposal:
        yield from ("", f"Proposed, for a person to apply: `{record.proposal}`")
    if record.notes:
        yield from ("", *(f"- {_cell(note)}" for note in record.notes))
    if night and night.environment:
        yield from (
            "",
            "Conditions: " + ", ".join(f"{key} {value}" for key, value in night.environment.items() if value),
        )
    yield from ("", "| night | outcome | production | change | cause |", "|---|---|---|---|---|")
    yield from (_row(each) for each in nights[:SHOWN_NIGHTS])


def _roles(night: Night) -> Iterator[str]:
    for role in ("production", "winner", "baseline"):
        measured: Measured | None = getattr(night, role)
        if measured is not None:
            rooms = ", ".join(f"{kind} {size / 2**30:.1f} GiB" for kind, size in measured.headroom_bytes.items())
            cached = "-" if measured.cached_ratio is None else f"{measured.cached_ratio:.0%}"
            cells = (role, measured.setting, _p99(measured), _interval(measured), rooms or "-", cached)
            yield f"| {' | '.join(map(_cell, cells))} |"


def _row(record: NightRecord) -> str:
    night = record.night
    outcome = "unfinished" if night is None else night.outcome
    cells = (
        f"{record.started_at:%Y-%m-%d}",
        f"{outcome}, accepted" if record.accepted else outcome,
        _p99(night.production) if night and night.production else "-",
        "-" if night is None or night.change_ratio is None else f"{night.change_ratio:+.1%}",
        (night.cause if night else None) or "-",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _p99(measured: Measured) -> str:
    return f"{measured.ttft_p99_s:.3f} s"


def _interval(measured: Measured) -> str:
    if measured.low_s is None or measured.high_s is None:
        return "-"
    return f"{measured.low_s:.3f}-{measured.high_s:.3f} s"


def _cell(text: str) -> str:
    """Keep a text on its line and in its cell."""
    return " ".join(text.split()).replace("|", "\\|")
