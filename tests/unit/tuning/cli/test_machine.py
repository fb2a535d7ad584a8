"""From flags to the machine that a load is judged for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine.memory import CONTEXT_BYTES
from scenarios.errors import ConfigError
from tuning.cli.machine import MachineOptions

GQA = {
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "torch_dtype": "bfloat16",
}
MLA = {**GQA, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


def model(folder: Path, config: dict[str, Any], weight_bytes: int = 0) -> str:
    """Write a model folder."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if weight_bytes:
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(weight_bytes)
    return str(folder)


@pytest.mark.parametrize(("tp_size", "rank_bytes"), [(1, 57_344), (2, 28_672), (4, 14_336), (8, 14_336)])
def test_kv_heads_are_spread_over_the_ranks(tmp_path: Path, tp_size: int, rank_bytes: int) -> None:
    """Four KV heads: with eight ranks each still holds one."""
    assert MachineOptions(model=model(tmp_path, GQA), tp_size=tp_size).machine().kv_bytes_per_token == rank_bytes


def test_a_latent_is_on_every_rank(tmp_path: Path) -> None:
    """MLA: (512 + 64) x 28 layers x 2 bytes, whatever the ranks."""
    assert MachineOptions(model=model(tmp_path, MLA), tp_size=4).machine().kv_bytes_per_token == 32_256


def test_the_device_pool_is_what_the_weights_leave(tmp_path: Path) -> None:
    """Half of 80 GiB and of what CUDA takes, less 4 GiB of weights, is KV; two ranks share weights and heads."""
    folder = model(tmp_path, GQA, 4 * 2**30)
    options = MachineOptions(model=folder, gpu_memory_gib=80, mem_fraction_static=0.5)
    usable = 80 * 2**30 - CONTEXT_BYTES
    assert options.machine().device_tokens == (usable // 2 - 4 * 2**30) // 57_344
    both = MachineOptions(model=folder, gpu_memory_gib=80, mem_fraction_static=0.5, tp_size=2)
    assert both.machine().device_tokens == (usable // 2 - 2 * 2**30) // 28_672


def test_the_share_is_sglang_s_own_by_default(tmp_path: Path) -> None:
    """As for a launch: a larger GPU prefills in larger chunks and captures more graphs, and keeps room for them."""
    options = MachineOptions(model=model(tmp_path, GQA, 4 * 2**30))
    for gpu_memory_gib, share in ((80, 0.83), (40, 0.823)):
        usable = gpu_memory_gib * 2**30 - CONTEXT_BYTES
        machine = replace(options, gpu_memory_gib=gpu_memory_gib).machine()
        assert machine.device_tokens == (round(share * usable) - 4 * 2**30) // 57_344


def test_weights_are_counted_where_there_are_no_files(tmp_path: Path) -> None:
    """A folder with config.json alone is enough."""
    counted = {**GQA, "intermediate_size": 18_944, "vocab_size": 152_064}
    machine = MachineOptions(model=model(tmp_path, counted), gpu_memory_gib=80, mem_fraction_static=0.5).machine()
    assert machine.device_tokens is not None
    kv_bytes = (80 * 2**30 - CONTEXT_BYTES) // 2 - machine.device_tokens * 57_344
    assert kv_bytes == pytest.approx(15.2e9, rel=0.01)


def test_the_pool_of_a_real_h200_is_estimated_well() -> None:
    """141 x 0.12 with the 7B shape of scripts/gpu (6.6 billion parameters, 12.3 GiB) gave 79,727 tokens."""
    options = MachineOptions(gpu_memory_gib=141, mem_fraction_static=0.12, weights_gib=12.3, kv_bytes_per_token=57_344)
    assert options.machine().device_tokens == pytest.approx(79_727, rel=0.05)


def test_a_known_pool_needs_no_estimate(tmp_path: Path) -> None:
    """--device-kv-tokens wins."""
    options = MachineOptions(device_kv_tokens=5, gpu_memory_gib=80, model=model(tmp_path, GQA, 1))
    assert options.machine().device_tokens == 5


def test_no_pool_over_four_fifths_of_the_host_is_proposed() -> None:
    """1,000 GiB over two ranks: 400 GiB each, in GB."""
    limit = MachineOptions(host_memory_gib=1000, tp_size=2).machine().host_gb_limit
    assert limit == pytest.approx(400 * 2**30 / 1e9)


def test_host_pools_are_listed_or_stepped() -> None:
    """Decimal GB of each rank."""
    known = MachineOptions(device_kv_tokens=10, kv_bytes_per_token=1_000_000)
    listed = replace(known, hicache_size="3,1,3").machine().host_pools
    assert [(pool.name, pool.tokens) for pool in listed] == [("--hicache-size 1", 1000), ("--hicache-size 3", 3000)]
    stepped = replace(known, hicache_size="2:6:2").machine().host_pools
    assert [pool.tokens for pool in stepped] == [2000, 4000, 6000]
    with pytest.raises(ConfigError, match="write whole GB"):
        replace(known, hicache_size="").machine()


def test_write_back_is_the_policy_whose_pools_add_up() -> None:
    """The others keep copies."""
    assert MachineOptions().machine().inclusive
    assert MachineOptions(hicache_write_policy="write_through_selective").machine().inclusive
    assert not MachineOptions(hicache_write_policy="write_back").machine().inclusive
