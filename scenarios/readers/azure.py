"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens and GeneratedTokens; no sessions, no prefixes.

The dates have 7 fractional digits, of which 6 are kept; those of 2024 have an offset from UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.row import CsvRow, PromptTokens, Tokens, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Place, Record, csv_rows
from scenarios.trace import Clock, TraceInfo, TraceRequest

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class _Row(CsvRow):
    timestamp: str = Field(alias="TIMESTAMP")
    context_tokens: PromptTokens = Field(alias="ContextTokens")
    generated_tokens: Tokens = Field(alias="GeneratedTokens")


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.CSV and sample.has(*COLUMNS)


def _info(_: Sample, __: int | None) -> TraceInfo:
    return TraceInfo(FORMAT.name, Clock.TRACE, sessions_recorded=False)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    def read(record: Record) -> list[TraceRequest]:
        row, place = parse(_Row, record), record.place
        clock_s = _seconds(place, row.timestamp)
        reading.check_context(place, row.context_tokens, row.generated_tokens)
        at_s = reading.arrival_s(place, "TIMESTAMP", clock_s)
        name = f"line-{place.number}"
        return [TraceRequest(name, 0, row.context_tokens, row.generated_tokens, at_s=at_s, line=place.number)]

    return reading.each(csv_rows(reading.path), read)


def _seconds(place: Place, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRecord(f"{place}: `TIMESTAMP` is {text[:40]!r}, which is no date and time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


FORMAT = Format(
    name="azure-llm",
    looks_like=f"CSV with the columns {', '.join(COLUMNS)}",
    keys=frozenset(COLUMNS),
    matches=_matches,
    info=_info,
    read=_read,
)
