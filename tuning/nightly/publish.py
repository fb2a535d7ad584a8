"""Tells of a night that has ended: pages, metrics, a proposal, the webhook; and removes old studies.

None of it may cost what was measured: what goes wrong here is said, and the rest is done all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.errors import StoreError
from harness.files import write_atomically
from harness.telemetry.nightly_exporter import NightlyExporter
from scenarios.errors import HicacheTuneError
from tuning.nightly.conditions import Conditions
from tuning.nightly.config import NightlyConfig
from tuning.nightly.history import History, NightRecord
from tuning.nightly.launch_words import LaunchWords
from tuning.nightly.production import tuned_words
from tuning.nightly.proposal import write_proposal
from tuning.nightly.retention import keep
from tuning.nightly.summary import junit, markdown
from tuning.nightly.webhook import send
from tuning.nightly.words import NightSummary

PAGE_FILE = "night.md"
JUNIT_FILE = "junit.xml"


def propose(config: NightlyConfig, conditions: Conditions, root: Path, proposed: tuple[str, ...]) -> Path:
    """Write the proposal; raise HicacheTuneError when it does not fit what runs in production."""
    words = config.production or ()
    return write_proposal(
        root,
        current=tuned_words(words, conditions.search.engine_args),
        proposed=proposed,
        form=config.proposal.form,
        target=config.proposal.target,
        command=words if LaunchWords.of(words).program else (),
    )


def publish(console: Console, config: NightlyConfig, record: NightRecord, history: History, url: str | None) -> None:
    """Write the pages and the metrics of the night, apply the retention, and tell the webhook."""
    night = record.night
    if night is None:
        return
    root = config.results / record.study

    def pages() -> None:
        write_atomically(root / PAGE_FILE, markdown(record, history.nights(config.job)))
        write_atomically(root / JUNIT_FILE, junit(record))
        console.print(f"Summary: {escape(str(root / PAGE_FILE))} and {JUNIT_FILE}", soft_wrap=True)

    def metrics() -> None:
        _make_folder(config.textfile_path)
        NightlyExporter(config.job, night).write_textfile(config.textfile_path)

    def retention() -> None:
        if config.retention is not None:
            good = history.last_good(config.job)
            protected = [record.study, *([good.study] if good else [])]
            nights, days = config.retention.nights, config.retention.days
            for removed in keep(config.results, job=config.job, nights=nights, days=days, protected=protected):
                console.print(f"removed {escape(str(removed))}: older than the nights that are kept", soft_wrap=True)

    def webhook() -> None:
        if config.webhook is not None and url is not None:
            send(url, _summary(record), kind=config.webhook.kind)

    for task in (pages, metrics, retention, webhook):
        attempt(console, task)


def attempt(console: Console, task: Callable[[], None]) -> bool:
    """Do `task`; say why when it fails, and return whether it did not."""
    try:
        task()
    except HicacheTuneError as problem:
        console.print(f"[yellow]{escape(str(problem))}[/]", soft_wrap=True)
        return False
    return True


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StoreError(f"{path}: its folder cannot be made ({problem.strerror}); name another file") from None


def _summary(record: NightRecord) -> NightSummary:
    if record.night is None or record.exit_code is None:
        raise ValueError(f"the night {record.study} has not ended")
    return NightSummary(
        job=record.job,
        study=record.study,
        night=record.night,
        sentence=record.sentence,
        exit_code=record.exit_code,
        proposal=record.proposal,
        report=record.report,
        started_at=record.started_at,
    )
