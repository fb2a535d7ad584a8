"""A scenario that is sized by the engine: how large its KV pool is, asked once, before the study is made."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.engine.api_key import api_key_headers
from harness.engine.spec import EngineSpec
from harness.errors import EngineError
from harness.stopping import StopFlag
from harness.verify.server import launched
from scenarios import PromptTokenizer, sized
from tuning.config import STUDY_FILE, Search, read_study
from tuning.engines import launcher_of
from tuning.space import one_setting
from tuning.study import BASELINES


def settled(console: Console, wanted: Search, spec: EngineSpec, root: Path) -> Search:
    """Return `wanted` with as many sessions as its scenario's `working_set` asks of the engine; others as they are.

    A study that exists keeps the number it was made with, so that all its trials play the same sessions. Otherwise the
    first baseline is launched, without a load. Raises EngineError when it does not start or does not tell.
    """
    if wanted.scenario.sessions.working_set is None:
        return wanted
    if (root / STUDY_FILE).exists():
        concurrency = read_study(root).search.scenario.sessions.concurrency
        return wanted.model_copy(update={"scenario": wanted.scenario.scaled(concurrency=concurrency)})
    tokens = _device_pool_tokens(console, wanted, spec)
    scenario = sized(wanted.scenario, tokens, PromptTokenizer.load(wanted.model))
    console.print(
        f"the engine's KV pool holds {tokens:,} tokens; {wanted.scenario.sessions.working_set} are "
        f"{scenario.sessions.concurrency} live sessions"
    )
    return wanted.model_copy(update={"scenario": scenario})


def _device_pool_tokens(console: Console, wanted: Search, spec: EngineSpec) -> int:
    stop = StopFlag()
    setting = one_setting(wanted.space) if wanted.only_measures else BASELINES[0]
    with (
        stop.on_signals(),
        console.status("launching once, to learn the engine's KV pool") as status,
        launched(
            spec,
            setting,
            say=status.update,
            should_stop=stop.should_stop,
            launcher=lambda folder: launcher_of(wanted, spec, folder),
            headers=api_key_headers(wanted.api_key_env),
        ) as client,
    ):
        tokens = client.server_info().get("max_total_num_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise EngineError("the engine does not tell its KV pool (/server_info); give --device-kv-tokens")
    return tokens
