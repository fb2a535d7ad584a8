"""The generated pages of docs/ are those of the code."""

from __future__ import annotations

import pytest

from scripts.docs import DOCS, pages


@pytest.mark.parametrize("name", ["flags.md", "metrics.md"])
def test_page_is_fresh(name: str) -> None:
    """A page is what `make docs` would write now."""
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run `make docs`"


def test_all_pages_are_tested() -> None:
    """No generated page is left out above."""
    assert set(pages()) == {"flags.md", "metrics.md"}
