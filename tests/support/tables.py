"""A recorded grid whose truth is known, made by a seeded model; it is never reported as a result."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.engine.setting import Setting
from harness.store import Effective
from tests.support.study_data import study_file
from tests.support.trials import SESSIONS, TURNS, measured, write_requests
from tuning.config import STUDY_FILE

DEVICE_TOKENS = {0.84: 5120, 0.88: 6272, 0.92: 7424}
RATIOS = (1.5, 3.0, 6.0)
POLICIES = ("write_through", "write_back")
SETTINGS = 3 * (1 + 3 * 2)


def true_p99_s(setting: Setting) -> float:
    """Return the P99 that the model gives a setting: less with larger pools, up to a working set of 20,000 tokens."""
    tokens = DEVICE_TOKENS[setting.mem_fraction_static or 0.88] * (1 + (setting.hicache_ratio or 0))
    return float(0.5 + 2.0 * max(0.0, 1 - tokens / 20_000))


def settings() -> list[Setting]:
    """Return all settings of the grid."""
    off = [Setting(mem_fraction_static=fraction) for fraction in DEVICE_TOKENS]
    on = [
        Setting(hicache=True, mem_fraction_static=fraction, hicache_ratio=ratio, hicache_write_policy=policy)
        for fraction in DEVICE_TOKENS
        for ratio in RATIOS
        for policy in POLICIES
    ]
    return [setting.canonical() for setting in (*off, *on)]


def write_table(folder: Path, *, leave_out: int = 0, seeds: tuple[int, ...] = (1,)) -> Path:
    """Write the grid as docs/evidence keeps it, without its last `leave_out` settings."""
    (folder / "trials").mkdir(parents=True)
    (folder / "requests").mkdir()
    (folder / STUDY_FILE).write_text(study_file().model_dump_json(), encoding="utf-8")
    random = np.random.default_rng(0)
    chosen = settings()
    number = 0
    for setting in chosen[: len(chosen) - leave_out]:
        for seed in seeds:
            ttft_s = true_p99_s(setting) / 1.3 * random.lognormal(0, 0.1, (SESSIONS, TURNS))
            device = DEVICE_TOKENS[setting.mem_fraction_static or 0.88]
            host = round(device * setting.hicache_ratio) if setting.hicache_ratio else None
            effective = Effective(device_pool_tokens=device, host_pool_tokens=host, launch_phases_s={})
            record = measured(setting, float(np.quantile(ttft_s, 0.99)), number=number, seed=seed, effective=effective)
            write_requests(folder / "made", record, ttft_s)
            made = folder / "made" / "trials" / f"{number:04d}-search" / "requests.parquet"
            made.rename(folder / "requests" / f"{number:04d}-search.parquet")
            (folder / "trials" / f"{number:04d}-search.json").write_text(record.model_dump_json(), encoding="utf-8")
            number += 1
    return folder
