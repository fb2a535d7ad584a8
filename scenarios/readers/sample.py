"""The beginning of a trace, from which its format is recognised; names of files say nothing."""

from __future__ import annotations

import enum
import itertools
import json
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ijson

from scenarios.packed import opened
from scenarios.readers.source import ARRAY_ITEM, BadRecord, array_items, csv_rows, lines
from scenarios.trace import TraceError

LONGEST_LINE_BYTES = 64 * 2**20
"""A first line longer than this is taken for a document on one line."""
SAMPLE_RECORDS = 256
SAMPLE_BYTES = 4 * 2**20
SAMPLE_EVENTS = 200_000
TRACE_FILES = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")


class Layout(enum.StrEnum):
    """How records lie in a file; the value names it in messages."""

    LINES = "JSON lines"
    ARRAY = "a JSON array"
    OBJECT = "a JSON object"
    CSV = "CSV"
    FOLDER = "a folder of JSON files"


@dataclass(frozen=True, slots=True)
class Sample:
    """The first records of a trace."""

    path: Path
    layout: Layout
    records: tuple[dict[str, Any], ...]
    """Objects of the first lines, or of the array's first items; the one object itself, its arrays cut."""
    columns: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the first record, or the columns."""
        return frozenset(self.columns or (self.records[0] if self.records else ()))

    def has(self, *keys: str) -> bool:
        """Tell whether the first record has all of `keys`."""
        return self.keys.issuperset(keys)

    def first(self, key: str) -> Any:
        """Return a value of the first record; None when it has none."""
        return self.records[0].get(key) if self.records else None


def take_sample(path: Path) -> Sample:
    """Look at the beginning of `path`; raise TraceError when nothing of it can be read as records."""
    if path.is_dir():
        files = files_of(path)
        if not files:
            raise TraceError(f"{path}: the folder holds no {' or '.join(TRACE_FILES[:2])} file; give the right one")
        inner = take_sample(files[0])
        return Sample(path, Layout.FOLDER, inner.records)
    if _first_character(path) == b"[":
        return Sample(path, Layout.ARRAY, _objects(path))
    first = _first_line(path)
    if first.lstrip()[:1] == b"{":
        if _is_lines(path, first):
            return Sample(path, Layout.LINES, _line_objects(path))
        return Sample(path, Layout.OBJECT, (_skeleton(path),))
    if b"," in first:
        row = next(csv_rows(path), None)
        if row is None:
            raise TraceError(f"{path}: a CSV heading without a row; give a trace with requests")
        columns = row.data if isinstance(row.data, dict) else {}
        return Sample(path, Layout.CSV, (), tuple(name for name in columns if name))
    raise TraceError(f"{path}: neither JSON nor CSV; give a trace in one of the formats of docs/traces.md")


def files_of(folder: Path) -> list[Path]:
    """List the trace files of a folder, by name."""
    return sorted(file for pattern in TRACE_FILES for file in folder.glob(pattern))


def _first_character(path: Path) -> bytes:
    with opened(path) as file:
        while piece := file.read(4096):
            if text := piece.removeprefix(BOM_UTF8).lstrip():
                return text[:1]
    raise TraceError(f"{path}: the file is empty; give a trace with requests")


def _first_line(path: Path) -> bytes:
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            text = line.removeprefix(BOM_UTF8)
            if text.strip():
                return text
    raise TraceError(f"{path}: the file is empty; give a trace with requests")


def _is_lines(path: Path, first: bytes) -> bool:
    """Tell JSON lines from one document: a line of the former is whole, even when it is broken."""
    if len(first) >= LONGEST_LINE_BYTES:
        return False
    if isinstance(_loads(first), dict):
        return True
    second = next(itertools.islice(lines(path), 1, None), None)
    only_brace = first.strip() == b"{"
    return not only_brace and second is not None and isinstance(second.data, bytes) and second.data[:1] == b"{"


def _line_objects(path: Path) -> tuple[dict[str, Any], ...]:
    objects: list[dict[str, Any]] = []
    size = 0
    for record in itertools.islice(lines(path), SAMPLE_RECORDS):
        data = record.data if isinstance(record.data, bytes) else b""
        value = _loads(data)
        if isinstance(value, dict):
            objects.append(value)
        size += len(data)
        if size > SAMPLE_BYTES:
            break
    if not objects:
        raise TraceError(f"{path}: none of the first {SAMPLE_RECORDS} lines is a JSON object; give another file")
    return tuple(objects)


def _loads(data: bytes) -> object:
    try:
        return json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return None


def _objects(path: Path) -> tuple[dict[str, Any], ...]:
    found = []
    try:
        for record in itertools.islice(array_items(path), 3):
            if isinstance(record.data, dict):
                found.append(record.data)
    except BadRecord:
        pass  # the reading itself says what is wrong there
    if not found:
        raise TraceError(f"{path}: a JSON array without a whole object; give a trace with requests or conversations")
    return tuple(found)


def _skeleton(path: Path) -> dict[str, Any]:
    """Return the keys of the first object of a file with plain values, and of each array only the first item."""
    keys: dict[str, Any] = {}
    builder: Any = None
    with opened(path) as file:
        events = ijson.parse(file, multiple_values=True, use_float=True)
        try:
            for prefix, event, value in itertools.islice(events, SAMPLE_EVENTS):
                key, _, rest = prefix.partition(".")
                if prefix == "" and event == "end_map":
                    break
                if not key or (event == "map_key" and not rest):
                    continue
                if not rest:
                    keys.setdefault(key, [] if event == "start_array" else value)
                    builder = None
                elif rest.split(".")[0] == ARRAY_ITEM and keys.get(key) == [] and builder is None:
                    builder = ijson.ObjectBuilder()
                if builder is not None and rest:
                    builder.event(event, value)
                    if rest == ARRAY_ITEM and event in ("end_map", "end_array"):
                        keys[key], builder = [builder.value], None
        except ijson.JSONError:
            pass  # the reading itself says what is wrong there
    if not keys:
        raise TraceError(f"{path}: a JSON object that cannot be read from its beginning; check that it is whole")
    return keys
