"""One night on a page, and as a JUnit report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.telemetry.nightly_exporter import OUTCOMES, Measured, Night
from tuning.nightly.history import NightRecord
from tuning.nightly.summary import junit, markdown

NIGHT = Night(
    "regression",
    1e9,
    90.0,
    {"gpu": "H200", "driver": ""},
    production=Measured("HiCache ratio 2", 0.5, 0.4, 0.6, {"device": 2 * 2**30}, 0.25),
    baseline=Measured("HiCache off", 1.25),
    change_ratio=0.25,
    cause="driver",
)
RECORD = NightRecord(
    job="chat",
    study="chat-20261101",
    started_at=datetime(2026, 11, 1, 1, 2, 3, tzinfo=UTC),
    night=NIGHT,
    sentence="slower | by <25 %>\nthan before",
    exit_code=3,
    notes=("2 nights were missed",),
    proposal=Path("/results/chat-20261101/proposal.patch"),
)


def test_the_page_says_what_a_person_needs() -> None:
    """The sentence first, then figures, what to apply, notes, conditions and the nights before."""
    assert markdown(RECORD, [RECORD, RECORD.model_copy(update={"night": None})]) == (
        "# chat: regression\n\n"
        "slower \\| by <25 %> than before.\n\n"
        "Night of 2026-11-01 01:02 UTC, study `chat-20261101`, exit code 3.\n\n"
        "| | setting | TTFT P99 | 95 % interval | least memory free | from a cache |\n"
        "|---|---|---|---|---|---|\n"
        "| production | HiCache ratio 2 | 0.500 s | 0.400-0.600 s | device 2.0 GiB | 25% |\n"
        "| baseline | HiCache off | 1.250 s | - | - | - |\n\n"
        "Proposed, for a person to apply: `/results/chat-20261101/proposal.patch`\n\n"
        "- 2 nights were missed\n\n"
        "Conditions: gpu H200\n\n"
        "| night | outcome | production | change | cause |\n"
        "|---|---|---|---|---|\n"
        "| 2026-11-01 | regression | 0.500 s | +25.0% | driver |\n"
        "| 2026-11-01 | unfinished | - | - | - |\n"
    )


@pytest.mark.parametrize(
    ("outcome", "ran", "slower"),
    [
        ("good", None, None),
        ("regression", None, "failure"),
        ("no data", "skipped", "skipped"),
        ("failed", "error", "skipped"),
        ("skipped", "skipped", "skipped"),
    ],
)
def test_each_outcome_is_what_a_job_runner_understands(outcome: str, ran: str | None, slower: str | None) -> None:
    """A regression alone is a failure, an error is what broke, and no data is no pass."""
    assert outcome in OUTCOMES
    record = RECORD.model_copy(update={"night": replace(NIGHT, outcome=outcome)})
    suite = ElementTree.fromstring(junit(record))  # noqa: S314 - our own text
    for case, expected in zip(suite.iter("testcase"), (ran, slower), strict=True):
        found = {child.tag for child in case} - {"system-out"}
        assert found == ({expected} if expected else set())
    counts = [suite.get(name) for name in ("errors", "failures", "skipped")]
    assert counts == [str([ran, slower].count(tag)) for tag in ("error", "failure", "skipped")]


def test_the_report_has_the_sentence_whatever_it_holds() -> None:
    """Markup in it is text."""
    suite = ElementTree.fromstring(junit(RECORD))  # noqa: S314 - our own text
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "slower | by <25 %>\nthan before"
    assert failure.get("type") == "driver"
    assert suite.get("timestamp") == "2026-11-01T01:02:03"
