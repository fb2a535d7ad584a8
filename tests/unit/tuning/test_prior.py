"""What is foretold of settings: their pools as the engines made them, and what a load gets from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.cpu.engine import BASE_FLAGS
from harness.engine.flags import split_arguments
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import Surroundings
from scenarios.analysis import CachePrior
from scenarios.catalogue import load_scenario
from scenarios.errors import ScenarioError
from tests.support.models import H200_SHAPE, model_config
from tuning.prior import Pools, Prior, curve_of, pools_of

MIB = 2**20
H200_BYTES = 143_771 * MIB
CPU = EngineSpec(
    python=Path("python"),
    model="tiny",
    sglang_version="0.5.15",
    device="cpu",
    env={"HICACHE_TUNE_CPU_DEVICE_MIB": "112"},
    around=Surroundings(platform="cpu", fixed={given.name: given.value for given in split_arguments(BASE_FLAGS)}),
    config={
        "model_type": "qwen2", "hidden_size": 512, "num_hidden_layers": 2, "intermediate_size": 5120,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048, "tie_word_embeddings": False,
        "dtype": "float32",
    },
)  # fmt: skip
H200 = EngineSpec(
    python=Path("python"),
    model="Org/Name",
    sglang_version="0.5.15",
    around=Surroundings(
        fixed={
            "load-format": "dummy",
            "cuda-graph-max-bs-decode": "64",
            "cuda-graph-backend-prefill": "disabled",
            "mem-fraction-static": 0.12,
        }
    ),
    config=model_config("qwen2-7b", **H200_SHAPE),
)
TWO_STEPS = CachePrior("a load", 50_000, (0.0, 1_000.0, 3_000.0), (0.0, 0.4, 0.7))


@pytest.mark.parametrize(
    ("setting", "device_tokens", "host_tokens"),
    [
        (Setting(), 6282, 0),
        (Setting(hicache=True), 6282, 12_565),
        (Setting(hicache=True, hicache_ratio=1.5, mem_fraction_static=0.84), 5120, 7_696),
        (Setting(hicache=True, hicache_ratio=4.5, mem_fraction_static=0.92), 7424, 33_424),
    ],
)
def test_pools_of_the_cpu_engine(setting: Setting, device_tokens: int, host_tokens: int) -> None:
    """Within 1 % of what the real engine told, which rounds to whole pages."""
    found = pools_of(setting.canonical(), CPU, None)
    assert found is not None
    assert (found.device_tokens, found.host_tokens) == pytest.approx((device_tokens, host_tokens), rel=0.01)


@pytest.mark.parametrize(
    ("setting", "host_tokens"),
    [
        (Setting(), 0),
        (Setting(hicache=True), 159_455),
        (Setting(hicache=True, hicache_size=6), 104_640),
        (Setting(hicache=True, hicache_size=24), 418_560),
    ],
)
def test_pools_of_a_recorded_h200(setting: Setting, host_tokens: int) -> None:
    """Within 4 % of what docs/evidence has, where weights take most of the share; nothing without a device."""
    found = pools_of(setting.canonical(H200.around), H200, H200_BYTES)
    assert found is not None
    assert (found.device_tokens, found.host_tokens) == pytest.approx((79_727, host_tokens), rel=0.04)
    assert pools_of(setting, H200, None) is None


def test_copies_of_the_model_hold_more_together() -> None:
    """Each copy has pools of its own, and serves its share of the sessions."""
    one, two = (pools_of(Setting(hicache=True, hicache_size=6), spec, H200_BYTES) for spec in (H200, _twice(H200)))
    assert one is not None
    assert two is not None
    assert (two.device_tokens, two.host_tokens) == pytest.approx((2 * one.device_tokens, 2 * one.host_tokens))


def _twice(spec: EngineSpec) -> EngineSpec:
    return EngineSpec(spec.python, spec.model, spec.sglang_version, dp_size=2, around=spec.around, config=spec.config)


@pytest.mark.parametrize(
    ("device", "host", "policy", "hits"),
    [
        (999, 0, None, (0.0, 0.0)),
        (1_000, 0, None, (0.4, 0.0)),
        (1_000, 2_000, "write_through", (0.4, 0.0)),
        (1_000, 2_000, "write_back", (0.4, 0.3)),
        (1_000, 3_000, "write_through", (0.4, 0.3)),
    ],
)
def test_hits_by_tier(device: float, host: float, policy: str | None, hits: tuple[float, float]) -> None:
    """With write_back the two tiers hold different pages, else the host has a copy of the device's."""
    setting = Setting.model_validate({"hicache": host > 0, "hicache_write_policy": policy}).canonical()
    found = Prior(TWO_STEPS, lambda _: Pools(device, host)).expected(setting)
    assert found is not None
    assert (found.device_hits, found.host_hits) == pytest.approx(hits)
    assert found.cost == pytest.approx(1 - hits[0] - 0.9 * hits[1])


def test_what_cannot_be_foretold_is_not() -> None:
    """Pools that are not known give no expectation."""
    assert Prior(TWO_STEPS, lambda _: None).expected(Setting()) is None


def test_the_order_of_recorded_trials_is_foretold() -> None:
    """Of a search on the CPU engine, the settings by their P99: off, small pools, the defaults (0.91-3.5 s)."""
    curve = curve_of(load_scenario("cpu-chat"), 1)
    assert curve is not None
    prior = Prior(curve, lambda setting: pools_of(setting, CPU, None))
    recorded = (
        Setting(hicache=True),
        Setting(hicache=True, hicache_ratio=1.5, hicache_write_policy="write_back", mem_fraction_static=0.84),
        Setting(),
        Setting(mem_fraction_static=0.86),
    )
    expected = [prior.expected(setting.canonical()) for setting in recorded]
    costs = [each.cost for each in expected if each]
    assert costs == sorted(costs)
    assert len(costs) == len(recorded)


def test_a_scenario_that_is_still_to_be_sized_has_no_curve_yet() -> None:
    """Its number of users follows from an engine's pool."""
    sized_by_engine = load_scenario("cpu-chat").model_copy(deep=True)
    sessions = sized_by_engine.sessions.model_copy(update={"concurrency": None, "working_set": "2x"})
    with pytest.raises(ScenarioError):
        curve_of(sized_by_engine.model_copy(update={"sessions": sessions}), 1)
