"""The CPU engine, launched: restored KV is the KV that was computed, and the fraction sizes the KV pool."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.engine.cpu.engine import DEFAULT_DEVICE_MIB, HERE, CpuEngine, find
from tests.support.cpu_engine import Answer, NotReadyError, RunningEngine, launched, random_prompts

pytestmark = pytest.mark.live

PROMPT_TOKENS = 700
KV_BYTES_A_TOKEN = 4096
LARGEST_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Case:
    """One launch: a way of copying, a page size, and a fraction that leaves room for a few prompts."""

    io_backend: str
    layout: str
    page_size: int
    fraction: float


CASES = (
    Case("kernel", "page_first", 1, 0.70),  # SGLang's default
    Case("kernel", "layer_first", 16, 0.72),
    Case("direct", "layer_first", 1, 0.75),
    Case("direct", "page_first_direct", 16, 0.80),
)


@dataclass(frozen=True)
class Launched:
    """A running engine, and the switch that makes its copies wrong."""

    case: Case
    engine: RunningEngine
    pool_tokens: int
    switch: Path

    def ask_all(self, prompts: list[list[int]]) -> list[Answer]:
        """Ask for each prompt in turn: more of them than the device holds, so that each evicts an older one."""
        return [self.engine.generate(prompt) for prompt in prompts]

    def prompts(self, seed: int) -> list[list[int]]:
        """Make prompts that do not fit on the device together."""
        return random_prompts(self.pool_tokens // PROMPT_TOKENS + 2, PROMPT_TOKENS, seed=seed)


@pytest.fixture(scope="module")
def installed() -> CpuEngine:
    """The installed engine; its absence is a failure that says how to install it."""
    return find()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.io_backend}-{case.layout}-{case.page_size}")
def running(
    request: pytest.FixtureRequest, installed: CpuEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launched]:
    """An engine of each case, with the sabotage switched off."""
    case: Case = request.param
    folder = tmp_path_factory.mktemp("engine")
    switch = folder / "switch"
    paths = os.pathsep.join([str(Path(__file__).parent / "sabotage"), str(HERE / "shim")])
    flags = ["--mem-fraction-static", str(case.fraction), "--page-size", str(case.page_size)]
    flags += ["--enable-hierarchical-cache", "--hicache-ratio", "4", "--hicache-write-policy", "write_through"]
    flags += ["--hicache-io-backend", case.io_backend, "--hicache-mem-layout", case.layout]
    env = {"PYTHONPATH": paths, "SABOTAGE_SWITCH": str(switch)}
    with launched(installed, folder / "engine.log", *flags, env=env) as engine:
        yield Launched(case, engine, engine.kv_pool_tokens(), switch)


def test_restored_kv_gives_the_tokens_and_logprobs_of_recomputed_kv(running: Launched) -> None:
    """A prompt whose KV comes back from the host is continued as when it was computed."""
    prompts = running.prompts(seed=1)
    computed = running.ask_all(prompts)
    restored = running.ask_all(prompts)
    whole_pages = (PROMPT_TOKENS - 1) // running.case.page_size * running.case.page_size
    assert [answer.host_tokens + answer.device_tokens for answer in computed] == [0] * len(prompts)
    assert [(answer.host_tokens, answer.device_tokens) for answer in restored] == [(whole_pages, 0)] * len(prompts)
    assert [differs(*pair) for pair in zip(computed, restored, strict=True)] == [False] * len(prompts)


def test_a_wrong_copy_is_seen(running: Launched) -> None:
    """The same comparison fails for every prompt whose KV was restored wrongly, so that it can fail."""
    prompts = running.prompts(seed=2)
    computed = running.ask_all(prompts)
    running.switch.touch()
    try:
        restored = running.ask_all(prompts)
    finally:
        running.switch.unlink()
    assert all(answer.host_tokens > 0 for answer in restored)
    assert [differs(*pair) for pair in zip(computed, restored, strict=True)] == [True] * len(prompts)


def test_the_fraction_sizes_the_kv_pool(running: Launched, installed: CpuEngine) -> None:
    """The KV pool is what the fraction of the virtual device leaves beside the weights, in whole pages."""
    static_bytes = running.case.fraction * DEFAULT_DEVICE_MIB * 2**20
    expected = (static_bytes - weight_bytes(installed.model_path)) / KV_BYTES_A_TOKEN
    assert running.pool_tokens == pytest.approx(expected, abs=running.case.page_size)


def test_a_fraction_too_small_for_the_weights_is_refused(installed: CpuEngine, tmp_path: Path) -> None:
    """SGLang ends with its own message when the fraction leaves nothing beside the weights."""
    with (
        pytest.raises(NotReadyError, match="Loaded weights leave no GPU memory for the KV cache"),
        launched(installed, tmp_path / "engine.log", "--mem-fraction-static", "0.6"),
    ):
        pass


def differs(one: Answer, other: Answer) -> bool:
    """Whether two answers to one prompt are not the same, token by token and in their log-probabilities."""
    far = (abs(a - b) > LARGEST_DIFFERENCE for a, b in zip(one.logprobs, other.logprobs, strict=True))
    return one.tokens != other.tokens or any(far)


def weight_bytes(model_path: Path) -> int:
    """Read the bytes of all parameters off the model's file: all of it but its header."""
    file = model_path / "model.safetensors"
    with file.open("rb") as stream:
        (header_bytes,) = struct.unpack("<Q", stream.read(8))
    return int(file.stat().st_size - 8 - header_bytes)
