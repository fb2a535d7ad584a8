"""GPUs: which are used, what they say, and what happens where there is none."""

from __future__ import annotations

import json

import pytest

from harness.errors import ConfigError, TelemetryError
from harness.telemetry import Nvml, NvmlUnavailable, open_nvml, required
from harness.telemetry.devices import GpuDevice, used_devices
from harness.telemetry.readings import DeviceReading
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


def test_a_gpu_tells_more_than_its_memory() -> None:
    """Power, clocks and their events, errors, the link and the processes, in the units of their names."""
    gpu = FakeGpu("GPU-a", processes={10: 40_000, 11: 500, 12: None}, clock_events=0x44, uncorrected_errors=3)
    reading = reading_of(opened(FakeNvml([gpu])))
    assert (reading.power_w, reading.sm_clock_mhz, reading.memory_clock_mhz) == (350.0, 1980, 3201)
    assert (reading.clock_events, reading.uncorrected_errors, reading.remapped_rows) == (0x44, 3, 3)
    assert reading.link_bytes_per_s == pytest.approx(63.0e9, rel=0.001)
    assert reading.gpus[0].process_bytes == {10: 40_000, 11: 500}


def test_figures_of_several_gpus_become_one() -> None:
    """Power and links add up, the slowest clock counts, events come together, a share that is hidden hides the sum."""
    fast = FakeGpu("GPU-a", clock_events=0x04, processes={10: 7, 99: 80})
    slow = FakeGpu("GPU-b", clock_events=0x40, processes={10: 5, 11: 6}, link=(4, 8), power_mw=100_000)
    reading = reading_of(opened(FakeNvml([fast, slow])))
    assert (reading.power_w, reading.clock_events) == (450.0, 0x44)
    assert reading.link_bytes_per_s == pytest.approx(63.0e9 + 15.75e9, rel=0.001)
    assert reading.bytes_of([10, 11]) == 11, "of the GPU where they have most, the stranger not counted"
    assert reading.bytes_of([12345]) is None, "processes of a container have other numbers outside of it"
    slow.refused = {"nvmlDeviceGetPowerUsage": "NVMLError_NotSupported"}
    assert reading_of(opened(FakeNvml([fast, slow]))).power_w is None


EXTRAS = {
    "nvmlDeviceGetUtilizationRates": "utilisation_percent",
    "nvmlDeviceGetFieldValues": "pcie_received_bytes",
    "nvmlDeviceGetComputeRunningProcesses": "process_bytes",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetCurrentClocksEventReasons": "clock_events",
    "nvmlDeviceGetTotalEccErrors": "uncorrected_errors",
    "nvmlDeviceGetRemappedRows": "remapped_rows",
    "nvmlDeviceGetCurrPcieLinkGeneration": "link_bytes_per_s",
}


@pytest.mark.parametrize("error", ["NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_FunctionNotFound"])
@pytest.mark.parametrize(("function", "field"), EXTRAS.items())
def test_what_a_gpu_refuses_is_unknown_and_the_rest_is_read(function: str, field: str, error: str) -> None:
    """An old GPU, an old driver or a container hides a figure; it is None and memory is still known."""
    gpu = reading_of(opened(FakeNvml([FakeGpu("GPU-a", refused={function: error})]))).gpus[0]
    assert getattr(gpu, field) is None
    assert gpu.free_bytes == 80_000 - 300
    others = {name for name in EXTRAS.values() if name != field}
    assert all(getattr(gpu, name) is not None for name in others)


def test_memory_that_may_not_be_read_is_a_reason() -> None:
    """Headroom stands or falls with memory, so its refusal is told."""
    refused = {"nvmlDeviceGetMemoryInfo": "NVMLError_NoPermission"}
    answer = opened(FakeNvml([FakeGpu("GPU-a", refused=refused)])).read()
    assert isinstance(answer, NvmlUnavailable)
    assert "may not read the GPU" in answer.reason


def test_critical_errors_are_told_once() -> None:
    """Xid errors since the reading before; unknown where the driver lets nobody listen."""
    module = FakeNvml([FakeGpu("GPU-a")], xids=[79, 31])
    nvml = opened(module)
    assert [reading_of(nvml).xids, reading_of(nvml).xids] == [(79, 31), ()]
    deaf = FakeNvml([FakeGpu("GPU-a", refused={"nvmlDeviceRegisterEvents": "NVMLError_NotSupported"})], xids=[79])
    assert reading_of(opened(deaf)).xids is None


def test_a_gpu_without_a_performance_monitor_shows_no_rates() -> None:
    """Before Hopper there are counters only; what the monitor holds is given back at the end."""
    module = FakeNvml([FakeGpu("GPU-a", pcie_mib_per_s=None), FakeGpu("GPU-b")])
    nvml = opened(module)
    assert module.gpm_samples == 2
    assert reading_of(nvml).pcie_received_bytes_per_s is None
    nvml.close()
    assert module.gpm_samples == 0


SPLIT = FakeGpu(
    "GPU-a", instances=[FakeGpu("MIG-1", used_bytes=9, total_bytes=1000), FakeGpu("MIG-2", total_bytes=2000)]
)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["MIG-1", "GPU-b"]),
        ("0", ["MIG-1"]),
        ("GPU-a", ["MIG-1"]),
        ("MIG-2", ["MIG-2"]),
        ("1,MIG-2", ["GPU-b", "MIG-2"]),
    ],
)
def test_of_a_split_gpu_an_instance_is_used(visible: str | None, uuids: list[str]) -> None:
    """MIG instances are named by UUID; who names the whole GPU gets its first one, as from CUDA."""
    nvml = opened(FakeNvml([SPLIT, FakeGpu("GPU-b")]), visible)
    assert [device.uuid for device in nvml.devices] == uuids


def test_an_instance_has_its_own_memory_and_no_link_of_its_own() -> None:
    """Power and clocks are those of the whole GPU; its PCIe traffic is everybody's and so nobody's."""
    reading = reading_of(opened(FakeNvml([SPLIT]), "MIG-1"))
    assert (reading.free_bytes, reading.used_bytes) == (1000 - 300 - 9, 9)
    assert (reading.power_w, reading.pcie_received_bytes, reading.pcie_received_bytes_per_s) == (350.0, None, None)


def test_an_unknown_instance_is_an_error() -> None:
    """A UUID of another host names what there is."""
    with pytest.raises(ConfigError, match=r"entry MIG-9: no such GPU; this host has .*MIG-2"):
        open_nvml("MIG-9", module=FakeNvml([SPLIT]))
