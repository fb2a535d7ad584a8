"""The verdict of a study: what may be believed at its end."""

from tuning.verdict.command import launch_command
from tuning.verdict.confirmed import NEGLIGIBLE, Confirmed, best_of, confirmations
from tuning.verdict.decide import candidate_of, decide
from tuning.verdict.model import Candidate, FrontPoint, Kind, Verdict

__all__ = [
    "NEGLIGIBLE",
    "Candidate",
    "Confirmed",
    "FrontPoint",
    "Kind",
    "Verdict",
    "best_of",
    "candidate_of",
    "confirmations",
    "decide",
    "launch_command",
]
