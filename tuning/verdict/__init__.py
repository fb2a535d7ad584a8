"""The verdict of a study: what may be believed at its end."""

from tuning.verdict.command import launch_command
from tuning.verdict.confirmed import NEGLIGIBLE, Confirmed
from tuning.verdict.decide import decide
from tuning.verdict.model import Candidate, FrontPoint, Kind, Verdict

__all__ = ["NEGLIGIBLE", "Candidate", "Confirmed", "FrontPoint", "Kind", "Verdict", "decide", "launch_command"]
