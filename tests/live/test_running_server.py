"""`hicache-tune verify` and `diagnose` on real engines that run already: one with HiCache, one without."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engine.cpu.engine import find
from tests.support.cpu_engine import RunningEngine, launched, random_prompts
from tuning.cli.app import run

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of an engine with HiCache."""
    log = tmp_path_factory.mktemp("on") / "engine.log"
    with launched(find(), log, "--enable-hierarchical-cache", "--hicache-ratio", "4", "--enable-metrics") as engine:
        yield str(engine.client.base_url)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Give an engine without HiCache."""
    with launched(find(), tmp_path_factory.mktemp("off") / "engine.log", "--enable-metrics") as engine:
        yield engine


@pytest.fixture
def off(without: RunningEngine) -> str:
    """Give the address of the engine without HiCache."""
    return str(without.client.base_url)


def verified(capsys: pytest.CaptureFixture[str], url: str, *flags: str) -> tuple[int, dict[str, Any]]:
    """Run the command; return its code and its JSON."""
    code = run(["verify", "--url", url, "--json", *flags])
    return code, json.loads(capsys.readouterr().out)


def test_hicache_is_proven_to_be_on_and_to_pay(on: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was evicted comes back from the host, faster than it is computed, and the engine's counters agree."""
    code, found = verified(capsys, on)
    assert (code, found["judgement"]["answer"]) == (0, "pays")
    assert found["judgement"]["host_share"] == 1.0
    reloaded, counted = found["counters"]["load_back_tokens"], found["counters"]["host_cached_tokens"]
    assert reloaded >= counted >= 8 * (found["prompt_tokens"] - 64)
    assert found["fill_complete"]
    lengths = found["judgement"]["break_even"]
    assert lengths["shortest_tokens"] * 4 <= lengths["longest_tokens"] == found["prompt_tokens"]


def test_hicache_is_proven_to_be_off(off: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was evicted is computed again."""
    code, found = verified(capsys, off)
    assert (code, found["judgement"]["answer"]) == (0, "off")
    assert found["judgement"]["host_share"] == 0.0
    assert found["judgement"]["device_s"] < found["judgement"]["cold_s"]


def test_a_device_that_is_not_filled_proves_nothing(on: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a limit far below the pool nothing is evicted, and the code says that nothing is proven."""
    code, found = verified(capsys, on, "--fill-tokens", "400")
    assert (code, found["judgement"]["answer"]) == (2, "nothing was evicted")
    assert not found["fill_complete"]


def test_a_server_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One sentence with the address, and the code of a usage error."""
    assert run(["verify", "--url", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_what_is_evicted_and_lost_is_diagnosed(
    without: RunningEngine, off: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """More conversations than the device holds come back in turn, and the rule for it finds them."""
    over = threading.Event()

    def talk() -> None:
        prompts = random_prompts(without.kv_pool_tokens() // 400 + 4, 400, seed=5)
        while not over.is_set():
            for prompt in prompts:
                without.generate(prompt, new_tokens=1)

    user = threading.Thread(target=talk)
    user.start()
    try:
        code = run(["diagnose", "--url", off, "--minutes", "0.4", "--json"])
    finally:
        over.set()
        user.join()
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert "evicted and lost" in [finding["name"] for finding in found["findings"]]
    assert found["figures"]["evicted_tokens"] > without.kv_pool_tokens()
    assert found["figures"]["device_pool_fullest"] is not None
    assert found["figures"]["host_available_least_bytes"] > 0


def test_a_server_that_rests_is_called_too_quiet(on: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is read into an idle engine."""
    assert run(["diagnose", "--url", on, "--minutes", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [finding["name"] for finding in found["findings"]] == ["too quiet"]
