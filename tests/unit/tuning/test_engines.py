"""From what is searched to the engine that is launched: its flags checked, its model read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.engine.flag_source import SHIPPED
from harness.engine.setting import Setting
from scenarios import load_scenario
from scenarios.errors import ConfigError
from tests.support.models import model_config
from tuning.config import Effort, Search
from tuning.engines import engine_spec, local_spec
from tuning.space import Ranges

EFFORT = Effort(trials=2, confirm_top=0, confirm_rounds=0, ready_timeout_s=60)


@pytest.fixture
def engine_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Python that says it has SGLang 0.5.15, and answers with its flags."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = tmp_path / "python"
    flags = SHIPPED / "flags-0.5.15.json"
    python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo 0.5.15; else cat {flags}; fi\n')
    python.chmod(0o755)
    return python


def search(python: Path, *, space: tuple[str, ...] = (), **more: Any) -> Search:
    """Describe a search on that Python."""
    scenario = load_scenario("support-chat")
    given = {
        "engine": "local",
        "engine_python": python,
        "model": "Org/Name",
        "scenario": scenario,
        "api": scenario.api,
        "seed": 1,
        "space": Ranges().space(space),
        "constraints": (),
        "load_limit_s": 60,
        **more,
    }
    return Search.parse(given, where="the flags")


def test_the_user_s_flags_are_checked_and_known(engine_python: Path) -> None:
    """The flags stand in one spelling on the command, decide how a setting is read, and warn where they should."""
    spec = engine_spec(
        search(engine_python, engine_args=("--attention-backend", "trtllm_mha", "--cuda-graph-max-bs=16")), EFFORT
    )
    assert spec.base_flags == ("--attention-backend=trtllm_mha", "--cuda-graph-max-bs=16")
    assert spec.around.version == (0, 5, 15)
    assert spec.around.fixed == {"attention-backend": "trtllm_mha", "cuda-graph-max-bs": "16"}
    assert spec.around.defaults["schedule-policy"] == "fcfs"
    assert spec.canonical(Setting(page_size=128)).page_size == 64
    assert spec.warnings == ("--engine-arg=--cuda-graph-max-bs: SGLang 0.5.15 calls it deprecated",)


def test_the_model_is_read_where_it_is_at_hand(engine_python: Path, tmp_path: Path) -> None:
    """A local folder tells its class and its kind of attention; a hub name tells nothing."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model_config("deepseek-v2-lite")))
    local = engine_spec(search(engine_python, model=str(folder)), EFFORT)
    assert (local.around.architecture, local.around.uses_mla) == ("DeepseekV2ForCausalLM", True)
    assert local.kv_bytes_per_token() == 31_104
    hub = engine_spec(search(engine_python), EFFORT)
    assert (hub.around.architecture, hub.around.uses_mla) == ("", None)
    assert hub.kv_bytes_per_token() is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"engine_args": ("--schedule-policy=lmp",)}, "unknown value `lmp`; did you mean `lpm`?"),
        ({"engine_args": ("--schedul-policy=lpm",)}, "did you mean `schedule-policy`?"),
        ({"space": ("schedule-policy=fcfs,hrrn",)}, "--schedule-policy fcfs,hrrn: unknown value `hrrn`"),
        ({"space": ("max-runing-requests=16:64:16",)}, "did you mean `max-running-requests`?"),
        ({"space": ("max-running-requests=few,many",)}, "`few` is not a whole number"),
        ({"space": ("schedule-policy=off,on",)}, "unknown value `False`"),
        ({"space": ("port=30000,30001",)}, "--port cannot be searched; leave it out; every launch gets a port"),
    ],
)
def test_what_the_engine_does_not_have_is_refused(engine_python: Path, more: dict[str, Any], said: str) -> None:
    """Before any launch: a fixed flag, a searched flag, and each value of it."""
    with pytest.raises(ConfigError) as refused:
        engine_spec(search(engine_python, **more), EFFORT)
    assert said in str(refused.value)


def test_what_is_left_to_sglang_is_no_value_to_check(engine_python: Path) -> None:
    """A list may hold `default` beside the flag's own values."""
    engine_spec(search(engine_python, space=("schedule-policy=default,lpm", "max-running-requests=default,64")), EFFORT)


def test_one_launch_takes_hicache_s_own_flags(engine_python: Path) -> None:
    """Where nothing is searched its flags are checked and passed on."""
    spec = local_spec("Org/Name", engine_python, ["--hicache-size=60"])
    assert spec.base_flags == ("--hicache-size=60",)
    with pytest.raises(ConfigError, match="is not a whole number"):
        local_spec("Org/Name", engine_python, ["--hicache-size=large"])
