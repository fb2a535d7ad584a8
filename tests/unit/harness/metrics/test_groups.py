"""Into which group a request falls."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.groups import PROMPT_BANDS, Groups, by_prompt, by_tier, by_turn
from tests.support.requests import frame_of, request


def labels(groups: Groups) -> list[str]:
    """Return the label of each request."""
    return [groups.labels[code] for code in groups.codes]


def test_turns_from_the_eleventh_on_are_one_group(tmp_path: Path) -> None:
    """Long sessions do not make a table of a hundred lines."""
    frame = frame_of([request(turn=turn) for turn in (0, 1, 9, 10, 11, 500)], tmp_path)
    assert labels(by_turn(frame)) == ["0", "1", "9", "10+", "10+", "10+"]


@pytest.mark.parametrize(
    ("cached", "device", "host", "storage", "tier"),
    [
        (50, 20, 20, 10, "storage"),
        (50, 20, 30, 0, "host"),
        (50, 50, None, None, "device"),
        (0, 0, 0, 0, "none"),
        (0, None, None, None, "none"),
        (7, None, None, None, "unknown"),
        (None, None, None, None, "unknown"),
        (None, 7, None, None, "device"),
    ],
)
def test_a_prompt_belongs_to_the_slowest_tier_that_served_it(
    cached: int | None, device: int | None, host: int | None, storage: int | None, tier: str, tmp_path: Path
) -> None:
    """Storage over host over device; unknown is not none."""
    record = request(
        cached_tokens=cached, device_cached_tokens=device, host_cached_tokens=host, storage_cached_tokens=storage
    )
    assert labels(by_tier(frame_of([record], tmp_path))) == [tier]


@pytest.mark.parametrize(
    ("tokens", "band"),
    [(0, "1-2"), (1, "1-2"), (2, "2-4"), (1023, "512-1k"), (1024, "1k-2k"), (2047, "1k-2k"), (2048, "2k-4k"),
     (131_072, "128k-256k"), (2**30, PROMPT_BANDS[-1]), (None, "unknown")],
)  # fmt: skip
def test_bands_of_prompt_tokens_begin_at_powers_of_two(tokens: int | None, band: str, tmp_path: Path) -> None:
    """The lower end belongs to a band, the upper one to the next."""
    assert labels(by_prompt(frame_of([request(prompt_tokens=tokens)], tmp_path))) == [band]


@given(st.lists(st.integers(1, 2**24 - 1), min_size=1))
def test_every_length_lies_in_its_band(tokens: list[int]) -> None:
    """Read back, a band's bounds hold the lengths that fell into it."""
    frame = pd.DataFrame({"prompt_tokens": pd.array(tokens, dtype="Int64")})
    for length, label in zip(tokens, labels(by_prompt(frame)), strict=True):
        low, high = (int(end.replace("k", "")) * (1024 if "k" in end else 1) for end in label.split("-"))
        assert low <= length < high
