"""The launch command, and where SGLang is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import spec as spec_module
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec, find_local_engine
from harness.engine.surroundings import Surroundings
from harness.errors import EngineMissing
from tests.support.models import model_config


def program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_command_has_what_all_launches_share_and_the_setting_last() -> None:
    """The setting's flags come last, so that they win over fixed ones."""
    engine = EngineSpec(
        python=Path("/venv/python"),
        model="m",
        sglang_version="0.5.15",
        base_flags=("--enable-metrics", "--dtype", "float32"),
        tp_size=2,
    )
    assert engine.argv(Setting(hicache=True, page_size=16), 31000) == [
        *("/venv/python", "-m", "sglang.launch_server", "--model-path", "m"),
        *("--host", "127.0.0.1", "--port", "31000"),
        "--enable-cache-report",
        *("--tp-size", "2"),
        *("--enable-metrics", "--dtype", "float32"),
        *("--enable-hierarchical-cache", "--page-size", "16"),
    ]


def test_copies_of_the_model_are_told() -> None:
    """Data parallelism stands beside tensor parallelism."""
    engine = EngineSpec(python=Path("p"), model="m", sglang_version="", tp_size=2, dp_size=4)
    assert engine.argv(Setting(), 1)[11:15] == ["--tp-size", "2", "--dp-size", "4"]
    assert (engine.gpus, engine.ranks, engine.attention_ranks) == (8, 8, 2)


def test_a_setting_is_read_as_this_engine_runs_it() -> None:
    """What is fixed for every launch, and the version, decide the canonical form."""
    around = Surroundings(version=(0, 5, 23), fixed={"attention-backend": "hpc_ops"})
    engine = EngineSpec(python=Path("p"), model="m", sglang_version="0.5.23", around=around)
    assert engine.canonical(Setting(page_size=16)) == Setting(page_size=64)


def test_kv_of_a_token_as_the_flags_have_it() -> None:
    """The type of the KV is that of every launch; without a config nothing is known."""
    config = model_config("llama-3-8b", torch_dtype="float32")
    plain = EngineSpec(python=Path("p"), model="m", sglang_version="", config=config)
    full = replace(plain, around=Surroundings(fixed={"dtype": "float32"}))
    fp8 = replace(plain, around=Surroundings(fixed={"kv-cache-dtype": "fp8_e4m3"}))
    found = [engine.kv_bytes_per_token() for engine in (plain, full, fp8, replace(plain, tp_size=2))]
    assert found == [131_072, 262_144, 65_536, 131_072]
    assert EngineSpec(python=Path("p"), model="m", sglang_version="").kv_bytes_per_token() is None


def test_one_gpu_needs_no_flag() -> None:
    """What has SGLang's own default is left out; the two measuring flags never are."""
    flags = EngineSpec(python=Path("p"), model="m", sglang_version="").argv(Setting(), 1)
    assert flags[9:] == ["--enable-metrics", "--enable-cache-report"]


def test_the_version_is_asked_of_the_engine_s_own_python(tmp_path: Path) -> None:
    """The engine's Python answers with its SGLang's version."""
    python = program(tmp_path / "python", "echo 0.5.15")
    assert find_local_engine(python) == (python, "0.5.15")


def test_a_python_without_sglang_is_named(tmp_path: Path) -> None:
    """The message says which Python was asked and the three ways out."""
    python = program(tmp_path / "python", "exit 1")
    with pytest.raises(EngineMissing) as missing:
        find_local_engine(python)
    assert str(missing.value).startswith(f"SGLang is not installed for {python}; install `hicache-tune[sglang]`")
    assert "--engine-python" in str(missing.value)
    assert "--engine cpu" in str(missing.value)


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    """A path that leads nowhere is refused with the system's reason."""
    with pytest.raises(EngineMissing, match=r"--engine-python .*/nowhere: No such file or directory"):
        find_local_engine(tmp_path / "nowhere")


def test_a_python_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that hangs is left after a while."""
    monkeypatch.setattr(spec_module, "ASK_S", 0.05)
    with pytest.raises(EngineMissing, match=r"no answer within 0\.05 s"):
        find_local_engine(program(tmp_path / "python", "exec sleep 60"))
