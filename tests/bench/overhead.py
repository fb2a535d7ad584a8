"""How long a trial takes beyond launch and load, on the CPU engine: `python -m tests.bench.overhead [TRIALS]`.

A search pays it for every setting. What is counted: preflight, flush, drain, stop, hygiene and verdict. Shown beside
it, as they belong to launch and load: the warm-up prompts, and the start of the load process with its records.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from harness.engine.client import EngineClient
from harness.engine.setting import Setting
from harness.load.job import OUTCOME_FILE, LoadOutcome
from harness.store import folder_of
from harness.trial import run_trial
from tests.support.cpu_lab import StepWatch, cpu_lab
from tests.support.loads import chat_session, plan_of

TARGET_S = 3.0
SETTING = Setting(hicache=True, page_size=16)
PLAN = plan_of(*(chat_session(f"session {n} " + "and so on " * 100, 3) for n in range(4)))
COUNTED = ("preflight", "flush", "drain", "stop", "hygiene", "verdict")


class WarmUp:
    """The warm-up of a trial, timed: what else its step takes is the flush and a scrape."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._real = EngineClient.warm_up

    def __call__(self, client: EngineClient, *, requests: int, prompt_tokens: int) -> None:
        """Warm up as ever."""
        began = time.monotonic()
        self._real(client, requests=requests, prompt_tokens=prompt_tokens)
        self.seconds = time.monotonic() - began


def measure(root: Path, number: int) -> dict[str, float]:
    """Run one trial and return the seconds of its parts."""
    watch, warm_up = StepWatch(), WarmUp()
    lab = cpu_lab(root, watch)
    began = time.monotonic()
    with patch.object(EngineClient, "warm_up", lambda client, **how: warm_up(client, **how)):
        record = run_trial(lab, number=number, purpose="search", setting=SETTING, plan=PLAN)
    wall_s = time.monotonic() - began
    parts = {step.name: step.seconds for step in record.steps}
    outcome = LoadOutcome.read(folder_of(root, number, "search") / OUTCOME_FILE)
    played_s = (outcome.ended_ns - outcome.started_ns) / 1e9
    parts["verdict"] = wall_s - sum(parts.values())
    parts["flush"] = parts.pop("warm-up") - warm_up.seconds
    parts["load process"] = parts.pop("load") - played_s
    return parts | {"warm-up prompts": warm_up.seconds, "play": played_s}


def main() -> int:
    """Measure and print; 1 when a trial takes longer than it may."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    overheads = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(trials):
            parts = measure(Path(folder), number)
            overheads.append(sum(parts[name] for name in COUNTED))
            shown = "  ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
            sys.stdout.write(f"trial {number}: overhead {overheads[-1]:.2f} s of\n    {shown}\n")
    sys.stdout.write(f"worst {max(overheads):.2f} s, target {TARGET_S:g} s\n")
    return int(max(overheads) > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
