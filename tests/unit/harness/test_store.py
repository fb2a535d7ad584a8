"""Trials on disk: what is written is what is read, and what cannot be read is named."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from harness import store
from harness.engine.failure import Failure, FailureKind
from harness.engine.memory import DeviceForecast, MemoryForecast, SeenMemory
from harness.engine.process import StopProof
from harness.engine.setting import Setting
from harness.errors import StoreError
from harness.load.job import ClientHealth, Lost
from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.load_conditions import DeviceConditions, HostConditions, LoadConditions, ScrapeConditions
from harness.reload_cost import AddedTtft, Estimate, ReloadCost
from harness.store import (
    TRIAL_FILE,
    Effective,
    Hygiene,
    Mismatch,
    Outcome,
    Step,
    TrialRecord,
    folder_of,
    next_number,
    read_trial,
    read_trials,
    write_trial,
)
from harness.summary import Summary, summarise
from harness.telemetry import CacheDelta, Headroom
from scenarios.plan import Phase
from tests.support.recordings import recorded

S = 1_000_000_000
BARE = TrialRecord(
    number=0,
    purpose="search",
    setting=Setting(),
    seed=1,
    outcome=Outcome.INTERRUPTED,
    reason="stopped by the user",
    started_at_utc="2026-11-30T08:00:00+00:00",
)


def a_summary(folder: Path) -> Summary:
    """Summarise a load with every status, several turns and tiers, and a gap in its figures."""
    requests = [
        RequestRecord(
            f"s{n % 3}", n % 4, Phase.COUNTED, Status.OK, n * S, n * S, (n + 2) * S, n * S + 7, n * S + 99, 4, 100, 8,
            32 * (n % 3), 32 * (n % 2), 32 * (n % 3 > 1), 0, 200,
        )
        for n in range(20)
    ]  # fmt: skip
    requests.append(RequestRecord("s0", 5, Phase.COUNTED, Status.FAILED, 1, 2, 3, http_status=500, error="no"))
    write_records(requests, folder / "requests.parquet")
    return summarise(read_records(folder / "requests.parquet"), not_played=2)


A_COST = Estimate(value=2e-6, low=1e-6, high=3e-6)
RELOAD = ReloadCost(
    reloads=3,
    tokens=4000,
    bytes=10**9,
    kv_bytes_per_token=57_344,
    transfer_s=0.5,
    bytes_per_s=2e9,
    mean_bytes_per_s=1e7,
    felt_bytes_per_s=A_COST,
    pcie_ceiling_bytes_per_s=63e9,
    write_amplification=1.5,
    eviction_s=0.25,
    eviction_share=0.01,
    compute_s_per_token=A_COST,
    reload_s_per_token=A_COST,
    reload_fixed_s=A_COST,
    break_even_tokens=900.5,
    break_even_low_tokens=0.0,
    added_ttft=(AddedTtft(from_tokens=512, to_tokens=None, count=40, p50_s=0.01, p99_s=-0.5),),
)


def full_record(folder: Path) -> TrialRecord:
    """Make a record in which every field says something."""
    before, after = (recorded(f"h200-0.5.15/metrics_{when}_wt60.txt.gz") for when in ("before", "after"))
    failure = Failure(FailureKind.GPU_OOM_UNDER_LOAD, "CUDA out of memory — “512 MiB”", -9, ("one", "two"))
    return TrialRecord(
        number=12,
        purpose="limit",
        rate_per_s=1.25,
        setting=Setting(
            hicache=True,
            hicache_ratio=2.5,
            hicache_write_policy="write_back",
            hicache_io_backend="direct",
            hicache_mem_layout="page_first_direct",
            mem_fraction_static=0.88,
            page_size=64,
            extra={"a": True, "b": 2, "c": 2.5, "d": "x", "e": False},
        ),
        seed=1001,
        outcome=Outcome.FAILED,
        reason=failure.sentence,
        failure=failure,
        argv=("python", "-m", "sglang.launch_server"),
        command=("docker", "run", "image"),
        env={"OMP_NUM_THREADS": "1"},
        started_at_utc="2026-11-30T08:00:00+00:00",
        steps=(Step(name="launch", seconds=14.5), Step(name="load", seconds=61.025)),
        effective=Effective(
            device_pool_tokens=340_362,
            host_pool_tokens=1_046_317,
            launch_phases_s={"imports": 15.25, "kv pool": 0.5},
            mismatches=(Mismatch(flag="--page-size", asked="64", got="1"),),
        ),
        forecast=MemoryForecast(
            device=DeviceForecast(
                weights_bytes=1,
                kv_pool_bytes=2,
                graphs_bytes=3,
                activations_bytes=4,
                kv_bytes_per_token=5,
                mem_fraction_static=0.88,
                ranks=2,
            ),
            device_peak_bytes=6,
            device_peak_error_bytes=7,
            device_pool_bytes=8,
            host_pool_bytes=9,
        ),
        seen=SeenMemory(device_peak_bytes=1, device_pool_bytes=2, host_pool_bytes=3),
        summary=a_summary(folder),
        cache=CacheDelta.between(before, after),
        headroom=Headroom(5, 6, 7, "lost", "no /proc"),
        reload=RELOAD,
        conditions=LoadConditions(
            device=DeviceConditions(slowed_share=0.25, slowed_by=("power brake",), xid=0),
            host=HostConditions(foreign_share=0.125, engine_numa_bytes={0: 5, 1: 6}),
            scrapes=ScrapeConditions(count=9, failed=1, mean_s=0.03),
        ),
        client=ClientHealth(cpu_fraction=0.25, lag_p99_ms=1.5, lag_max_ms=9.0, gc_pause_ms=0.5),
        lost=Lost(rival=2, sessions=24, change=0.6, change_low=0.2, p99_s=0.8),
        hygiene=Hygiene(
            flush_tries=3,
            first_request_cached_tokens=0,
            stop=StopProof(exit_code=-9, killed=2, left=0, port_free=True),
            memory_back=True,
        ),
    )


def write(root: Path, number: int, **changes: Any) -> Path:
    """Write a bare trial; return its folder."""
    folder = folder_of(root, number, "search")
    folder.mkdir(parents=True)
    write_trial(BARE.model_copy(update={"number": number, **changes}), folder)
    return folder


def change(folder: Path, **fields: Any) -> None:
    """Change fields of a written trial; None removes one."""
    path = folder / TRIAL_FILE
    data = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**data, **fields}.items() if v is not None or k not in fields}))


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every field, down to the kinds of numbers, survives the file; a bare record does too."""
    full = full_record(tmp_path)
    empty = {name for name in TrialRecord.model_fields if getattr(full, name) in (None, (), {}, "")}
    assert empty == set(), "a field that is empty here proves nothing"
    for record in (full, BARE):
        write_trial(record, tmp_path)
        again = read_trial(tmp_path)
        assert again == record
        assert again.model_dump_json() == record.model_dump_json()
        assert repr(again) == repr(record)


def test_what_a_record_says_of_itself(tmp_path: Path) -> None:
    """Duration is the sum of the steps; only a measured trial with a steady window has a P99 to compare."""
    full = full_record(tmp_path)
    assert full.duration_s == 75.525
    assert not full.usable
    assert not full.is_the_users_fault
    measured = full.model_copy(update={"outcome": Outcome.MEASURED, "failure": None})
    assert measured.usable
    assert measured.summary is not None
    assert measured.summary.steady is not None
    assert measured.p99_s == measured.summary.steady.p99_s
    assert BARE.model_copy(update={"failure": Failure(FailureKind.BAD_FLAG, "", 2)}).is_the_users_fault
    assert not BARE.model_copy(update={"outcome": Outcome.MEASURED}).usable
    with pytest.raises(ValueError, match="trial 0 has no steady P99"):
        _ = BARE.p99_s


def test_a_write_that_fails_leaves_the_trial_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement is never half written: its old content stays, and the message names the file."""
    write_trial(BARE, tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"trial\.json: cannot be written \(No space left on device\)"):
        write_trial(BARE.model_copy(update={"seed": 2}), tmp_path)
    assert read_trial(tmp_path) == BARE


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Half understood is worse than not read."""
    folder = write(tmp_path, 0)
    change(folder, schema_version=store.SCHEMA_VERSION + 1)
    with pytest.raises(StoreError, match=r"trial\.json: written by a newer hicache-tune \(format 3\); upgrade"):
        read_trial(folder)


def test_an_older_format_is_upgraded_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each upgrade makes the next version, up to the present one."""
    folder = write(tmp_path, 0)
    change(folder, schema_version=1, seed=None, luck=5)

    def name_it_seed(data: dict[str, Any]) -> dict[str, Any]:
        return {**{k: v for k, v in data.items() if k != "luck"}, "seed": data["luck"]}

    monkeypatch.setattr(store, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(store, "UPGRADES", {1: name_it_seed, 2: lambda data: {**data, "seed": data["seed"] + 1}})
    record = read_trial(folder)
    assert (record.schema_version, record.seed) == (3, 6)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", "{}", '{"schema_version": "x"}', '{"schema_version": 0}', "\xff"]
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    """What is no trial is refused with its path and what to do."""
    (tmp_path / TRIAL_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=r"trial\.json: not a readable trial .*; remove its folder to leave it out"):
        read_trial(tmp_path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"outcome": "fine"}, "`outcome`"),
        ({"setting": {"hicache_sizes": 3}}, "unknown key `setting.hicache_sizes`"),
        ({"number": None}, "`number`"),
    ],
)
def test_a_trial_with_a_wrong_field_is_named(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    """A field that is wrong, unknown or missing is refused with its name, as an error of the store."""
    folder = write(tmp_path, 0)
    change(folder, **fields)
    with pytest.raises(StoreError, match=rf"trial\.json: .*{said}.*; remove its folder to leave it out"):
        read_trial(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder without a trial is no traceback."""
    with pytest.raises(StoreError, match=r"trial\.json: not a readable trial .*FileNotFound"):
        read_trial(tmp_path)


def test_numbers_are_never_used_twice(tmp_path: Path) -> None:
    """A folder that a crash cut off keeps its number; files that are none of ours do not count."""
    assert next_number(tmp_path) == 0
    write(tmp_path, 0)
    assert next_number(tmp_path) == 1
    folder_of(tmp_path, 4, "confirm").mkdir(parents=True)
    (tmp_path / "trials" / "9notes-x").mkdir()
    (tmp_path / "trials" / "old").mkdir()
    assert next_number(tmp_path) == 5
    folder_of(tmp_path, 12_000, "search").mkdir(parents=True)
    assert next_number(tmp_path) == 12_001


def test_all_complete_trials_are_read_in_order(tmp_path: Path) -> None:
    """A folder without trial.json was cut off and is passed over."""
    assert read_trials(tmp_path) == []
    for number in (2, 0, 10):
        write(tmp_path, number)
    folder_of(tmp_path, 1, "search").mkdir(parents=True)
    assert [record.number for record in read_trials(tmp_path)] == [0, 2, 10]


def test_folders_sort_as_the_trials_ran(tmp_path: Path) -> None:
    """The number has leading zeros, so that a listing shows the order."""
    assert folder_of(tmp_path, 3, "search") == tmp_path / "trials" / "0003-search"
