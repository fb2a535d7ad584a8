"""What a reader must know before believing the figures of a study: one sentence each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.statistics import CONFIDENT_P99_REQUESTS
from harness.store import REQUESTS_FILE, TrialRecord, requests_path
from tuning.config import StudyFile
from tuning.report.words import listing
from tuning.verdict import Verdict

OUTSIDE_SHARE = 0.05
"""Some always are: a session that thinks when the load ends counts as ended with its last reply."""


def remarks(root: Path, study: StudyFile, records: Sequence[TrialRecord], verdict: Verdict) -> Iterator[str]:
    """Yield the remarks on the study in `root`, the weightiest first."""
    yield from _of_the_engine(study)
    yield from _of_few_requests(records, verdict)
    yield from _of_missing_files(root, records)
    yield from _of_trials(records)


def _of_the_engine(study: StudyFile) -> Iterator[str]:
    environment = study.environment
    if environment.device == "cpu":
        yield (
            "Measured on the CPU engine, where copies between the tiers are nearly free and synchronous: capacity, hit "
            "rates, queueing and memory carry over to a GPU; nothing is claimed on transfer cost, write policy, io "
            "backend or memory layout."
        )
    if environment.copy_gb_per_s is not None:
        yield (
            f"Copies between the tiers were slowed down to {environment.copy_gb_per_s:g} GB/s on purpose "
            "(--copy-limit): the figures hold for that limit only."
        )


def _of_few_requests(records: Sequence[TrialRecord], verdict: Verdict) -> Iterator[str]:
    few = [c for c in verdict.candidates if c.requests < CONFIDENT_P99_REQUESTS]
    if few:
        fewest = min(candidate.requests for candidate in few)
        yield (
            f"{len(few)} of {len(verdict.candidates)} confirmed P99s rest on fewer than {CONFIDENT_P99_REQUESTS} "
            f"requests (the fewest: {fewest}), and so on their five slowest at most: read them with their intervals, "
            "or confirm over more rounds or sessions."
        )
    usable = [r for r in records if r.usable and r.summary and r.summary.steady]
    flagged = [r for r in usable if r.summary and r.summary.steady and not r.summary.steady.confident]
    if flagged and not verdict.candidates:
        yield (
            f"{len(flagged)} of {len(usable)} P99s rest on fewer than {CONFIDENT_P99_REQUESTS} requests each: read "
            "them with their intervals."
        )


def _of_missing_files(root: Path, records: Sequence[TrialRecord]) -> Iterator[str]:
    missing = [
        record.number for record in records if record.summary is not None and not requests_path(root, record).exists()
    ]
    if missing:
        yield f"{REQUESTS_FILE} is missing for {listing(missing)}: plots and intervals leave their requests out."


def _of_trials(records: Sequence[TrialRecord]) -> Iterator[str]:
    said: dict[str, list[int]] = defaultdict(list)
    for record in records:
        for sentence in _of_trial(record):
            said[sentence].append(record.number)
    for sentence, numbers in said.items():
        where = listing(numbers)
        yield f"{where[:1].upper()}{where[1:]}: {sentence}."


def _of_trial(record: TrialRecord) -> Iterator[str]:
    if record.effective:
        for flag in record.effective.mismatches:
            yield f"the engine runs {flag.flag} {flag.got} where {flag.asked} was asked for"
    if record.cache:
        yield from record.cache.warnings
    summary = record.summary
    if summary and summary.window and summary.window.counted_outside > OUTSIDE_SHARE * summary.counted:
        yield (
            f"more than {OUTSIDE_SHARE:.0%} of the counted requests were due outside of the steady window: among the "
            "first turns that crowd the engine at the start, or when sessions had begun to run out"
        )
    if record.conditions:
        yield from record.conditions.remarks
    stop = record.hygiene.stop
    if stop is not None and not stop.clean:
        yield f"{stop.left} processes of the engine were left after its stop, or its port was still taken"
    if record.hygiene.memory_back is False:
        yield "device memory did not return to its level before the launch"
