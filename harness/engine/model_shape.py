"""What a model needs of a device's memory, from its config.json: KV of a token, weights, activations.

Formulas as SGLang computes its pools ([15] `model_executor/pool_configurator.py`). What the formulas do not cover is
None, never a guess: sliding-window and state-space layers have pools of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

Config = Mapping[str, Any]

DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
KV_DTYPE_BYTES = {"fp8_e5m2": 1.0, "fp8_e4m3": 1.0, "bf16": 2.0, "bfloat16": 2.0, "fp4_e2m1": 0.5 + 1 / 16}
"""fp4 has one byte of scale for 16 values; other types of 0.5.23 are not computed here."""
ONE_BYTE = ("fp8", "w8a8_fp8", "w8a8_int8")
"""Kinds of `--quantization` that keep one byte of each weight."""
INDEX_BLOCK = 128
"""Values of the sparse-attention index that share one float32 scale (DeepSeek V3.2)."""
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")


def kv_bytes_per_token(
    config: Config, dtype: str | None = None, *, kv_dtype: str = "auto", ranks: int = 1
) -> int | None:
    """Compute the KV bytes of one token over all `ranks` that share the attention; None if unknown.

    `dtype` is the engine's `--dtype`; None takes the config's own. MHA and GQA keep K and V of each KV head, of which
    every rank holds its share and at least one; MLA keeps one latent, whole on each rank.
    """
    per_rank = kv_bytes_per_token_and_rank(config, dtype, kv_dtype=kv_dtype, ranks=ranks)
    return None if per_rank is None else per_rank * ranks


def kv_bytes_per_token_and_rank(
    config: Config, dtype: str | None = None, *, kv_dtype: str = "auto", ranks: int = 1
) -> int | None:
    """Compute the KV bytes of one token on one of `ranks` that share the attention; None if unknown."""
    text = text_config(config)
    try:
        layers = _attention_layers(text)
        width = _kv_width(config, dtype, kv_dtype)
        if layers is None or width is None:
            return None
        if "kv_lora_rank" in text:
            values = text["kv_lora_rank"] + text["qk_rope_head_dim"]
            return int(layers * values * width) + layers * _index_bytes(text)
        kv_heads = max(1, _kv_heads(text) // ranks)
        head_dim = _head_dim(text)
        return int(layers * kv_heads * (head_dim + (text.get("v_head_dim") or head_dim)) * width)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def weight_bytes(
    model: str, config: Config, *, dtype: str | None = None, dummy: bool = False, quantization: str | None = None
) -> int | None:
    """Return the bytes of all weights: those of the safetensors files, or computed where there are none.

    `dummy` is `--load-format dummy`, for which the files do not count; `quantization` is `--quantization`, which makes
    the weights of a checkpoint that is not quantised smaller as they are loaded.
    """
    width, own_width = dtype_bytes(config, dtype), dtype_bytes(config, None)
    if quantization is not None and "quantization_config" not in config:
        count = parameters(config)
        if count is None or width is None or quantization not in ONE_BYTE:
            return None
        return count.embedding * width + count.rest
    files = None if dummy else _files_bytes(Path(model).expanduser())
    if files is not None:
        if width is None or own_width is None or "quantization_config" in config:
            return files
        return round(files * width / own_width)
    count = parameters(config)
    if count is None or width is None:
        return None
    return round(count.embedding * width + count.rest * _weight_width(config, width))


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model: the embedding and the head, which quantisation leaves alone, and the rest."""

    embedding: int
    rest: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.rest


def parameters(config: Config) -> Parameters | None:
    """Count the parameters of a decoder with gated MLPs, dense or of experts; None for other shapes."""
    text = text_config(config)
    try:
        hidden, layers = text["hidden_size"], text["num_hidden_layers"]
        embedding = text["vocab_size"] * hidden * (1 if text.get("tie_word_embeddings") else 2)
        sparse = _expert_layers(text)
        dense_mlp = 3 * hidden * text["intermediate_size"]
        rest = layers * (_attention_parameters(text) + 2 * hidden) + hidden
        return Parameters(embedding, rest + (layers - sparse) * dense_mlp + sparse * _expert_parameters(text))
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def activation_bytes_per_token(config: Config, dtype: str | None = None, *, tp_size: int = 1) -> int | None:
    """Estimate what one token of a prefill chunk takes beside the pools on one rank; None if unknown.

    The widest moment is an MLP: its input, gate, up and product, and the residual stream with its copies.
    """
    text, width = text_config(config), dtype_bytes(config, dtype)
    try:
        inner = text["intermediate_size"]
        if _expert_layers(text):
            chosen = text.get("num_experts_per_tok") or 1
            inner = max(inner // tp_size, chosen * _expert_width(text) // tp_size) * tp_size
        return None if width is None else int(width * (3 * inner // tp_size + 8 * text["hidden_size"]))
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def text_config(config: Config) -> Config:
    """Return the part of a config that describes the language model; multimodal models nest it."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def architecture(config: Config) -> str:
    """Return the model's class; empty when the config does not say."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def dtype_bytes(config: Config, dtype: str | None) -> int | None:
    """Return the bytes of a weight or activation; `auto` halves float32, as SGLang does ([15] model_config.py:1561)."""
    own = text_config(config).get("torch_dtype") or text_config(config).get("dtype")
    if dtype == "auto":
        return 2 if own in (None, "float32") else DTYPE_BYTES.get(str(own))
    return DTYPE_BYTES.get(str(dtype or own))


def read_model_config(model: str) -> dict[str, Any]:
    """Read config.json of a local model folder; empty for a hub name."""
    path = Path(model).expanduser() / "config.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror}); allow it or choose another --model") from None
    except (ValueError, TypeError) as problem:
        raise ConfigError(f"{path}: not a JSON object ({problem}); mend or download it again") from None


def _attention_layers(text: Config) -> int | None:
    """Count the layers with a KV pool; None when some have another kind of pool than the plain one."""
    kinds = text.get("layer_types")
    if kinds is None:
        return int(text["num_hidden_layers"])
    if "sliding_attention" in kinds and text.get("sliding_window"):
        return None
    return sum(kind in ("full_attention", "sliding_attention") for kind in kinds)


def _kv_width(config: Config, dtype: str | None, kv_dtype: str) -> float | None:
    if kv_dtype != "auto":
        return KV_DTYPE_BYTES.get(kv_dtype)
    quantised = config.get("quantization_config") or {}
    if str(quantised.get("kv_cache_quant_algo", "")).upper() == "FP8":
        return 1.0
    return dtype_bytes(config, dtype)


def _index_bytes(text: Config) -> int:
    head_dim = text.get("index_head_dim") or 0
    return int(head_dim + head_dim // INDEX_BLOCK * 4)


def _kv_heads(text: Config) -> int:
    return int(text.get("num_key_value_heads") or text["num_attention_heads"])


def _head_dim(text: Config) -> int:
    return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])


def _attention_parameters(text: Config) -> int:
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    if "kv_lora_rank" in text:
        latent, rope = text["kv_lora_rank"], text["qk_rope_head_dim"]
        nope, value, query = text["qk_nope_head_dim"], text["v_head_dim"], text.get("q_lora_rank")
        to_query = (hidden + heads * (nope + rope)) * query + query if query else hidden * heads * (nope + rope)
        to_latent = hidden * (latent + rope) + latent
        return int(to_query + to_latent + latent * heads * (nope + value) + heads * value * hidden)
    queries, keys = heads * _head_dim(text), _kv_heads(text) * _head_dim(text)
    bias = queries + 2 * keys if text.get("model_type") == "qwen2" or text.get("attention_bias") else 0
    norms = 2 * _head_dim(text) if text.get("model_type") in ("qwen3", "qwen3_moe") else 0
    return int(hidden * (2 * queries + 2 * keys) + bias + norms)


def _experts(text: Config) -> int:
    return int(next((text[name] for name in EXPERTS if text.get(name)), 0))


def _expert_width(text: Config) -> int:
    return int(text.get("moe_intermediate_size") or text["intermediate_size"])


def _expert_layers(text: Config) -> int:
    """Count the layers whose MLP is made of experts."""
    if not _experts(text):
        return 0
    dense = {*range(text.get("first_k_dense_replace") or 0), *(text.get("mlp_only_layers") or ())}
    step = text.get("moe_layer_freq") or text.get("decoder_sparse_step") or 1
    return sum(layer not in dense and layer % step == 0 for layer in range(text["num_hidden_layers"]))


def _expert_parameters(text: Config) -> int:
    hidden, experts = text["hidden_size"], _experts(text)
    shared = text.get("shared_expert_intermediate_size") or (text.get("n_shared_experts") or 0) * _expert_width(text)
    bias = experts if text.get("topk_method") == "noaux_tc" else 0
    return int(3 * hidden * (experts * _expert_width(text) + shared) + hidden * experts + bias)


def _weight_width(config: Config, width: int) -> float:
    """Return the bytes of a quantised weight, its scales and zeros included."""
    method = config.get("quantization_config") or {}
    bits = method.get("bits") or method.get("w_bit") or (8 if method.get("quant_method") == "fp8" else None)
    if bits is None:
        return width
    group = method.get("group_size") or method.get("q_group_size")
    scales = (2 + bits / 8) / group if group and group > 0 else 4 / 128**2
    return float(bits / 8 + scales)


def _files_bytes(folder: Path) -> int | None:
    """Add up the safetensors files of a model folder; None when it has none."""
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")] if folder.is_dir() else []
    return sum(sizes) or None
