"""GPUs: which are used, what they say, and what happens where there is none."""

from __future__ import annotations

import json

import pytest

from harness.errors import ConfigError, TelemetryError
from harness.telemetry import Nvml, NvmlUnavailable, open_nvml, required
from harness.telemetry.nvml import DeviceReading, GpuDevice, used_devices
from tests.support.fake_nvml import FakeGpu, FakeNvml
from tests.support.recordings import case_folder, expected


def host_of_case_61() -> FakeNvml:
    """Build the host of case 61: four GPUs, of which 0 is free and 1 is nearly full."""
    gpus = json.loads((case_folder(61) / "gpus.json").read_text())
    return FakeNvml([FakeGpu(uuid=gpu["uuid"], used_bytes=gpu["used"]) for gpu in gpus])


def opened(module: FakeNvml, visible: str | None = None, **options: int) -> Nvml:
    """Open NVML where it has to work."""
    nvml = open_nvml(visible, module=module, **options)
    assert isinstance(nvml, Nvml)
    return nvml


def reading_of(nvml: Nvml) -> DeviceReading:
    """Read GPUs that have to answer."""
    reading = nvml.read()
    assert isinstance(reading, DeviceReading)
    return reading


@pytest.mark.parametrize("visible", ['"2,3"', '"GPU-dd44,GPU-b"'])
def test_visible_gpus_are_found_by_index_uuid_and_prefix(visible: str) -> None:
    """Case 61: the order and the choice are those of CUDA_VISIBLE_DEVICES."""
    nvml = opened(host_of_case_61(), visible.strip('"'))
    assert [device.uuid for device in nvml.devices] == expected(61)[visible]


def test_a_gpu_that_does_not_exist_is_an_error() -> None:
    """Case 61: index 7 on a host of four GPUs; NVML is closed again."""
    module = host_of_case_61()
    with pytest.raises(ConfigError, match=r"entry 7: no such GPU; this host has 0 \(GPU-aa11\)"):
        open_nvml("7", module=module)
    assert expected(61)['"7"'] == "error: no such GPU"
    assert module.opened == 0


def test_headroom_is_of_the_fullest_used_gpu() -> None:
    """Case 61: GPU 1 is fuller and GPU 0 is free, but neither is used."""
    reading = reading_of(opened(host_of_case_61(), "2,3"))
    assert (reading.free_bytes, reading.used_bytes) == (80_000 - 300 - 61_000, 61_000)
    assert {gpu.uuid for gpu in reading.gpus} == {"GPU-cc33", "GPU-dd44"}


DEVICES = tuple(GpuDevice(index, uuid) for index, uuid in enumerate(("GPU-aa11", "GPU-ab22", "GPU-cc33")))


@pytest.mark.parametrize(
    ("visible", "base_gpu_id", "count", "indices"),
    [
        (None, 0, None, [0, 1, 2]),
        (" 2 , 0 ", 0, None, [2, 0]),
        ("2,1,0", 1, 1, [1]),
        ("2,1,0", 1, None, [1, 0]),
        ("", 0, None, []),
        ("-1", 0, 2, []),
        ("1,-1,2", 0, None, [1]),
    ],
)
def test_the_engine_takes_a_slice_of_what_is_visible(
    visible: str | None, base_gpu_id: int, count: int | None, indices: list[int]
) -> None:
    """--base-gpu-id is relative to the visible list, and CUDA stops at the first invalid entry."""
    used = used_devices(DEVICES, visible, base_gpu_id=base_gpu_id, count=count)
    assert [device.index for device in used] == indices


@pytest.mark.parametrize(
    ("visible", "count", "message"),
    [
        ("GPU-a", None, "2 GPUs begin so"),
        ("GPU-zz", None, "no such GPU"),
        ("0,GPU-aa", None, "names GPU-aa11 twice"),
        ("0,1", 4, "asks for GPUs 0 to 3 of 2"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_an_error(visible: str, count: int | None, message: str) -> None:
    """Ambiguous, unknown and doubled entries and too large engines name what to correct."""
    with pytest.raises(ConfigError, match=message):
        used_devices(DEVICES, visible, count=count)


def test_a_version_mismatch_stops_a_study_that_needs_headroom() -> None:
    """Case 59: the study with a headroom constraint gets the reason and the advice before anything is launched."""
    recording = json.loads((case_folder(59) / "fake_nvml.json").read_text())
    nvml = open_nvml(module=FakeNvml(init_error=recording["nvmlInit"]))
    assert isinstance(nvml, NvmlUnavailable)
    assert expected(59)["init"] in nvml.reason
    with pytest.raises(TelemetryError, match=r"different versions.*reload the driver or reboot"):
        required(nvml)


def test_a_missing_library_is_a_value_and_never_a_zero() -> None:
    """Case 59: without a driver library every reading says why there is none."""
    recording = json.loads((case_folder(59) / "fake_nvml.json").read_text())
    nvml = open_nvml(module=FakeNvml(init_error=recording["alt"]["nvmlInit"]))
    assert isinstance(nvml, NvmlUnavailable)
    assert nvml.read() is nvml
    assert "no NVIDIA driver library" in str(nvml)
    assert "GPU host" in nvml.advice


@pytest.mark.parametrize(
    ("gpus", "visible", "reason"), [([], None, "the NVIDIA driver sees no GPU"), (["GPU-a"], "", "no GPU is visible")]
)
def test_no_gpu_is_a_value(gpus: list[str], visible: str | None, reason: str) -> None:
    """A driver without GPUs, or an empty CUDA_VISIBLE_DEVICES, gives a reason and leaves NVML closed."""
    module = FakeNvml([FakeGpu(uuid) for uuid in gpus])
    nvml = open_nvml(visible, module=module)
    assert isinstance(nvml, NvmlUnavailable)
    assert nvml.reason == reason
    assert module.opened == 0


def test_an_error_without_an_explanation_is_passed_on() -> None:
    """Any other NVML error is named."""
    nvml = open_nvml(module=FakeNvml(init_error="NVMLError_Unknown"))
    assert isinstance(nvml, NvmlUnavailable)
    assert "(Unknown)" in nvml.reason


def test_a_gpu_that_is_lost_under_load_is_a_value() -> None:
    """One lost GPU makes the reading unavailable, as the headroom of the rest would be a lie."""
    module = host_of_case_61()
    nvml = opened(module)
    module.gpus[2].lost = True
    lost = nvml.read()
    assert isinstance(lost, NvmlUnavailable)
    assert "fallen off the bus" in lost.reason


def test_a_gpu_that_hides_its_pcie_counters_makes_the_sum_unknown() -> None:
    """The traffic of the rest is not the traffic of all."""
    shy = FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b", pcie_bytes=None)])
    reading = reading_of(opened(shy))
    assert (reading.pcie_sent_bytes, reading.pcie_received_bytes) == (None, None)
    assert (reading.gpus[0].pcie_sent_bytes, reading.gpus[0].pcie_received_bytes) == (7, 9)
    assert reading.utilisation_percent == 50


def test_closing_twice_shuts_down_once() -> None:
    """NVML counts its openings."""
    module = host_of_case_61()
    nvml = opened(module)
    nvml.close()
    nvml.close()
    assert module.opened == 0
    assert isinstance(nvml.read(), NvmlUnavailable)


def test_nvml_that_works_is_what_was_required() -> None:
    """A working NVML passes through."""
    nvml = opened(host_of_case_61())
    assert required(nvml) is nvml
