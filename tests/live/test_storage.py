"""The storage tier between trials, on the real engine: emptied unless it is to be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.setting import Setting
from harness.load.record import read_records
from harness.store import REQUESTS_FILE, Outcome, TrialRecord, folder_of
from harness.trial import run_trial
from tests.support.cpu_lab import StepWatch, cpu_lab
from tests.support.loads import chat_session, plan_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

FILE_TIER = (
    *("--hicache-storage-backend=file", "--hicache-storage-prefetch-policy=wait_complete"),
    *("--hicache-io-backend=direct", "--hicache-mem-layout=page_first_direct"),
)
PLAN = plan_of(chat_session("one long prompt " * 200, 2))
SETTING = Setting(hicache=True, page_size=16)


def measure(root: Path, number: int, *, keep_storage: bool) -> tuple[TrialRecord, int]:
    """Run one trial; return it and the tokens that its first request found in the storage tier."""
    lab = cpu_lab(root, StepWatch(), flags=FILE_TIER, keep_storage=keep_storage)
    record = run_trial(lab, number=number, purpose="search", setting=SETTING, plan=PLAN)
    assert record.outcome is Outcome.MEASURED, record.reason
    first = read_records(folder_of(root, number, "search") / REQUESTS_FILE).sort_values("sent_ns").iloc[0]
    return record, int(first["storage_cached_tokens"])


def test_a_trial_finds_only_what_it_may(tmp_path: Path) -> None:
    """What is kept is found by the same prompt of the next trial, which shows that it would be; else nothing is."""
    record, found = measure(tmp_path, 0, keep_storage=True)
    assert (record.hygiene.storage_emptied, found) == (False, 0)
    assert any((tmp_path / "storage").iterdir())
    record, found = measure(tmp_path, 1, keep_storage=True)
    assert record.hygiene.storage_emptied is False
    assert found > 0
    record, found = measure(tmp_path, 2, keep_storage=False)
    assert (record.hygiene.storage_emptied, record.hygiene.first_request_cached_tokens, found) == (True, 0, 0)
    assert not (tmp_path / "storage").exists()
