"""Opening a trace: which format it is, by its content, and the stream of its requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scenarios.readers import (
    aiperf_multi_turn,
    azure,
    bailian,
    burstgpt,
    kv_cache_tester,
    lmcache,
    mooncake,
    normalised,
    openai_chat,
    sglang_agentic,
    sglang_tokens,
    sharegpt,
    turn_lines,
    vllm_multi_turn,
)
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, ReadOptions
from scenarios.readers.sample import Layout, Sample, take_sample
from scenarios.reading_report import ReadingReport
from scenarios.strict import nearest
from scenarios.trace import Trace, TraceError, TraceRequest

FORMATS: tuple[Format, ...] = (
    normalised.FORMAT,
    mooncake.FORMAT,
    kv_cache_tester.FORMAT,
    openai_chat.FORMAT,
    sharegpt.FORMAT,
    azure.FORMAT,
    burstgpt.FORMAT,
    bailian.FORMAT,
    sglang_agentic.FORMAT,
    sglang_tokens.FORMAT,
    vllm_multi_turn.FORMAT,
    aiperf_multi_turn.FORMAT,
    turn_lines.FORMAT,
    lmcache.FORMAT,
)


def open_trace(
    path: str | Path,
    *,
    format: str | None = None,
    skip_bad: int = 0,
    max_context_tokens: int | None = None,
    block_tokens: int | None = None,
    drop_duplicates: bool = False,
) -> Trace:
    """Open a trace in any of the formats of docs/traces.md, recognised by its content unless `format` names it.

    Nothing but the beginning is read here. Each `requests()` of the result streams the file from its beginning, and
    `report` says afterwards what was skipped or changed. Up to `skip_bad` bad lines are skipped. Raises TraceError,
    here and while reading, with the file, the line and the field.
    """
    where = Path(path)
    options = ReadOptions(skip_bad, max_context_tokens, block_tokens, drop_duplicates)
    sample = take_sample(where)
    chosen = _recognise(sample) if format is None else _named(format)
    if sample.layout is Layout.FOLDER and chosen is not kv_cache_tester.FORMAT:
        raise TraceError(f"{where} is a folder; only {kv_cache_tester.FORMAT.name} traces are read from folders")
    info = chosen.info(sample, block_tokens)
    report = ReadingReport()

    def requests() -> Iterator[TraceRequest]:
        report.begin()
        for request in chosen.read(Reading(where, sample, options, report)):
            report.requests += 1
            yield request

    return Trace(info, requests, report)


def _named(name: str) -> Format:
    formats = {format.name: format for format in FORMATS}
    if name not in formats:
        raise TraceError(f"no format is named `{name}`{nearest(name, formats)}")
    return formats[name]


def _recognise(sample: Sample) -> Format:
    if sample.layout is Layout.FOLDER:
        return next((format for format in FORMATS if format.matches(sample)), normalised.FORMAT)
    found = [format for format in FORMATS if format.matches(sample)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(format.name for format in found)
        raise TraceError(f"{sample.path}: may be {names}; say which with --format")
    looked_for = "; ".join(f"{format.name} ({format.looks_like})" for format in FORMATS)
    near, shared = max(((format, format.keys & sample.keys) for format in FORMATS), key=lambda pair: len(pair[1]))
    hint = ""
    if shared:
        missing = ", ".join(f"`{key}`" for key in sorted(shared))
        hint = f"; nearest is {near.name}, with which it shares {missing} (try --format {near.name})"
    keys = ", ".join(f"`{key}`" for key in sorted(sample.keys)[:12]) or "no keys"
    raise TraceError(
        f"{sample.path}: {sample.layout} with {keys} is no format that is known{hint}; known: {looked_for}"
    )
