"""The shim's copies on SGLang's own pools, without a launch: every pair, every page size, and the copy limit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.engine.cpu.engine import MODEL_SCRIPT, WORDS, find

pytestmark = pytest.mark.live

LIMIT_GB_PER_S = 0.25


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, Any]]:
    """What the round trips gave, with a copy limit."""
    engine = find()
    script = Path(__file__).with_name("roundtrip.py")
    env = {**os.environ, **engine.env(copy_gb_per_s=LIMIT_GB_PER_S)}
    run = subprocess.run([engine.python, script], env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def test_all_values_come_back_for_each_pair_and_page_size(outcomes: list[dict[str, Any]]) -> None:
    """KV that goes to the host pool and back is equal, and lands only where it belongs."""
    assert len(outcomes) == 16
    assert [case for case in outcomes if not case["equal"]] == []


def test_a_limited_copy_takes_as_long_as_its_bytes_need(outcomes: list[dict[str, Any]]) -> None:
    """With a limit, the copies of a round trip sleep for their bytes divided by the limit."""
    for case in outcomes:
        assert case["slept_s"] == pytest.approx(case["bytes"] / (LIMIT_GB_PER_S * 1e9))


def test_two_makings_of_the_model_are_identical(tmp_path: Path) -> None:
    """The model and the tokenizer that are installed are, byte for byte, what the recipe makes again."""
    engine = find()
    made = tmp_path / "model"
    run = subprocess.run([engine.python, MODEL_SCRIPT, WORDS, made], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert contents(made) == contents(engine.model_path)


def test_random_tokens_can_be_decoded(tmp_path: Path) -> None:
    """Any sequence of tokens has a text, and the tokens that the model can say have printable text."""
    engine = find()
    script = tmp_path / "decode.py"
    script.write_text(DECODE)
    run = subprocess.run([engine.python, script, engine.model_path], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    said, printable = json.loads(run.stdout)
    assert 1000 < said == printable


DECODE = """
import json, random, sys
from safetensors.torch import load_file
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
rng = random.Random(3)
for _ in range(500):
    assert isinstance(tokenizer.decode([rng.randrange(2048) for _ in range(40)]), str)
head = load_file(sys.argv[1] + "/model.safetensors")["lm_head.weight"]
said = [token for token in range(2048) if head[token].any()]
print(json.dumps([len(said), sum(tokenizer.decode([token]).isprintable() for token in said)]))
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Read every file of `folder`."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}
