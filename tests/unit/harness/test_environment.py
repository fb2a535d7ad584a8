"""The conditions of a measurement, and what differs between two."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from harness import environment
from harness.engine.spec import EngineSpec
from harness.environment import MAY_DIFFER, Environment
from harness.telemetry import Nvml, NvmlUnavailable, open_nvml
from tests.support.fake_nvml import FakeGpu, FakeNvml

SPEC = EngineSpec(python=Path("p"), model="m", sglang_version="0.5.15", device="cpu", copy_gb_per_s=2.0)
NO_GPU = NvmlUnavailable("no GPU")


def test_the_present_conditions() -> None:
    """Host, processor, memory and engine are read, and survive a file."""
    here = Environment.of(SPEC, NO_GPU)
    assert here.host == os.uname().nodename
    assert here.cores == len(os.sched_getaffinity(0))
    assert here.memory_gib == round(psutil.virtual_memory().total / 2**30)
    assert here.processor
    assert (here.sglang_version, here.model, here.device, here.copy_gb_per_s) == ("0.5.15", "m", "cpu", 2.0)
    assert here.gpus == ()
    assert here.tool_version
    assert Environment.parse(json.loads(here.model_dump_json()), where="x") == here
    assert list(here.differences(Environment.of(SPEC, NO_GPU))) == []


def test_the_gpus_in_use_are_named() -> None:
    """GPUs are known by their model, so that a study can go on at another host of the same make."""
    device = open_nvml(None, count=2, module=FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c")]))
    assert isinstance(device, Nvml)
    here = Environment.of(SPEC, device)
    assert (here.gpus, here.driver) == (("Fake GPU", "Fake GPU"), "580.1")


@pytest.mark.parametrize("name", sorted(Environment.model_fields.keys() - MAY_DIFFER))
def test_each_difference_is_said(name: str) -> None:
    """Anything but the tool's own version keeps two measurements apart; the older value is named first."""
    here = Environment.of(SPEC, NO_GPU)
    there = here.model_copy(update={name: "other"})
    assert list(here.differences(there)) == [f"{name} was other, is {getattr(here, name)}"]


@pytest.mark.parametrize("name", sorted(MAY_DIFFER))
def test_what_may_differ(name: str) -> None:
    """A study goes on after an upgrade, and on another rented host of the same make."""
    here = Environment.of(SPEC, NO_GPU)
    assert list(here.differences(here.model_copy(update={name: "other"}))) == []


def test_a_kernel_without_a_processor_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc does not name the processor, its architecture stands for it."""

    def no_file(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(environment, "open", no_file, raising=False)
    assert Environment.of(SPEC, NO_GPU).processor == os.uname().machine
