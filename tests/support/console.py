"""What a command of the command line answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """What a command ended with and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]
"""Runs a command of these arguments, as the entry point does."""
