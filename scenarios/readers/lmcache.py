"""Results of multi-round-qa (LMCache, vLLM production-stack): CSV with one request a row, as it was really sent.

Read: vllm-project/production-stack benchmarks/multi-round-qa/multi-round-qa.py, whose `--output` (summary.csv) has
prompt_tokens, generation_tokens, ttft, generation_time, user_id, question_id, launch_time and finish_time. A user is
a session. Sessions stand in the file in the order in which they ended. Its ShareGPT input is read as ShareGPT.
"""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook
from scenarios.readers.row import CsvRow, Duration, PromptTokens, Tokens, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Record, csv_rows
from scenarios.trace import Clock, TraceInfo, TraceRequest

COLUMNS = ("prompt_tokens", "generation_tokens", "user_id", "launch_time", "finish_time")


class _Row(CsvRow):
    prompt_tokens: PromptTokens
    generation_tokens: Tokens
    user_id: str
    launch_time: Duration
    finish_time: Duration


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.CSV and sample.has(*COLUMNS)


def _info(_: Sample, __: int | None) -> TraceInfo:
    return TraceInfo(FORMAT.name, Clock.TRACE, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    book = SessionBook(reading.report)
    origin_s = _first_launch_s(reading)

    def read(record: Record) -> list[TraceRequest]:
        row, place = parse(_Row, record), record.place
        if row.finish_time < row.launch_time:
            raise BadRecord(f"{place}: `finish_time` is before `launch_time`")
        reading.check_context(place, row.prompt_tokens, row.generation_tokens)
        state = book.of(row.user_id)
        if state.ended_s is not None and row.launch_time < state.ended_s:
            raise BadRecord(f"{place}: `launch_time` is before the user's reply of the row above has ended")
        think_s = None if state.ended_s is None else row.launch_time - state.ended_s
        state.ended_s = row.finish_time
        turn = book.add_turn(state, place, row.prompt_tokens, row.generation_tokens)
        request = TraceRequest(
            session_id=row.user_id,
            turn=turn,
            input_tokens=row.prompt_tokens,
            output_tokens=row.generation_tokens,
            at_s=row.launch_time - origin_s,
            think_s=think_s,
            line=place.number,
        )
        return [request]

    return reading.each(csv_rows(reading.path), read)


def _first_launch_s(reading: Reading) -> float:
    """Return the earliest launch; sessions are not in order of their beginning."""
    earliest = float("inf")
    for record in csv_rows(reading.path):
        try:
            earliest = min(earliest, parse(_Row, record).launch_time)
        except BadRecord:
            continue  # the reading proper says so
    return earliest


FORMAT = Format(
    name="multi-round-qa",
    looks_like=f"CSV with the columns {', '.join(COLUMNS)}",
    keys=frozenset({*COLUMNS, "ttft", "generation_time", "question_id"}),
    matches=_matches,
    info=_info,
    read=_read,
)
