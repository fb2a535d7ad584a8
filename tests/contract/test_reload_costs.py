"""The page on reload cost says what the recorded sessions give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.gpu.costs import tables

pytestmark = pytest.mark.contract

PAGE = Path(__file__).parents[2] / "docs/reload-cost-h200.md"
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def test_the_tables_are_those_of_the_evidence() -> None:
    """Every figure comes from docs/evidence by the code as it is now; another processor may round the last digit."""
    _, _, on_the_page = PAGE.read_text(encoding="utf-8").partition("\n### ")
    written, found = "### " + on_the_page.strip(), tables().strip()
    assert NUMBER.sub("N", written) == NUMBER.sub("N", found)
    assert _numbers(written) == pytest.approx(_numbers(found), rel=0.01, abs=1)


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]
