"""What a reader must know before believing the figures."""

from __future__ import annotations

from pathlib import Path

from harness.engine.process import StopProof
from harness.store import REQUESTS_FILE, Hygiene, folder_of
from tests.support.study_data import OFF, RATIO_3, RATIO_4, Made, StudyMaker, cache_delta
from tuning.report.remarks import remarks


def of(made: Made) -> list[str]:
    """List the remarks on `made`."""
    return list(remarks(made.root, made.study, made.records, made.verdict))


def test_the_cpu_engine_claims_nothing_on_transfers(tmp_path: Path) -> None:
    """On the CPU engine a reader is told first what its figures do not show; on a GPU there is nothing to say."""
    maker = StudyMaker(tmp_path)
    maker.measured(RATIO_3, ttft_s=0.4)
    assert of(maker.made())[0].endswith(
        "nothing is claimed on transfer cost, write policy, io backend or memory layout."
    )
    assert not any("CPU engine" in remark for remark in of(maker.made(device="cuda")))


def test_a_copy_limit_is_told(confirmed: Made) -> None:
    """An artificial limit changes what was measured."""
    assert any("slowed down to 0.5 GB/s on purpose" in remark for remark in of(confirmed))


def test_few_requests_are_told(confirmed: Made, unconfirmed: Made) -> None:
    """P99s of few requests are counted, of the confirmation where there is one."""
    assert any(remark.startswith("4 of 4 confirmed P99s rest on fewer than 500 requests") for remark in of(confirmed))
    assert any(remark.startswith("2 of 2 P99s rest on fewer than 500 requests each") for remark in of(unconfirmed))


def test_enough_requests_need_no_remark(tmp_path: Path) -> None:
    """Three rounds of 240 requests pass for confident."""
    maker = StudyMaker(tmp_path)
    maker.confirm([(OFF, 1.3), (RATIO_3, 0.4)], rounds=3)
    made = maker.made(device="cuda")
    assert made.verdict.candidates[0].requests == 720
    assert of(made) == []


def test_a_flag_that_the_engine_rewrote_is_told(confirmed: Made) -> None:
    """A label that is not what ran would mislead."""
    assert "Trial 2: the engine runs --page-size 64 where 32 was asked for." in of(confirmed)


def test_lost_requests_are_told(tmp_path: Path) -> None:
    """A removed Parquet file silently shortens plots and intervals, so it is named; a trial that has none is not."""
    maker = StudyMaker(tmp_path)
    maker.measured(OFF, ttft_s=1.0)
    lost = maker.measured(RATIO_3, ttft_s=0.4)
    (folder_of(tmp_path, lost.number, lost.purpose) / REQUESTS_FILE).unlink()
    assert any("requests.parquet is missing for trial 1:" in remark for remark in of(maker.made()))


def test_the_same_oddity_is_told_once(tmp_path: Path) -> None:
    """What several trials share is one sentence with their numbers."""
    maker = StudyMaker(tmp_path)
    odd = cache_delta(host_tokens=0, backup_tokens=500)
    maker.measured(RATIO_3, ttft_s=0.4, cache=odd)
    maker.measured(RATIO_4, ttft_s=0.4, cache=odd)
    assert "Trials 0, 1: host tier was written (500 tokens) but never read." in of(maker.made())


def test_what_was_left_behind_is_told(tmp_path: Path) -> None:
    """Processes or memory that stayed can have touched the next trial."""
    maker = StudyMaker(tmp_path)
    hygiene = Hygiene(stop=StopProof(None, 1, 2, True), memory_back=False)
    maker.measured(RATIO_3, ttft_s=0.4, hygiene=hygiene)
    said = of(maker.made())
    assert any("2 processes of the engine were left" in remark for remark in said)
    assert any("device memory did not return" in remark for remark in said)
