"""The project's own trace files, as `scenario convert` and `scenario anonymise` write them."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.sample import Layout, Sample
from scenarios.trace import TraceInfo, TraceRequest
from scenarios.trace_file import KIND, read_info, read_remarks, requests_of


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.LINES and sample.first("kind") == KIND


def _info(sample: Sample, _: int | None) -> TraceInfo:
    return read_info(sample.path)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    reading.report.earlier = read_remarks(reading.path)
    return requests_of(reading.path)


FORMAT = Format(
    name="hicache-tune",
    looks_like="a trace file of `hicache-tune scenario convert`",
    keys=frozenset({"schema_version", "kind", "info", "source"}),
    matches=_matches,
    info=_info,
    read=_read,
)
