"""What a metric of a trial is: its value in a record, and whether more of it is better."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pandas as pd

from harness.statistics import Statistic
from harness.store import TrialRecord
from tuning.objective.units import Unit


class Metric(Protocol):
    """One metric of a trial that a constraint may bound and a search may follow. Equal metrics have equal texts."""

    @property
    def text(self) -> str:
        """As a user writes it."""

    @property
    def title(self) -> str:
        """As people read it."""

    @property
    def unit(self) -> Unit:
        """How its values are written."""

    @property
    def maximised(self) -> bool:
        """Whether more of it is better."""

    def value(self, record: TrialRecord) -> float | None:
        """Return its value in the record: seconds, bytes, a share or counts a second; None when it was not seen."""


@runtime_checkable
class SessionMetric(Metric, Protocol):
    """A metric that the requests of a load tell, so that sessions can be drawn again for an interval."""

    def sample(self, load: pd.DataFrame) -> pd.DataFrame:
        """Return what the requests of one load say: rows with `session_id`, `turn` and values.

        Two loads are compared over the rows whose session and turn both have.
        """

    def statistic(self, sample: pd.DataFrame) -> Statistic:
        """Return the figure of such rows, which must not be none. Their sessions are in the column `session`."""
