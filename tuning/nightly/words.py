"""What a night has to say, for whoever passes it on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.telemetry.nightly_exporter import Night


@dataclass(frozen=True)
class NightSummary:
    """One night of one job."""

    job: str
    study: str
    """The name of its study under the results folder."""
    night: Night
    sentence: str
    """The outcome in one sentence, for people."""
    exit_code: int
    proposal: Path | None
    """The file with the new flags for a person to apply; None when the night proposes nothing."""
    report: Path | None
    """The page of the night's study; None when nothing was measured."""
    started_at: datetime
    """With its time zone."""
