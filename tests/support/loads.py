"""Builds small plans and plays them against the fixture server in the real load process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.load.job import ApiName, LoadJob, LoadProgress, Timeouts
from harness.load.runner import LoadResult, run_load
from scenarios.plan import Phase, Plan, Session, Turn, write_plan
from tests.support.fixture_server import FixtureServer


def chat_turn(text: str, *, think_s: float = 0.0, reply: str | None = None) -> Turn:
    """Make a turn of text."""
    return Turn(think_s=think_s, max_output_tokens=3, text=text, reply_text=reply)


def chat_session(
    name: str, turns: int = 1, *, phase: Phase = Phase.COUNTED, start_s: float = 0.0, think_s: float = 0.0
) -> Session:
    """Make a session whose first words are its name."""
    first = (chat_turn(name),)
    later = tuple(chat_turn(f"{name} again {n}", think_s=think_s) for n in range(1, turns))
    return Session(name, phase, first + later, start_s)


def plan_of(*sessions: Session, slots: int | None = None) -> Plan:
    """Make a plan; by default there is a slot for each session."""
    return Plan("test", 1, slots or len(sessions), sessions)


def open_plan_of(*sessions: Session) -> Plan:
    """Make a plan whose sessions begin when they are due, however many are running."""
    return Plan("test", 1, None, sessions)


def job_for(server: FixtureServer, plan: Plan, folder: Path, **changes: object) -> LoadJob:
    """Write `plan` and make a job for it."""
    write_plan(plan, folder / "plan.jsonl")
    job = LoadJob(
        base_url=server.base_url,
        api=ApiName.CHAT,
        model="m",
        plan_path=folder / "plan.jsonl",
        out_dir=folder / "out",
        limit_s=20,
        timeouts=Timeouts(connect_s=2, first_token_s=5, idle_s=5),
    )
    return LoadJob.model_validate({**job.model_dump(), **changes})


def play(
    server: FixtureServer,
    plan: Plan,
    folder: Path,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
    **changes: object,
) -> LoadResult:
    """Play `plan` against `server` in a load process."""
    return run_load(job_for(server, plan, folder, **changes), should_stop=should_stop, on_progress=on_progress)


def bare_job(**changes: object) -> LoadJob:
    """Make a job for whoever only reads it: nothing of it exists."""
    job = LoadJob(
        base_url="http://127.0.0.1:1",
        api=ApiName.CHAT,
        model="m",
        plan_path=Path("plan.jsonl"),
        out_dir=Path("out"),
        limit_s=20,
    )
    return LoadJob.model_validate({**job.model_dump(), **changes})
