"""What a model needs of a device's memory, for real shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.engine.model_shape import (
    activation_bytes_per_token,
    architecture,
    dtype_bytes,
    kv_bytes_per_token,
    kv_bytes_per_token_and_rank,
    parameters,
    weight_bytes,
)
from tests.support.models import model_config

MODELS = ("qwen2-7b", "qwen3-8b", "llama-3-8b", "deepseek-v2-lite", "deepseek-v3", "qwen3-30b-a3b")


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("qwen2-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("llama-3-8b", 8_030_261_248),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 671_026_419_200),
        ("qwen3-30b-a3b", 30_532_122_624),
    ],
)
def test_parameters_of_real_models(model: str, count: int) -> None:
    """Dense and experts, heads and latents: the count is the published one, to the last parameter."""
    found = parameters(model_config(model))
    assert found is not None
    assert found.total == count


@pytest.mark.parametrize(
    ("model", "bf16", "fp8"),
    [
        ("qwen2-7b", 57_344, 28_672),
        ("qwen3-8b", 147_456, 73_728),
        ("llama-3-8b", 131_072, 65_536),
        ("deepseek-v2-lite", 31_104, 15_552),
        ("deepseek-v3", 70_272, 35_136),
        ("qwen3-30b-a3b", 98_304, 49_152),
    ],
)
def test_kv_of_a_token(model: str, bf16: int, fp8: int) -> None:
    """GQA keeps K and V of its KV heads, MLA one latent; fp8 halves them."""
    config = model_config(model)
    assert kv_bytes_per_token(config) == bf16
    assert kv_bytes_per_token(config, kv_dtype="bf16") == bf16
    assert kv_bytes_per_token(config, kv_dtype="fp8_e4m3") == fp8
    assert kv_bytes_per_token(config, kv_dtype="fp8_e5m2") == fp8
    assert kv_bytes_per_token(config, kv_dtype="fp4_e2m1") == fp8 * 9 // 16
    assert kv_bytes_per_token(config, kv_dtype="nvfp4") is None


@pytest.mark.parametrize(
    ("model", "ranks", "of_rank"),
    [
        ("llama-3-8b", 4, 32_768),
        ("llama-3-8b", 8, 16_384),
        ("llama-3-8b", 16, 16_384),
        ("qwen2-7b", 8, 14_336),
        ("deepseek-v3", 8, 70_272),
    ],
)
def test_kv_of_ranks(model: str, ranks: int, of_rank: int) -> None:
    """Each rank has its share of the KV heads, and at least one; of a latent it has the whole."""
    config = model_config(model)
    assert kv_bytes_per_token_and_rank(config, ranks=ranks) == of_rank
    assert kv_bytes_per_token(config, ranks=ranks) == of_rank * ranks


def test_old_models_have_a_kv_head_for_each_head() -> None:
    """MHA: the config says nothing of KV heads."""
    assert kv_bytes_per_token(model_config("llama-3-8b", num_key_value_heads=None)) == 524_288


def test_a_quantised_kv_cache_of_the_checkpoint_counts() -> None:
    """What the checkpoint says of its KV is what `auto` takes."""
    config = model_config("llama-3-8b", quantization_config={"kv_cache_quant_algo": "FP8"})
    assert kv_bytes_per_token(config) == 65_536
    assert kv_bytes_per_token(config, kv_dtype="bfloat16") == 131_072


def test_sparse_attention_keeps_an_index() -> None:
    """DeepSeek V3.2 has 128 values of index and a scale of 4 bytes for each layer and token."""
    assert kv_bytes_per_token(model_config("deepseek-v3", index_head_dim=128)) == 70_272 + 61 * 132


def test_a_multimodal_model_nests_its_language_model() -> None:
    """The text part decides."""
    config = {"architectures": ["Some"], "text_config": model_config("llama-3-8b")}
    assert kv_bytes_per_token(config) == 131_072
    assert parameters(config) == parameters(model_config("llama-3-8b"))
    assert architecture(config) == "Some"


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 4096},
        {"torch_dtype": "fp4"},
        {"num_hidden_layers": None},
        {"num_attention_heads": 0, "num_key_value_heads": None, "head_dim": None},
        {"hidden_size": "large"},
    ],
)
def test_what_is_not_covered_is_unknown(changes: dict[str, Any]) -> None:
    """A sliding window has a pool of its own, and a gap in the config is not filled by a guess."""
    assert kv_bytes_per_token(model_config("llama-3-8b", **changes)) is None


def test_layers_without_kv_do_not_count() -> None:
    """Linear attention keeps no KV; a window that is off is full attention."""
    half = ["linear_attention", "full_attention"] * 16
    assert kv_bytes_per_token(model_config("llama-3-8b", layer_types=half)) == 65_536
    off = {"layer_types": ["sliding_attention"] * 32, "sliding_window": None}
    assert kv_bytes_per_token(model_config("llama-3-8b", **off)) == 131_072


@pytest.mark.parametrize(
    ("own", "asked", "width"),
    [
        ("bfloat16", None, 2),
        ("float32", None, 4),
        ("float32", "auto", 2),
        ("bfloat16", "auto", 2),
        (None, "auto", 2),
        ("bfloat16", "float32", 4),
        ("bfloat16", "half", 2),
        ("fp4", None, None),
        ("bfloat16", "int3", None),
    ],
)
def test_dtypes(own: str | None, asked: str | None, width: int | None) -> None:
    """`auto` halves float32, as SGLang does (model_config.py:1561 of 0.5.15)."""
    assert dtype_bytes({"dtype": own}, asked) == width


def test_weights_are_those_of_the_files(tmp_path: Path) -> None:
    """The files' sizes count, halved when the engine loads float32 as half; a dummy load takes the formula."""
    (tmp_path / "model-1.safetensors").write_bytes(bytes(3000))
    (tmp_path / "model-2.safetensors").write_bytes(bytes(1000))
    config = model_config("qwen2-7b", torch_dtype="float32")
    assert weight_bytes(str(tmp_path), config) == 4000
    assert weight_bytes(str(tmp_path), config, dtype="auto") == 2000
    assert weight_bytes(str(tmp_path), config, dtype="float32") == 4000
    assert weight_bytes(str(tmp_path), config, dtype="auto", dummy=True) == 2 * 7_615_616_512
    fp8 = model_config("deepseek-v3")
    assert weight_bytes(str(tmp_path), fp8, dtype="float16") == 4000


def test_weights_by_the_formula() -> None:
    """Without files: bytes of the dtype, or of the quantisation with its scales; the embedding is never quantised."""
    assert weight_bytes("Org/Name", model_config("llama-3-8b")) == 2 * 8_030_261_248
    v3 = weight_bytes("Org/Name", model_config("deepseek-v3"))
    assert v3 is not None
    assert 671e9 < v3 < 690e9
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    quantised = weight_bytes("Org/Name", model_config("llama-3-8b", quantization_config=awq))
    assert quantised is not None
    assert 5.5e9 < quantised < 6e9
    assert weight_bytes("Org/Name", {}) is None
    assert weight_bytes("Org/Name", model_config("llama-3-8b", torch_dtype="int3")) is None


def test_weights_that_are_quantised_as_they_are_loaded() -> None:
    """fp8 keeps one byte of each weight and leaves the embedding; a kind that is not known is no guess."""
    config = model_config("llama-3-8b")
    count = parameters(config)
    assert count is not None
    assert weight_bytes("Org/Name", config, quantization="fp8") == 2 * count.embedding + count.rest
    assert weight_bytes("Org/Name", config, quantization="awq_marlin") is None
    v3 = model_config("deepseek-v3")
    assert weight_bytes("Org/Name", v3, quantization="fp8") == weight_bytes("Org/Name", v3)


@pytest.mark.parametrize("model", MODELS)
def test_activations(model: str) -> None:
    """Tensor parallelism shares the MLP and leaves the residual stream; a token needs tens of KB."""
    config = model_config(model)
    alone, shared = activation_bytes_per_token(config), activation_bytes_per_token(config, tp_size=8)
    assert alone is not None
    assert shared is not None
    assert 20_000 < shared < alone < 400_000
    assert activation_bytes_per_token({}) is None


def test_a_class_that_is_not_named() -> None:
    """A config without its class says nothing."""
    assert architecture({}) == ""
    assert architecture({"architectures": []}) == ""
    assert json.dumps(architecture(model_config("qwen2-7b"))) == '"Qwen2ForCausalLM"'
