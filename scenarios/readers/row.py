"""What all records have in common: strict fields, and one sentence for the field that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.readers.source import BadRecord, Place, Record

RowT = TypeVar("RowT", bound="Row")
SHOWN_CHARACTERS = 40

Tokens = Annotated[int, Field(ge=0)]
PromptTokens = Annotated[int, Field(ge=1)]
Duration = Annotated[float, Field(ge=0)]


class Row(BaseModel):
    """One record of a source. Keys that are not read are no fault: every producer adds its own."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True)


class CsvRow(Row):
    """One row of a CSV file, whose values are all text."""

    model_config = ConfigDict(strict=False)


def parse(model: type[RowT], record: Record) -> RowT:
    """Read `record` as a `model`; raise BadRecord with its place, the field, and what is wrong with it."""
    try:
        if isinstance(record.data, bytes):
            return model.model_validate_json(record.data.strip())
        return model.model_validate(record.data)
    except ValidationError as problem:
        raise BadRecord(f"{record.place}: {_explain(problem)}") from None


def same_fields(place: Place, first: Place, mine: frozenset[str], firsts: frozenset[str]) -> None:
    """Raise BadRecord when this record is timed by other fields than the first record of its kind."""
    if mine == firsts:
        return
    has = _names(mine - firsts) or "no time"
    had = _names(firsts - mine) or "no time"
    raise BadRecord(f"{place}: has {has} where {first.short} has {had}; all turns of a trace must be timed alike")


class TurnTimes:
    """Checks that all turns of a trace are timed by the same fields; only a first turn may go without its delay."""

    def __init__(self, delays: Iterable[str]) -> None:
        self._delays = frozenset(delays)
        self._first: tuple[Place, frozenset[str]] | None = None
        self._untimed: Place | None = None

    def check(self, place: Place, fields: frozenset[str], *, opens: bool) -> None:
        """Check the fields of one turn, which `opens` its session or not; raise BadRecord."""
        by_delay = self._first is None or self._first[1] <= self._delays
        if opens and not fields and by_delay:
            self._untimed = self._untimed or place
            return
        if self._untimed is not None and not fields <= self._delays:
            same_fields(place, self._untimed, fields, frozenset())
        self._first = self._first or (place, fields)
        same_fields(place, self._first[0], fields, self._first[1])


def present(row: Mapping[str, Any] | BaseModel, names: tuple[str, ...]) -> frozenset[str]:
    """Return which of `names` have a value."""
    values = row if isinstance(row, Mapping) else dict(row)
    return frozenset(name for name in names if values.get(name) is not None)


def _names(names: frozenset[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))


def _explain(problem: ValidationError) -> str:
    fault = problem.errors(include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "json_invalid":
        reason = re.sub(r" at line \d+ column", " at column", str(fault["ctx"]["error"]))
        return f"not valid JSON ({reason})" + (", the line is cut short" if reason.startswith("EOF") else "")
    if fault["type"] == "missing":
        return f"`{field}` is missing"
    said = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not field:
        return f"not what a record of this format is: {said[:1].lower()}{said[1:]}"
    value = repr(fault["input"])
    shown = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}..."
    return f"`{field}` is {shown}: {said[:1].lower()}{said[1:]}"
