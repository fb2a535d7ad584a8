"""How figures are written."""

from __future__ import annotations

import pytest

from tuning.report import words


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (words.seconds(0.91249), "0.912"),
        (words.seconds(None), "-"),
        (words.span(0.85, 1.0), "[0.850, 1.000]"),
        (words.span(None, 1.0), "no interval"),
        (words.share(0.0), "0%"),
        (words.share(0.004), "0.4%"),
        (words.share(0.00001), "<0.1%"),
        (words.share(0.619), "62%"),
        (words.share(None), "-"),
        (words.change(-0.62), "-62%"),
        (words.change_span(-0.66, 0.02), "[-66%, +2%]"),
        (words.count(18432), "18,432"),
        (words.count(None), "-"),
        (words.gib(3 * 2**29), "1.5"),
        (words.gib(None), "-"),
        (words.duration(61.4), "61 s"),
        (words.duration(171.0), "171 s"),
        (words.duration(1500.0), "25 min"),
        (words.listing([3]), "trial 3"),
        (words.listing([3, 5]), "trials 3, 5"),
    ],
)
def test_figures(written: str, expected: str) -> None:
    """Figures are short, and what is unknown is a dash."""
    assert written == expected


def test_an_error_is_never_shown_as_none() -> None:
    """One failed request among very many does not round to 0%."""
    assert words.share(1e-6) != words.share(0.0)
