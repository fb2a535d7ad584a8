"""BurstGPT traces: CSV with Timestamp (s), Request tokens and Response tokens.

Read: HPMLL/BurstGPT README.md (columns; failed requests have 0 response tokens). Its release 2.0 adds `Session ID`
(conversations only) and `Elapsed time` (s, the whole reply), from which think times follow. The tokens of a request
are taken as its whole prompt, which the README does not say.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook, SessionState
from scenarios.readers.row import CsvRow, Duration, Tokens, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import Record, csv_rows
from scenarios.reading_report import Remark
from scenarios.trace import Clock, TraceInfo, TraceRequest

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
STEP_S = 1.0


class _Row(CsvRow):
    timestamp_s: Duration = Field(alias="Timestamp")
    request_tokens: Tokens = Field(alias="Request tokens")
    response_tokens: Tokens = Field(alias="Response tokens")
    session_id: str = Field("", alias="Session ID")
    elapsed_s: str = Field("", alias="Elapsed time")


class _Timed(CsvRow):
    elapsed_s: Duration = Field(alias="Elapsed time")


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.CSV and sample.has(*COLUMNS)


def _info(sample: Sample, _: int | None) -> TraceInfo:
    recorded = sample.has("Session ID")
    return TraceInfo(FORMAT.name, Clock.TRACE, sessions_recorded=recorded, at_step_s=STEP_S)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    book = SessionBook(reading.report)

    def read(record: Record) -> list[TraceRequest]:
        row, place = parse(_Row, record), record.place
        elapsed_s = parse(_Timed, record).elapsed_s if row.elapsed_s.strip() else None
        reading.check_context(place, row.request_tokens, row.response_tokens)
        at_s = reading.arrival_s(place, "Timestamp", row.timestamp_s)
        if not row.request_tokens or not row.response_tokens:
            reading.report.note(Remark.FAILED, place.short)
            return []
        named = row.session_id.strip()
        session_id = named or f"line-{place.number}"
        state = book.of(session_id) if named else SessionState()
        think_s = None
        if state.turns and state.ended_s is not None:
            think_s = max(0.0, at_s - state.ended_s)
        state.ended_s = None if elapsed_s is None else at_s + elapsed_s
        turn = book.add_turn(state, place, row.request_tokens, row.response_tokens)
        return [
            TraceRequest(
                session_id, turn, row.request_tokens, row.response_tokens, at_s=at_s, think_s=think_s, line=place.number
            )
        ]

    return reading.each(csv_rows(reading.path), read)


FORMAT = Format(
    name="burstgpt",
    looks_like=f"CSV with the columns {', '.join(COLUMNS)}",
    keys=frozenset({*COLUMNS, "Model", "Total tokens", "Log Type", "Session ID", "Elapsed time"}),
    matches=_matches,
    info=_info,
    read=_read,
)
