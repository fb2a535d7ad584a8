"""What can work on a machine, before anything is launched."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

from harness.engine import memory, refusals
from harness.engine.flag_source import shipped
from harness.engine.memory import DeviceForecast, Learned, MemoryForecast, SeenMemory
from harness.engine.setting import Setting
from tests.support.machines import GB, bounds
from tuning.space.bounds import MEMORY_FLAGS, RULE_FLAGS

RATIO_2 = Setting(hicache=True, hicache_ratio=2.0, mem_fraction_static=0.8)


def test_a_setting_that_fits_is_not_refused() -> None:
    """With all of the memory at hand, whatever else runs now."""
    assert bounds().refusal(RATIO_2) is None
    assert bounds().refusal(Setting()) is None


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            Setting(hicache=True, hicache_size=900),
            "a host pool of 900.0 GB over 1 rank(s) does not fit: 800.0 GB of 1000.0",
        ),
        (Setting(mem_fraction_static=0.1), "the weights take"),
        (Setting(mem_fraction_static=0.95, extra={"chunked-prefill-size": 400_000}), "the device would need"),
        (Setting(page_size=48), "--page-size 48 does not divide the chunk of prefills (SGLang's own)"),
        (
            Setting(hicache=True, extra={"disable-radix-cache": True}),
            "HiCache and --disable-radix-cache exclude each other",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(setting: Setting, said: str) -> None:
    """By memory of the host and of the device, and by SGLang's own rules; nothing was to be launched."""
    reason = bounds().refusal(setting)
    assert reason is not None
    assert reason.startswith(said)
    assert "nothing was launched" not in reason


def test_each_rank_has_its_own_host_pool() -> None:
    """Eight of them do not fit where one does."""
    setting = Setting(hicache=True, hicache_size=400)
    assert bounds().refusal(setting) is None
    assert bounds(tp_size=8).refusal(setting) is not None


def test_what_a_study_has_learned_counts() -> None:
    """A device pool that was larger than foretold makes the host pool larger, and then it does not fit."""
    machine = bounds(host_gb=150, device_gib=80)
    seen = SeenMemory(device_pool_bytes=90 * GB)
    foretold = DeviceForecast(
        weights_bytes=16 * GB,
        kv_pool_bytes=45 * GB,
        graphs_bytes=0,
        activations_bytes=0,
        kv_bytes_per_token=147456,
        mem_fraction_static=0.8,
    )
    learned = Learned([(MemoryForecast(device=foretold), seen)] * 3)
    assert machine.refusal(RATIO_2) is None
    assert machine.refusal(RATIO_2, learned) is not None


def test_what_may_fit_if_the_forecast_is_off_is_not_certain() -> None:
    """A first forecast may be a tenth too high; so the search keeps what preflight would refuse now."""
    tight = bounds(host_gb=120)
    assert tight.refusal(RATIO_2) is not None
    assert tight.too_large(RATIO_2) is None
    assert bounds(host_gb=110).too_large(RATIO_2) is not None


def test_without_nvml_only_what_is_sure_is_refused() -> None:
    """The size of a ratio's pool is not known then."""
    assert bounds(host_gb=20, device_gib=None).refusal(RATIO_2) is None
    assert bounds(host_gb=20, device_gib=None).refusal(Setting(hicache=True, hicache_size=30)) is not None


def test_the_memory_of_another_machine_is_not_looked_at() -> None:
    """But its rules are the same."""
    elsewhere = bounds(host_gb=1, here=False)
    assert elsewhere.refusal(Setting(hicache=True, hicache_size=900)) is None
    assert elsewhere.refusal(Setting(page_size=48)) is not None


@pytest.mark.parametrize(("module", "known"), [(memory, MEMORY_FLAGS), (refusals, RULE_FLAGS)])
def test_every_flag_that_decides_is_known_as_one(module: ModuleType, known: frozenset[str]) -> None:
    """A flag that the formulas or the rules begin to read must be looked at when a space is cut."""
    flags = {name for version in ("0.5.15", "0.5.23") for name in shipped(version).names()}
    read = set(re.findall(r'"([a-z0-9-]+)"', inspect.getsource(module))) & flags
    assert read
    fields = {name.replace("-", "_") for name in read} & Setting.model_fields.keys()
    assert {name for name in read if name.replace("-", "_") not in fields} | fields <= known
