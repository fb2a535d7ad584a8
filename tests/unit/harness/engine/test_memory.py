"""What a setting will take, against what a real H200 took."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.engine.effective import told_memory
from harness.engine.memory import (
    DeviceForecast,
    DeviceRoom,
    Learned,
    SeenMemory,
    default_fraction,
    forecast,
    forecast_device,
    seen_memory,
)
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import FlagValue, Surroundings
from tests.support.models import H200_SHAPE, model_config
from tests.support.recordings import DATA

MIB, GIB, GB = 2**20, 2**30, 10**9
H200 = DeviceRoom(143_771 * MIB, 143_771 * MIB)
DUMMY: dict[str, FlagValue] = {
    "load-format": "dummy",
    "cuda-graph-max-bs-decode": "16",
    "cuda-graph-backend-prefill": "disabled",
}
"""As the H200 server was launched."""


def spec(model: str = "qwen2-7b", fixed: dict[str, FlagValue] | None = None, **more: Any) -> EngineSpec:
    """Describe an engine of SGLang 0.5.15 that loads a shape of tests/data/models."""
    changes = more.pop("changes", {})
    around = Surroundings(fixed=DUMMY if fixed is None else fixed, uses_mla=model.startswith("deepseek"))
    given = {"around": around, "config": model_config(model, **changes), **more}
    return EngineSpec(python=Path("python"), model="Org/Name", sglang_version="0.5.15", **given)


def h200(name: str) -> dict[str, Any]:
    """Return what the H200 server said of itself."""
    return dict(json.loads(gzip.decompress((DATA / "server_info" / f"h200-0.5.15-{name}.json.gz").read_bytes())))


@pytest.mark.contract
@pytest.mark.parametrize(("name", "fraction"), [("off", 0.22), ("wt60", 0.22), ("wb60", 0.22), ("frac50", 0.5)])
def test_the_forecast_of_a_real_h200(name: str, fraction: float) -> None:
    """Weights within 1 %, pool within 1.5 %, and tokens within 1.5 % of what the server printed."""
    info = h200(name)
    told = told_memory(info)
    device = forecast_device(Setting(mem_fraction_static=fraction), spec(changes=H200_SHAPE), H200)
    assert device is not None
    assert told.weights_bytes is not None
    assert told.kv_pool_bytes is not None
    assert device.weights_bytes == pytest.approx(told.weights_bytes, rel=0.01)
    assert device.kv_pool_bytes == pytest.approx(told.kv_pool_bytes, rel=0.015)
    assert device.pool_tokens == pytest.approx(info["max_total_num_tokens"], rel=0.015)
    assert told.graphs_bytes is not None
    assert device.graphs_bytes == pytest.approx(told.graphs_bytes, rel=0.1)


@pytest.mark.contract
@pytest.mark.parametrize(("fraction", "seen_mib"), [(0.22, 34_564), (0.5, 74_374)])
def test_the_peak_of_a_real_h200(fraction: float, seen_mib: int) -> None:
    """The device's peak under load was seen by NVML (facts of the hand-run); the forecast is within 2 %."""
    device = forecast_device(Setting(mem_fraction_static=fraction), spec(changes=H200_SHAPE), H200)
    assert device is not None
    assert device.peak_bytes == pytest.approx(seen_mib * MIB, rel=0.02)


@pytest.mark.contract
def test_the_model_learns_from_one_setting_of_the_h200_what_the_other_takes() -> None:
    """After the trial at 0.22 the peak at 0.5 is foretold within its error, which is smaller than before."""
    engine, learned = spec(changes=H200_SHAPE), Learned()
    first = forecast(Setting(mem_fraction_static=0.22), engine, H200, learned)
    before = forecast(Setting(mem_fraction_static=0.5), engine, H200, learned)
    learned.learn(first, SeenMemory(device_peak_bytes=34_564 * MIB, device_pool_bytes=340_362 * 57_344))
    after = forecast(Setting(mem_fraction_static=0.5), engine, H200, learned)
    assert before.device_peak_error_bytes is not None
    assert after.device_peak_error_bytes is not None
    assert after.device_peak_bytes is not None
    assert abs(after.device_peak_bytes - 74_374 * MIB) < after.device_peak_error_bytes < before.device_peak_error_bytes


def test_tensor_parallel_ranks_share_weights_and_heads() -> None:
    """Half the weights, half the KV of a token, and twice the pools."""
    one = forecast_device(Setting(mem_fraction_static=0.5), spec("llama-3-8b"), H200)
    two = forecast_device(Setting(mem_fraction_static=0.5), spec("llama-3-8b", tp_size=2), H200)
    assert one is not None
    assert two is not None
    assert two.weights_bytes == one.weights_bytes // 2
    assert two.kv_bytes_per_token == one.kv_bytes_per_token // 2
    assert two.pools_bytes == 2 * two.kv_pool_bytes


def test_a_limit_of_tokens_caps_the_pool() -> None:
    """--max-total-tokens as SGLang reads it, fixed or of the setting."""
    limited = forecast_device(
        Setting(mem_fraction_static=0.5, extra={"max-total-tokens": "64k"}), spec("llama-3-8b"), H200
    )
    assert limited is not None
    assert limited.pool_tokens == 64_000
    fixed = {**DUMMY, "max-total-tokens": "8192"}
    of_all = forecast_device(Setting(mem_fraction_static=0.5), spec("llama-3-8b", fixed), H200)
    assert of_all is not None
    assert of_all.pool_tokens == 8192


def test_fp8_doubles_the_tokens() -> None:
    """The pool is as large and holds twice as many."""
    plain = forecast_device(Setting(mem_fraction_static=0.5), spec("llama-3-8b"), H200)
    fp8 = forecast_device(
        Setting(mem_fraction_static=0.5, extra={"kv-cache-dtype": "fp8_e4m3"}), spec("llama-3-8b"), H200
    )
    assert plain is not None
    assert fp8 is not None
    assert fp8.pool_tokens == pytest.approx(2 * plain.pool_tokens, abs=1)


def test_weights_that_leave_nothing() -> None:
    """A share below the weights gives a pool of nothing, not a negative one."""
    device = forecast_device(Setting(mem_fraction_static=0.05), spec("llama-3-8b"), H200)
    assert device is not None
    assert (device.kv_pool_bytes, device.pool_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("total_gib", "tp_size", "expected"),
    [
        # by hand from 0.5.15, server_args.py:3629-3690: the reserve, in MiB
        (24, 1, 0.833),  # 512 + 2048 x 1.5 + 24 x 2 + 128 + 42 x 8 = 4096
        (80, 1, 0.830),  # 512 + 8192 x 1.5 + 256 x 2 + 128 + 58 x 8 = 13904
        (140, 1, 0.903),  # the same of a larger device
        (80, 8, 0.813),  # 512 + 8192 x 1.5 + 512 x 2 + 1024 + 58 x 8 = 15312
    ],
)
def test_the_share_that_sglang_chooses(total_gib: int, tp_size: int, expected: float) -> None:
    """What is left for activations, graphs and large groups decides the share."""
    room = DeviceRoom(total_gib * GIB, total_gib * GIB)
    device = forecast_device(Setting(), spec("qwen3-8b", {}, tp_size=tp_size), room)
    assert device is not None
    assert device.mem_fraction_static == expected


def test_the_share_of_the_newer_version_is_not_foretold() -> None:
    """0.5.23 sizes the pool after its graphs; for MLA it does as before."""
    late = Surroundings(version=(0, 5, 23))
    sizes = {"chunk_tokens": 8192, "graph_batch": 256, "prefill_graphs_bytes": 0}
    assert default_fraction(spec(around=late), H200, **sizes) is None
    mla = Surroundings(version=(0, 5, 23), uses_mla=True)
    assert default_fraction(spec(around=mla), H200, **sizes) is not None
    assert forecast_device(Setting(), spec(around=late), H200) is None


@pytest.mark.parametrize(
    ("fixed", "graphs_mib"),
    [
        ({}, 50 + 2 * 256 + 58 * 8),
        ({"cuda-graph-max-bs-decode": "16"}, 50 + 2 * 16 + 58 * 8),
        ({"cuda-graph-max-bs": "16", "cuda-graph-backend-prefill": "disabled"}, 50 + 2 * 16),
        ({"disable-decode-cuda-graph": True, "disable-prefill-cuda-graph": True}, 0),
        ({"disable-cuda-graph": True}, 0),
    ],
)
def test_graphs(fixed: dict[str, FlagValue], graphs_mib: int) -> None:
    """Graphs cost by the largest batch that is captured."""
    device = forecast_device(Setting(mem_fraction_static=0.5), spec(fixed=fixed), H200)
    assert device is not None
    assert device.graphs_bytes == graphs_mib * MIB


def test_the_graphs_of_mla_prefills_are_dear() -> None:
    """SGLang reserves 1.5 GiB for them, whatever the chunk."""
    device = forecast_device(Setting(mem_fraction_static=0.9), spec("deepseek-v2-lite", {}), H200)
    assert device is not None
    assert device.graphs_bytes == (50 + 2 * 256 + 1536) * MIB


def test_activations_follow_the_chunk() -> None:
    """Half the chunk, half the activations; without chunks a whole batch of prompts counts."""

    def of(**extra: int) -> DeviceForecast:
        named: dict[str, FlagValue] = {name.replace("_", "-"): value for name, value in extra.items()}
        found = forecast_device(Setting(mem_fraction_static=0.5, extra=named), spec(), H200)
        assert found is not None
        return found

    assert of(chunked_prefill_size=4096).activations_bytes * 2 == of().activations_bytes
    assert of(chunked_prefill_size=-1).activations_bytes == 2 * of().activations_bytes
    assert of(chunked_prefill_size=-1, max_prefill_tokens=8192).activations_bytes == of().activations_bytes


def test_host_pools_follow_the_device_pools() -> None:
    """A ratio is taken of the forecast pool; without a device, of the largest that was seen."""
    ratio = Setting(hicache=True, hicache_ratio=3, mem_fraction_static=0.5)
    expected = forecast(ratio, spec(), H200, Learned())
    assert expected.device is not None
    assert expected.host_pool_bytes == 3 * expected.device.kv_pool_bytes
    learned = Learned()
    assert forecast(ratio, spec(), None, learned).host_pool_bytes is None
    learned.learn(forecast(ratio, spec(), None, learned), SeenMemory(device_pool_bytes=10 * GB))
    learned.learn(forecast(ratio, spec(), None, learned), SeenMemory(device_pool_bytes=7 * GB))
    assert forecast(ratio, spec(), None, learned).host_pool_bytes == 30 * GB
    assert forecast(Setting(), spec(), None, learned).host_pool_bytes == 0
    size = Setting(hicache=True, hicache_size=60)
    assert forecast(size, spec(tp_size=2, dp_size=2), None, learned).host_pool_bytes == 240 * GB


def test_the_cpu_engine_s_virtual_device_is_not_forecast() -> None:
    """Its device is no GPU; what was seen of its pools still counts."""
    learned = Learned()
    learned.learn(forecast(Setting(), spec(device="cpu"), H200, learned), SeenMemory(device_pool_bytes=GB))
    expected = forecast(Setting(hicache=True), spec(device="cpu"), H200, learned)
    assert expected.device is None
    assert expected.host_pool_bytes == 2 * GB


def test_what_a_trial_showed_in_bytes() -> None:
    """Pools in tokens of one rank become bytes over all ranks; the peak is what the load took of the idle device."""
    seen = seen_memory(
        Setting(),
        spec("llama-3-8b", tp_size=2),
        device_pool_tokens=1000,
        host_pool_tokens=2000,
        room=DeviceRoom(80 * GIB, 79 * GIB),
        least_free_bytes=9 * GIB,
    )
    assert seen == SeenMemory(
        device_peak_bytes=70 * GIB, device_pool_bytes=131_072_000, host_pool_bytes=2 * 131_072_000
    )
    nothing = seen_memory(
        Setting(),
        spec(changes={"num_hidden_layers": None}),
        device_pool_tokens=1,
        host_pool_tokens=None,
        room=None,
        least_free_bytes=1,
    )
    assert nothing == SeenMemory()
