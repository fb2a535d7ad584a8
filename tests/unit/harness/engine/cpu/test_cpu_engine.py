"""What a launch of the CPU engine gets: flags, environment, and where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.cpu.engine import BASE_FLAGS, CpuEngine, default_home

ENGINE = CpuEngine(Path("/engine/venv/bin/python"), Path("/engine/model"), "0.5.15", "2.13.0")


def test_the_environment_turns_the_shim_on_and_names_the_device() -> None:
    """The shim's folder is all of PYTHONPATH, the device has a size, and no copy limit is set."""
    env = ENGINE.env()
    assert (Path(env["PYTHONPATH"]) / "sitecustomize.py").is_file()
    assert env["HICACHE_TUNE_CPU_SHIM"] == "1"
    assert env["HICACHE_TUNE_CPU_DEVICE_MIB"] == "112"
    assert env["OMP_NUM_THREADS"] == "1"
    assert "HICACHE_TUNE_CPU_COPY_GB_PER_S" not in env
    assert not [name for name in env if name.startswith("SGL_")]


def test_the_copy_limit_and_the_device_can_be_chosen() -> None:
    """Both reach the engine as text."""
    env = ENGINE.env(copy_gb_per_s=0.5, device_mib=200)
    assert env["HICACHE_TUNE_CPU_COPY_GB_PER_S"] == "0.5"
    assert env["HICACHE_TUNE_CPU_DEVICE_MIB"] == "200"


def test_the_base_flags_leave_alone_what_is_tuned() -> None:
    """No flag of the search space is fixed."""
    assert ENGINE.base_flags == BASE_FLAGS
    tuned = ("--hicache", "--enable-hierarchical-cache", "--mem-fraction", "--page-size", "--max-total-tokens")
    assert not [flag for flag in BASE_FLAGS if flag.startswith(tuned)]


def test_the_home_is_in_the_user_s_data_folder_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """HICACHE_TUNE_CPU_ENGINE_HOME moves the engine."""
    monkeypatch.delenv("HICACHE_TUNE_CPU_ENGINE_HOME", raising=False)
    assert default_home().parts[-2:] == ("hicache-tune", "engine-cpu-0.5.15")
    monkeypatch.setenv("HICACHE_TUNE_CPU_ENGINE_HOME", "/elsewhere")
    assert default_home() == Path("/elsewhere")
