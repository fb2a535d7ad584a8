"""Our own client as it is used: the load process with Locust, started by `run_load`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.load.job import ApiName, LoadJob
from harness.load.runner import run_load
from scenarios.plan import Phase, Plan, Session, Turn, write_plan
from tests.bench.load.rung import LIMIT_S, Load, Seen
from tests.bench.load.words import prompt


def play(url: str, load: Load, folder: Path, cpus: Sequence[int]) -> list[Seen]:
    """Play `load` with one session of one turn for each request."""
    sessions = tuple(
        Session(f"{key:06d}", Phase.COUNTED, (Turn(0.0, load.tokens, text=prompt(key)),))
        for key in range(load.requests)
    )
    write_plan(Plan("bench-load", 1, load.streams, sessions), folder / "plan.jsonl")
    job = LoadJob(
        base_url=url,
        api=ApiName.CHAT,
        model="m",
        plan_path=folder / "plan.jsonl",
        out_dir=folder / "ours",
        limit_s=LIMIT_S,
        stop_when_diverging=False,
    )
    whole = run_load(job, cpus=tuple(cpus)).records.query("status == 'ok'")
    rows = zip(whole.session_id, whole.sent_ns, whole.first_token_ns, whole.chunks, strict=True)
    return [Seen(int(key), int(sent_ns), int(first_ns), int(chunks)) for key, sent_ns, first_ns, chunks in rows]
