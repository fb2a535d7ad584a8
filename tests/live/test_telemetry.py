"""Telemetry of a real engine: every metric name exists, and its processes and the machine are seen under load."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from harness.engine.cpu.engine import find
from harness.load_conditions import LoadConditions
from harness.telemetry import MetricsSource, Scrape, Unavailable, sampling
from harness.telemetry.catalog import ABORTED, METRICS, RETRACTED, V15
from tests.support.cpu_engine import RunningEngine, launched, random_prompts

pytestmark = pytest.mark.live

PROMPT_TOKENS = 1000
NO_GPU = Unavailable("no GPU")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Give an engine with HiCache whose device pool was filled, and which reloaded from the host."""
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with launched(find(), log, "--enable-hierarchical-cache", "--hicache-ratio", "4", "--enable-metrics") as running:
        prompts = random_prompts(2 * running.kv_pool_tokens() // PROMPT_TOKENS, PROMPT_TOKENS, seed=6)
        for prompt in (*prompts, prompts[0]):
            running.generate(prompt)
        yield running


def engine_pids() -> list[int]:
    """List the processes of the engine: nothing else of ours has children."""
    return [process.pid for process in psutil.Process().children(recursive=True)]


def test_every_metric_name_exists_on_a_real_engine(engine: RunningEngine) -> None:
    """All that is read of this version; no request was aborted or put back, so those two series are not made yet."""
    source = MetricsSource(str(engine.client.base_url))
    scrape = source.read()
    source.close()
    assert isinstance(scrape, Scrape)
    assert scrape.snapshot.version == V15
    missing = {spec for spec in METRICS if V15 in spec.versions and not scrape.snapshot.has(spec)}
    assert missing <= {ABORTED, RETRACTED}


def test_the_engine_and_the_machine_are_seen_under_load(engine: RunningEngine) -> None:
    """The engine's memory and cores are its own; other work is what is left of the machine."""
    with sampling(str(engine.client.base_url), engine_pids, NO_GPU, scrape_interval_s=0.2) as sampler:
        for prompt in random_prompts(4, PROMPT_TOKENS, seed=7):
            engine.generate(prompt)
    telemetry = sampler.result()
    found = LoadConditions.of(telemetry)
    assert telemetry.failed_scrapes == 0
    assert telemetry.samples["engine_rss_bytes"].min() > 2**28
    assert found.host.engine_cores is not None
    assert 0.1 < found.host.engine_cores <= (psutil.cpu_count() or 1)
    assert found.host.foreign_share is not None
    assert 0 <= found.host.foreign_share <= 1
    assert found.host.engine_major_faults is not None
    assert found.scrapes.share is not None
