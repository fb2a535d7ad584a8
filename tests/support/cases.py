"""Reads the cases that were built from public bug reports, and the captures of real engines."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"


def case_folder(number: str) -> Path:
    """Find the folder of the case with this two-digit number."""
    return next((DATA / "cases").glob(f"{number}-*"))


def expected(number: str) -> dict[str, Any]:
    """Return what the case says must come out."""
    case = json.loads((case_folder(number) / "case.json").read_text(encoding="utf-8"))
    answer: dict[str, Any] = case["expected"]
    return answer


def case_rows(number: str, name: str) -> list[dict[str, Any]]:
    """Read a JSON-lines file of the case."""
    lines = (case_folder(number) / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def socket_reads(number: str) -> list[tuple[int, bytes]]:
    """Return the reads of an `sse` case: milliseconds since sent, and the bytes."""
    return [(row["t_ms"], base64.b64decode(row["b64"])) for row in case_rows(number, "stream.jsonl")]
