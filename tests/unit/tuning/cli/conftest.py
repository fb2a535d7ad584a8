"""The command line in a folder of its own, with an installed CPU engine that is only a model and a name."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from harness.engine.cpu.engine import CpuEngine
from harness.engine.process import EngineProcess
from harness.telemetry import NvmlUnavailable
from tests.support.bpe import byte_level
from tests.support.console import Run, Said
from tests.support.simulated import SimulatedEngine
from tuning.cli import app
from tuning.search import Searcher


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model folder: a tokenizer and a config, no weights."""
    folder = tmp_path_factory.mktemp("model")
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def installed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin in an empty folder: no variable set, no GPU, a CPU engine that is found and none that may be launched."""
    for variable in [name for name in os.environ if name.startswith("HICACHE_TUNE_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    engine = CpuEngine(Path("engine/python"), model, "0.5.15", "2.9.1")
    monkeypatch.setattr("harness.engine.cpu.engine.find", lambda: engine)

    monkeypatch.setattr("harness.telemetry.open_nvml", lambda *_, **__: NvmlUnavailable("no GPU"))

    def launch(*_: object, **__: object) -> None:
        raise AssertionError("an engine was launched")

    monkeypatch.setattr(EngineProcess, "launch", launch)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does; a traceback is never an answer."""

    def run(*arguments: str) -> Said:
        code = app.run(arguments)
        said = Said(code, *capsys.readouterr())
        assert "Traceback" not in said.err
        return said

    return run


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SimulatedEngine:
    """Put a simulated engine in place of trials."""
    simulated = SimulatedEngine()
    monkeypatch.setattr("tuning.search.Searcher", partial(Searcher, measure=simulated))
    return simulated
