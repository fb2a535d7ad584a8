"""Files as streams of records, each with its place, whatever is around them: gzip, JSON lines, JSON documents, CSV."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ijson

from scenarios.packed import opened
from scenarios.trace import TraceError

ARRAY_ITEM = "item"


class BadRecord(TraceError):
    """Raised for one line or record that is wrong while the rest of the file may be right."""


class CutShort(BadRecord):
    """Raised where a JSON document ends in the middle of a record: all before it was whole."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands."""

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        """Say it as messages do."""
        return f"{self.path}, {self.unit} {self.number}"

    @property
    def short(self) -> str:
        """Say it without the file."""
        return f"{self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class Record:
    """One line (bytes) or one value of a JSON document, and what the document says outside of its records."""

    place: Place
    data: bytes | object
    head: dict[str, Any]


def lines(path: Path) -> Iterator[Record]:
    """Yield the lines that are not empty."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if text.strip():
                yield Record(Place(path, number), text, {})


def csv_rows(path: Path) -> Iterator[Record]:
    """Yield the rows below the heading, each as a dict by column; raise BadRecord never, TraceError for no CSV."""
    with opened(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text)
        try:
            for row in reader:
                yield Record(Place(path, reader.line_num), row, {})
        except csv.Error as problem:
            raise TraceError(f"{path}, line {reader.line_num}: no CSV ({problem}); save it as plain CSV") from None


def array_items(path: Path) -> Iterator[Record]:
    """Yield the items of a JSON array, one at a time."""
    with opened(path) as file:
        watched = _Watched(file)
        number = 0
        with _json_faults(path, watched, lambda: number):
            for number, item in enumerate(ijson.items(watched, ARRAY_ITEM, use_float=True), start=1):
                yield Record(Place(path, number, "record"), item, {})


def object_items(path: Path, key: str) -> Iterator[Record]:
    """Yield the items of the array `key` of a JSON object, with what stands before it as `head`.

    Several objects may follow each other in a file.
    """
    item_prefix = f"{key}.{ARRAY_ITEM}"
    with opened(path) as file:
        watched = _Watched(file)
        number, builder = 0, None
        head: dict[str, Any] = {}
        with _json_faults(path, watched, lambda: number):
            for prefix, event, value in ijson.parse(watched, multiple_values=True, use_float=True):
                if builder is None and prefix == item_prefix and event not in ("end_map", "end_array"):
                    builder = ijson.ObjectBuilder()
                if builder is not None and prefix.startswith(item_prefix):
                    builder.event(event, value)
                    if prefix == item_prefix and event not in ("start_map", "start_array", "map_key"):
                        number += 1
                        yield Record(Place(path, number, "record"), builder.value, head)
                        builder = None
                elif prefix == "" and event == "start_map":
                    head = {}
                elif prefix and "." not in prefix and value is not None and event != "map_key":
                    head[prefix] = value


class _Watched:
    """Knows whether a parser has read to the end: a fault there means that the file is cut short."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        """Read as a file does."""
        data = self._file.read(size)
        self.ended = self.ended or (size != 0 and not data)  # ijson asks for 0 bytes to learn their type
        return data


@contextmanager
def _json_faults(path: Path, watched: _Watched, number: Callable[[], int]) -> Iterator[None]:
    try:
        yield
    except ijson.JSONError as problem:
        place = Place(path, number() + 1, "record")
        if watched.ended:
            raise CutShort(f"{place}: the file ends in the middle of this record") from None
        reason = str(problem).splitlines()[0].removeprefix("parse error: ")
        raise TraceError(f"{place}: not valid JSON ({reason}), and nothing after it can be read; correct it") from None
