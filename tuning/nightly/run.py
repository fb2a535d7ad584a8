"""A nightly job from its lock to its exit code: whatever happens in between, the night is in the history."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape

from harness.errors import ConfigError, EngineError, Interrupted, LoadError, StoreError
from harness.telemetry.nightly_exporter import Measured, Night
from scenarios.errors import HicacheTuneError
from tuning.cli.figures import conditions_of
from tuning.locks import Busy
from tuning.nightly.conditions import Conditions
from tuning.nightly.config import NightlyConfig
from tuning.nightly.history import History, NightRecord
from tuning.nightly.judge import FAILED, GOOD, NO_DATA, REGRESSION, Run
from tuning.nightly.night import Found, Tonight, same_study
from tuning.nightly.production import production_setting
from tuning.nightly.publish import attempt, propose, publish

OK, FAULT, NONE_FEASIBLE, SLOWER, BUDGET_ENDED, INTERRUPTED = 0, 1, 2, 3, 124, 130
EXIT_CODES: Mapping[str, int] = {GOOD: OK, REGRESSION: SLOWER, NO_DATA: BUDGET_ENDED, FAILED: NONE_FEASIBLE}
"""Of nights that were measured, by how they ended; a night that something stopped ends with FAULT."""
SKIPPED = "skipped"
LEAST_FREE_BYTES = 2**30
"""Disk that a night must find: one that fills it in the middle has measured for nothing."""
MISSED_AFTER = 1.5
"""Periods from one night to the next after which one was missed; a start may be late."""


def utc_now() -> datetime:
    """Read the clock."""
    return datetime.now(UTC)


def run_night(config: NightlyConfig, console: Console, *, json: bool) -> int:
    """Run tonight's job, or go on with it, and return its exit code."""
    url = config.webhook_url()
    _check_file(config)
    with _one_at_a_time(config), History(config.history_path) as history:
        try:
            ended = _measure(console, config, history)
        except (Interrupted, KeyboardInterrupt):
            ended = None
        if ended is None:
            console.print("\nStopped. Nothing is lost; give the same command again today to go on with this night")
            return INTERRUPTED
        publish(console, config, ended, history, url)
    if json:
        sys.stdout.write(ended.model_dump_json(indent=1) + "\n")
    return FAULT if ended.exit_code is None else ended.exit_code


def _check_file(config: NightlyConfig) -> None:
    """Refuse a file that no night can work with, before one begins; what depends on the engine is the night's own."""
    if not config.only_measures:
        production_setting(config.production or (), config.search.engine_arg)
    if config.search.engine != "attach":
        options = config.options(config.job, resume=False)
        options.effort()
        with suppress(EngineError):
            options.search()


def accept(config: NightlyConfig, console: Console) -> int:
    """Take the latest night as good, whatever it ended as, so that later ones are compared with it."""
    with _one_at_a_time(config), History(config.history_path) as history:
        latest = next((night for night in history.nights(config.job) if night.night is not None), None)
        if latest is None:
            raise ConfigError(f"--accept: the job {config.job} has no night yet; run it first")
        if history.answers(latest.study, "production") is None:
            raise ConfigError(f"--accept: {latest.study} has measured nothing to compare with: {latest.sentence}")
        history.write(latest.model_copy(update={"accepted": True}))
        console.print(f"Later nights are compared with {escape(latest.study)}")
        return OK


def _measure(console: Console, config: NightlyConfig, history: History) -> NightRecord | None:
    """Measure tonight and write how it ended; None when the user asked to stop."""
    record, cut = _tonight(config, history)
    for note in record.notes:
        console.print(f"[yellow]note:[/] {note}")
    tonight = Tonight(config, console, (config.results / record.study).absolute())
    try:
        _check_disk(config)
        if cut is not None:
            _close(history, cut)
        history.write(record)
        conditions = tonight.plan()
        if not same_study(tonight.root, conditions):
            record = _anew(history, record)
            tonight.root = (config.results / record.study).absolute()
        record = record.model_copy(update={"conditions": conditions})
        found = tonight.measure(history)
    except Interrupted:
        raise
    except HicacheTuneError as problem:
        outcome = {Busy: SKIPPED, LoadError: NO_DATA}.get(type(problem), FAILED)
        return _stopped(console, history, record, outcome, str(problem))
    except OSError as problem:
        said = f"{problem.filename or tonight.root}: {problem.strerror}; free space or correct what it names"
        return _stopped(console, history, record, FAILED, said)
    if found is None:
        return None
    ended = _ended(record, conditions, found)
    if found.proposed is not None:
        ended = _with_proposal(console, config, tonight, ended, found.proposed)
    return ended if attempt(console, lambda: history.write(ended, found.answers)) else _unwritten(ended)


def _tonight(config: NightlyConfig, history: History) -> tuple[NightRecord, NightRecord | None]:
    """Return the night of today that was cut, or a new one; and an older one that was cut, which is to be closed."""
    now = utc_now()
    latest = next(iter(history.nights(config.job)), None)
    cut = latest if latest is not None and latest.night is None else None
    if cut is not None and cut.started_at.date() == now.date():
        return cut, None
    notes: tuple[str, ...] = ()
    if latest is not None and (missed := _missed(latest.started_at, now, config.every_s)):
        some = "1 night was" if missed == 1 else f"{missed} nights were"
        notes = (f"{some} missed since {latest.started_at:%Y-%m-%d %H:%M} UTC",)
    return NightRecord(job=config.job, study=_free_name(config, history, now), started_at=now, notes=notes), cut


def _unwritten(ended: NightRecord) -> NightRecord:
    """Never pass for a success: the next night would not know of this one."""
    return ended.model_copy(update={"exit_code": ended.exit_code or FAULT})


def _anew(history: History, record: NightRecord) -> NightRecord:
    """Close a night that was cut under other conditions, and begin another: the two are not pooled (design rule 11)."""
    _close(history, record)
    following = record.model_copy(update={"study": f"{record.study}-anew", "started_at": utc_now()})
    history.write(following)
    return following


def _close(history: History, record: NightRecord) -> None:
    """End a night that was cut and can't be gone on with."""
    night = Night(NO_DATA, record.started_at.timestamp(), 0.0, {})
    said = "the night was cut, and not gone on with under the same conditions on its day"
    history.write(record.model_copy(update={"night": night, "sentence": said, "exit_code": INTERRUPTED}))


def _stopped(console: Console, history: History, record: NightRecord, outcome: str, why: str) -> NightRecord:
    """Write a night that something has stopped."""
    night = Night(outcome, *_times(record), _labels(record.conditions))
    said = " ".join(why.split())
    console.print(f"\n[bold red]{outcome}:[/] {escape(why)}", soft_wrap=True, highlight=False)
    ended = record.model_copy(update={"night": night, "sentence": said, "exit_code": FAULT})
    attempt(console, lambda: history.write(ended))
    return ended


def _ended(record: NightRecord, conditions: Conditions, found: Found) -> NightRecord:
    judgement, runs = found.judgement, (found.production, found.baseline, found.winner)
    night = Night(
        judgement.outcome,
        *_times(record),
        _labels(conditions),
        production=_figures(found.production),
        baseline=_figures(found.baseline),
        winner=_figures(found.winner),
        change_ratio=judgement.change.ratio if judgement.change else None,
        cause=judgement.cause,
    )
    said = [remark for run in runs if run is not None for remark in run.remarks]
    if found.baseline_change is not None:
        said.insert(0, f"HiCache off at SGLang's defaults: TTFT P99 {found.baseline_change} since the last good night")
    changes = {
        "night": night,
        "sentence": judgement.sentence,
        "exit_code": EXIT_CODES[judgement.outcome],
        "notes": tuple(dict.fromkeys((*record.notes, *said))),
        "report": found.report,
    }
    return record.model_copy(update=changes)


def _with_proposal(
    console: Console, config: NightlyConfig, tonight: Tonight, ended: NightRecord, proposed: tuple[str, ...]
) -> NightRecord:
    try:
        path = propose(config, tonight.conditions, tonight.root, proposed)
    except HicacheTuneError as problem:
        console.print(f"[yellow]{escape(str(problem))}[/]", soft_wrap=True)
        return ended
    console.print(f"Proposed, for you to apply: {escape(str(path))}", soft_wrap=True)
    return ended.model_copy(update={"proposal": path})


def _figures(run: Run | None) -> Measured | None:
    return run.figures if run is not None else None


def _labels(conditions: Conditions | None) -> dict[str, str]:
    return conditions_of(conditions.search, conditions.environment) if conditions else {}


def _times(record: NightRecord) -> tuple[float, float]:
    """Return when the night has ended, since the epoch, and how long it took, in seconds."""
    now_s = utc_now().timestamp()
    return now_s, now_s - record.started_at.timestamp()


def _missed(latest: datetime, now: datetime, every_s: float) -> int:
    """Count the nights that should have begun since the latest one."""
    periods = (now - latest).total_seconds() / every_s
    return round(periods) - 1 if periods > MISSED_AFTER else 0


def _free_name(config: NightlyConfig, history: History, now: datetime) -> str:
    """Name tonight's study by its date; a second one of a day gets a number."""
    taken = {night.study for night in history.nights(config.job)}
    name, number = f"{config.job}-{now:%Y%m%d}", 1
    while (candidate := name if number == 1 else f"{name}-{number}") in taken or (config.results / candidate).exists():
        number += 1
    return candidate


def _check_disk(config: NightlyConfig) -> None:
    config.results.mkdir(parents=True, exist_ok=True)
    if (free_bytes := shutil.disk_usage(config.results).free) < LEAST_FREE_BYTES:
        raise StoreError(
            f"{config.results}: {free_bytes / 2**20:.0f} MiB are free, a night needs {LEAST_FREE_BYTES / 2**20:.0f}; "
            "free space, or keep fewer nights with [retention]"
        )


@contextmanager
def _one_at_a_time(config: NightlyConfig) -> Iterator[None]:
    lock = FileLock(config.folder / ".lock", blocking=False)
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise ConfigError(f"another night of the job {config.job} runs; wait for it, or end it") from None
    except OSError as problem:
        where = lock.lock_file
        raise StoreError(f"{where}: cannot be made ({problem.strerror}); free space or choose other results") from None
    try:
        yield
    finally:
        lock.release()
