"""What travels to the GPU host: the engine without what it does not need, and a model of real shape."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from harness.engine.model_shape import kv_bytes_per_token, read_model_config
from harness.engine.preflight import check_model
from scenarios import PromptTokenizer
from scenarios.prompts import PromptWriter
from scripts.gpu.model import SPECIAL, VOCABULARY, write_model
from scripts.gpu.pack import HERE, HOST_HAS, LEFT_OUT, LEFT_OUT_OF_HARNESS, distribution, unpack


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model folder."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


def test_model_has_the_kv_bytes_of_qwen2_7b(model: Path) -> None:
    """57,344 bytes a token in bf16, as measured on an H200."""
    check_model(str(model))
    assert kv_bytes_per_token(read_model_config(str(model))) == 57_344


def test_every_token_is_whole_text(model: Path) -> None:
    """Half a character would stream as an empty delta and shift the time to the first token."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY == read_model_config(str(model))["vocab_size"]
    texts = [tokenizer.decode([token]) for token in range(len(SPECIAL), VOCABULARY)]
    assert all(text and text.isascii() for text in texts)


def test_prompts_have_exact_lengths(model: Path) -> None:
    """The chat API needs a tokenizer that gives texts of any length."""
    tokenizer = PromptTokenizer.load(model)
    writer = PromptWriter(tokenizer, seed=1)
    for tokens in (1, 50, 3000):
        assert tokenizer.count(writer.text(np.random.default_rng(tokens), tokens)) == tokens


def test_model_is_made_the_same_each_time(model: Path, tmp_path: Path) -> None:
    """A later window resumes with the same model."""
    write_model(tmp_path)
    for path in model.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_end_of_turn_has_the_id_that_the_config_names(model: Path) -> None:
    """The template ends a turn by the token that ends generation."""
    ends = Tokenizer.from_file(str(model / "tokenizer.json")).token_to_id("<|im_end|>")
    assert ends == read_model_config(str(model))["eos_token_id"]
    assert "<|im_end|>" in json.loads((model / "tokenizer_config.json").read_text())["chat_template"]


def wheel_of(folder: Path, name: str, members: list[str]) -> Path:
    """Make a wheel with empty `members`."""
    wheel = folder / name
    with zipfile.ZipFile(wheel, "w") as archive:
        for member in members:
            archive.writestr(member, "")
    return wheel


def test_what_the_engine_does_not_need_is_not_even_unpacked(tmp_path: Path) -> None:
    """FA3 alone is 1.7 GB."""
    members = ["sgl_kernel/sm90/ops.so", "sgl_kernel/flash_ops.abi3.so", "sgl_kernel/sm100/ops.so", "deep_gemm/a/b.py"]
    wheel = wheel_of(tmp_path, "sglang_kernel-0.4.4-cp310-abi3-linux.whl", members)
    unpack([wheel], tmp_path / "site", LEFT_OUT)
    assert [path.name for path in (tmp_path / "site").rglob("*.*")] == ["ops.so"]
    assert (tmp_path / "site/sgl_kernel/sm90/ops.so").exists()


def test_only_the_harness_leaves_sources_behind(tmp_path: Path) -> None:
    """The engine compiles kernels on the host from headers that it carries."""
    assert not set(LEFT_OUT) & set(LEFT_OUT_OF_HARNESS)
    wheel = wheel_of(tmp_path, "gevent-1-py3.whl", ["gevent/core.c", "gevent/core.so", "gevent/tests/a.py"])
    unpack([wheel], tmp_path / "site", LEFT_OUT_OF_HARNESS)
    assert [path.name for path in (tmp_path / "site/gevent").iterdir()] == ["core.so"]


def test_packages_of_the_host_are_named_as_wheels_are() -> None:
    """A name in another spelling would be carried after all."""
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in HOST_HAS)
    assert distribution(Path("huggingface_hub-2.4.0-py3-none-any.whl")) in HOST_HAS


def test_engine_is_pinned() -> None:
    """The pins that belong to SGLang 0.5.15 are exact."""
    lines = (HERE / "engine.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert pinned["sglang"] == "0.5.15"
    assert {"sglang-kernel", "flashinfer-python", "transformers", "apache-tvm-ffi"} <= pinned.keys()


def test_absent_package_is_an_empty_module_for_the_engine() -> None:
    """SGLang imports IPython, which a GPU host lacks; what is absent and not on the list stays absent."""
    program = "import IPython.display as d; print(d.HTML, end=' '); import surely_absent_package"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(HERE / "engine_site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.startswith("<class")
    assert "ModuleNotFoundError: No module named 'surely_absent_package'" in answer.stderr
