"""SGLang's token_trace: JSON lines with `input_tokens`, the ids of the whole prompt.

Read: sgl-project/sglang python/sglang/benchmark/datasets/token_trace.py: `output_tokens` (ids) or
`num_output_tokens`, and `ts` (seconds). The ids become blocks of 16 tokens; sessions are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.row import Duration, Row, Tokens, parse, present, same_fields
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import Place, Record, lines
from scenarios.token_blocks import TokenBlocks
from scenarios.trace import Clock, Scope, TraceInfo, TraceRequest

BLOCK_TOKENS = 16


class _Line(Row):
    input_tokens: list[int] = Field(min_length=1)
    output_tokens: list[int] | None = None
    num_output_tokens: Tokens | None = None
    ts: Duration | None = None


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.LINES and isinstance(sample.first("input_tokens"), list)


def _info(sample: Sample, block_tokens: int | None) -> TraceInfo:
    clock = Clock.TRACE if sample.has("ts") else Clock.NONE
    size = block_tokens or BLOCK_TOKENS
    return TraceInfo(FORMAT.name, clock, sessions_recorded=False, block_tokens=size, scope=Scope.GLOBAL)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    block_tokens = reading.options.block_tokens or BLOCK_TOKENS
    first: tuple[Place, frozenset[str]] | None = None

    def read(record: Record) -> list[TraceRequest]:
        nonlocal first
        line, place = parse(_Line, record), record.place
        has = present(line, ("ts",))
        first = first or (place, has)
        same_fields(place, first[0], has, first[1])
        output = line.num_output_tokens
        if output is None and line.output_tokens is not None:
            output = len(line.output_tokens)
        reading.check_context(place, len(line.input_tokens), output)
        blocks = TokenBlocks(block_tokens)
        blocks.extend(line.input_tokens)
        request = TraceRequest(
            session_id=f"line-{place.number}",
            turn=0,
            input_tokens=len(line.input_tokens),
            output_tokens=output,
            at_s=None if line.ts is None else reading.arrival_s(place, "ts", line.ts),
            block_ids=blocks.ids(),
            line=place.number,
        )
        return [request]

    return reading.each(lines(reading.path), read)


FORMAT = Format(
    name="sglang-tokens",
    looks_like="JSON lines with `input_tokens`, a list of token ids",
    keys=frozenset({"input_tokens", "output_tokens", "num_output_tokens", "num_input_tokens", "ts"}),
    matches=_matches,
    info=_info,
    read=_read,
)
