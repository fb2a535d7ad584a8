"""Preflight: what is known before a launch is worth its time."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engine.failure import Blame, FailureKind, LaunchFailed
from harness.engine.memory import DeviceForecast, DeviceRoom, Learned, MemoryForecast, SeenMemory, host_pool_bytes
from harness.engine.model_shape import kv_bytes_per_token, read_model_config
from harness.engine.preflight import (
    LAST_PORT,
    HostRoom,
    check_device,
    check_host_pool,
    check_model,
    check_port,
    check_rules,
    check_swap,
    preflight,
)
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import Surroundings
from harness.errors import ConfigError, Interrupted
from tests.support.models import model_config

GB, GIB = 10**9, 2**30
QWEN2_7B = {
    "num_attention_heads": 28,
    "hidden_size": 3584,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "num_attention_heads": 128,
    "hidden_size": 7168,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}


def spec(tp_size: int = 1) -> EngineSpec:
    """Describe an engine on so many GPUs."""
    return EngineSpec(python=Path("python"), model="m", sglang_version="0.5.15", tp_size=tp_size)


def test_room_keeps_a_fifth_free() -> None:
    """A fifth of the host, and never less than SGLang's own reserve, is not given away."""
    assert HostRoom(100 * GIB, 100 * GIB).for_host_pool_bytes == 80 * GIB
    assert HostRoom(30 * GIB, 40 * GIB).for_host_pool_bytes == 20 * GIB
    assert HostRoom(30 * GIB, 40 * GIB, reserve_bytes=GIB).for_host_pool_bytes == 22 * GIB
    assert HostRoom(5 * GIB, 100 * GIB).for_host_pool_bytes == 0


@pytest.mark.parametrize(
    ("setting", "ranks", "device_pool", "expected"),
    [
        (Setting(), 4, 18 * GB, 0),
        (Setting(hicache=True, hicache_size=60), 1, None, 60 * GB),
        (Setting(hicache=True, hicache_size=60), 4, None, 240 * GB),
        (Setting(hicache=True), 1, None, None),
        (Setting(hicache=True), 1, 18 * GB, 36 * GB),
        (Setting(hicache=True, hicache_ratio=3.5), 4, 18 * GB, 63 * GB),
    ],
)
def test_host_pool_is_predicted(setting: Setting, ranks: int, device_pool: int | None, expected: int | None) -> None:
    """A size counts for each rank, a ratio against the device pools of all ranks; what is unknown stays so."""
    assert host_pool_bytes(setting, ranks, device_pool_bytes=device_pool) == expected


def test_a_pool_that_does_not_fit_is_refused_with_its_figures() -> None:
    """Nothing is launched that cannot work; need, room and total are in the sentence."""
    setting = Setting(hicache=True, hicache_size=60)
    with pytest.raises(LaunchFailed) as refused:
        check_host_pool(setting, spec(tp_size=2), lambda: HostRoom(90 * GB, 128 * GB), device_pool_bytes=None)
    failure = refused.value.failure
    assert (failure.kind, failure.exit_code) == (FailureKind.HOST_MEMORY_REFUSED, None)
    assert failure.said == (
        "a host pool of 120.0 GB over 2 rank(s) does not fit: 64.4 GB of 128.0 GB can be given away "
        "with 20 % kept free; nothing was launched"
    )
    assert "a smaller host pool" in str(refused.value)


def test_a_pool_that_fits_or_is_unknown_passes() -> None:
    """The last byte of room may be used; a ratio passes as long as no device pool was seen."""

    def room() -> HostRoom:
        return HostRoom(125 * GB, 125 * GB)

    check_host_pool(Setting(hicache=True, hicache_size=100), spec(), room, device_pool_bytes=None)
    check_host_pool(Setting(hicache=True, hicache_ratio=99), spec(), room, device_pool_bytes=None)
    check_host_pool(Setting(), spec(), lambda: HostRoom(0, GB), device_pool_bytes=18 * GB)
    with pytest.raises(LaunchFailed):
        check_host_pool(Setting(hicache=True, hicache_ratio=99), spec(), room, device_pool_bytes=18 * GB)


def test_memory_that_others_hold_is_waited_for() -> None:
    """A pool that fits as soon as others give memory back is launched then."""
    readings = iter([HostRoom(20 * GB, 125 * GB), HostRoom(124 * GB, 125 * GB)])
    check_host_pool(Setting(hicache=True, hicache_size=60), spec(), lambda: next(readings), device_pool_bytes=None)
    assert next(readings, None) is None


def test_ctrl_c_is_heard_while_memory_is_waited_for() -> None:
    """The wait for memory ends as soon as the user asks to stop."""
    with pytest.raises(Interrupted):
        check_host_pool(
            Setting(hicache=True, hicache_size=60),
            spec(),
            lambda: HostRoom(20 * GB, 125 * GB),
            device_pool_bytes=None,
            should_stop=lambda: True,
        )


def test_memory_that_others_keep_is_not_the_settings_fault() -> None:
    """A pool that would fit an idle host says nothing against the setting."""
    with pytest.raises(LaunchFailed) as refused:
        check_host_pool(
            Setting(hicache=True, hicache_size=60),
            spec(),
            lambda: HostRoom(20 * GB, 125 * GB),
            device_pool_bytes=None,
            busy_limit_s=0,
        )
    assert refused.value.failure.kind is FailureKind.HOST_MEMORY_BUSY
    assert refused.value.failure.blame is Blame.MACHINE


@pytest.mark.parametrize(
    ("config", "dtype", "expected"),
    [
        (QWEN2_7B, None, 57_344),
        (QWEN2_7B, "float32", 114_688),
        ({**QWEN2_7B, "torch_dtype": "float32"}, None, 114_688),
        ({**{k: v for k, v in QWEN2_7B.items() if k != "torch_dtype"}, "dtype": "float16"}, None, 57_344),
        ({k: v for k, v in QWEN2_7B.items() if k != "num_key_value_heads"}, None, 401_408),
        ({**QWEN2_7B, "num_key_value_heads": None}, None, 401_408),
        ({**QWEN2_7B, "head_dim": 256}, None, 114_688),
        (DEEPSEEK_V3, None, 70_272),
        ({**QWEN2_7B, "torch_dtype": "fp4"}, None, None),
        ({k: v for k, v in QWEN2_7B.items() if k != "torch_dtype"}, None, None),
        ({k: v for k, v in QWEN2_7B.items() if k != "num_hidden_layers"}, None, None),
        ({**QWEN2_7B, "num_attention_heads": 0}, None, None),
        ({k: v for k, v in DEEPSEEK_V3.items() if k != "qk_rope_head_dim"}, None, None),
        ({}, None, None),
    ],
)
def test_kv_bytes_of_a_token(config: dict[str, Any], dtype: str | None, expected: int | None) -> None:
    """GQA, MHA, MLA and float32 are computed from the model's config; anything else is unknown, never a guess."""
    assert kv_bytes_per_token(config, dtype) == expected


@pytest.mark.contract
def test_kv_bytes_agree_with_a_real_server() -> None:
    """On an H200 this model's pool of 340,362 tokens was printed as 9.09 GiB of K and as much of V."""
    per_token = kv_bytes_per_token(QWEN2_7B)
    assert per_token is not None
    assert round(340_362 * per_token / 2 / GIB, 2) == 9.09


def test_a_model_folder_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with config.json passes, also below the home directory; so does a name of the hub."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    check_model(str(tmp_path / "m"))
    check_model("~/m")
    check_model("Qwen/Qwen3-8B")


@pytest.mark.parametrize("model", ["/nowhere/m", "./nowhere", "~/nowhere"])
def test_a_missing_model_folder_is_named(model: str) -> None:
    """A path that leads nowhere is refused with what to give instead."""
    with pytest.raises(ConfigError) as refused:
        check_model(model)
    assert str(refused.value) == (
        f"--model {model}: no such folder; give a folder with config.json or a hub name like Org/Name"
    )


def test_a_folder_without_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has no config.json is no model, even when its name could be one of the hub."""
    (tmp_path / "Org" / "Name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--model Org/Name: no config\.json in it"):
        check_model("Org/Name")


def test_the_config_is_read(tmp_path: Path) -> None:
    """A local model's config is read; a hub name, or a file, has none here."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_7B))
    assert read_model_config(str(tmp_path)) == QWEN2_7B
    assert read_model_config("Qwen/Qwen3-8B") == {}
    assert read_model_config(str(tmp_path / "config.json")) == {}


@pytest.mark.parametrize("text", ["{", "3", "\xff"])
def test_a_damaged_config_is_named(text: str, tmp_path: Path) -> None:
    """What is no JSON object is refused with the file's name."""
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json: not a JSON object .*; mend or download it again"):
        read_model_config(str(tmp_path))


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A file that the system refuses to open is refused with the system's reason."""
    (tmp_path / "config.json").symlink_to("config.json")
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read \(.+\)"):
        read_model_config(str(tmp_path))


LATE = Surroundings(version=(0, 5, 23))
GPU_80 = DeviceRoom(80 * GIB, 80 * GIB)
ROOMY = HostRoom(900 * GB, 1000 * GB)


def llama(**more: Any) -> EngineSpec:
    """Describe an engine with Llama 3 8B in bf16, whose weights are 16.06 GB."""
    given = {"config": model_config("llama-3-8b"), "around": Surroundings(uses_mla=False), **more}
    return EngineSpec(python=Path("python"), model="Org/Name", sglang_version="0.5.15", **given)


def forecast_of(*, peak_gb: float, error_gb: float, fraction: float = 0.9) -> MemoryForecast:
    """Make a forecast of a device with 16 GB of weights."""
    device = DeviceForecast(
        weights_bytes=16 * GB,
        kv_pool_bytes=50 * GB,
        graphs_bytes=GB,
        activations_bytes=GB,
        kv_bytes_per_token=131_072,
        mem_fraction_static=fraction,
    )
    return MemoryForecast(
        device=device, device_peak_bytes=round(peak_gb * GB), device_peak_error_bytes=round(error_gb * GB)
    )


def test_a_setting_that_fits_is_forecast() -> None:
    """The forecast has both memories, for the record."""
    setting = Setting(hicache=True, hicache_ratio=2, mem_fraction_static=0.5)
    expected = preflight(setting, llama(), read_host=lambda: ROOMY, device=GPU_80, learned=Learned())
    assert expected.device is not None
    assert expected.device.weights_bytes == 16_060_522_496
    assert expected.host_pool_bytes == 2 * expected.device.kv_pool_bytes
    assert expected.device_peak_bytes == expected.device.peak_bytes
    assert MemoryForecast.model_validate_json(expected.model_dump_json()) == expected


def test_weights_that_do_not_fit_their_share() -> None:
    """Case 35: a share that is too small costs no launch to be found."""
    with pytest.raises(LaunchFailed) as refused:
        preflight(Setting(mem_fraction_static=0.1), llama(), read_host=lambda: ROOMY, device=GPU_80, learned=Learned())
    failure = refused.value.failure
    assert (failure.kind, failure.blame) == (FailureKind.KV_POOL_TOO_SMALL, Blame.SETTING)
    assert failure.said.startswith("the weights take 16.1 GB of each device, and --mem-fraction-static 0.1 gives them")


def test_a_device_that_is_too_small() -> None:
    """What is more than the device has, even at the least, is refused; what may fit is launched."""
    room = DeviceRoom(80 * GB, 78 * GB)
    check_device(forecast_of(peak_gb=80, error_gb=3), room)
    check_device(forecast_of(peak_gb=78, error_gb=0), room)
    check_device(MemoryForecast(), room)
    with pytest.raises(LaunchFailed) as refused:
        check_device(forecast_of(peak_gb=80, error_gb=1), room)
    failure = refused.value.failure
    assert (failure.kind, failure.blame) == (FailureKind.GPU_OOM_UNDER_LOAD, Blame.SETTING)
    assert "80.0 GB (+-1.0) under load and has 78.0 GB free" in failure.said


def test_a_study_learns_what_does_not_fit() -> None:
    """A share of 0.97 is tried at first; after a trial that took more than predicted it is refused."""
    setting, learned = Setting(mem_fraction_static=0.97), Learned()
    engine = llama(around=Surroundings(fixed={"chunked-prefill-size": "2048"}, uses_mla=False))
    preflight(setting, engine, read_host=lambda: ROOMY, device=GPU_80, learned=learned)
    for fraction in (0.5, 0.7):
        seen = preflight(
            Setting(mem_fraction_static=fraction), engine, read_host=lambda: ROOMY, device=GPU_80, learned=learned
        )
        assert seen.device is not None
        learned.learn(seen, SeenMemory(device_peak_bytes=seen.device.peak_bytes + 6 * GB))
    with pytest.raises(LaunchFailed, match="under load"):
        preflight(setting, engine, read_host=lambda: ROOMY, device=GPU_80, learned=learned)


def test_the_host_pool_of_a_ratio_is_refused_before_anything_was_seen() -> None:
    """The forecast of the device pool gives the host pool's size, so the first trial already knows."""
    setting = Setting(hicache=True, hicache_ratio=4, mem_fraction_static=0.9)
    host = HostRoom(120 * GB, 128 * GB)
    with pytest.raises(LaunchFailed) as refused:
        preflight(setting, llama(), read_host=lambda: host, device=GPU_80, learned=Learned())
    assert refused.value.failure.kind is FailureKind.HOST_MEMORY_REFUSED
    preflight(setting, llama(), read_host=lambda: host, device=None, learned=Learned())


def test_flags_that_exclude_each_other_are_not_launched() -> None:
    """SGLang would say so after its imports; the user is told which flags."""
    engine = llama(around=Surroundings(fixed={"disable-radix-cache": True}))
    check_rules(Setting(), engine)
    with pytest.raises(LaunchFailed) as refused:
        preflight(Setting(hicache=True), engine, read_host=lambda: ROOMY, device=None, learned=Learned())
    assert refused.value.failure.kind is FailureKind.BAD_FLAG
    assert refused.value.failure.said == ("HiCache and --disable-radix-cache exclude each other; nothing was launched")


def test_the_memory_of_another_machine_is_not_looked_at() -> None:
    """An attached engine's memory is elsewhere; its flags are checked all the same."""
    engine = llama(here=False, around=Surroundings(fixed={"disable-radix-cache": True}))
    small = HostRoom(GB, GB)
    found = preflight(
        Setting(mem_fraction_static=0.01), engine, read_host=lambda: small, device=GPU_80, learned=Learned()
    )
    assert found == MemoryForecast()
    with pytest.raises(LaunchFailed, match="exclude each other"):
        preflight(Setting(hicache=True), engine, read_host=lambda: small, device=None, learned=Learned())


def test_ranks_of_both_kinds_count() -> None:
    """Each data-parallel copy pins its own pools; data-parallel attention shares the GPUs and so the count."""
    size = Setting(hicache=True, hicache_size=60)
    copies = llama(tp_size=2, dp_size=2)
    with pytest.raises(LaunchFailed, match=r"a host pool of 240\.0 GB over 4 rank\(s\)"):
        check_host_pool(size, copies, lambda: HostRoom(128 * GB, 128 * GB), device_pool_bytes=None)
    attention = llama(tp_size=4, dp_size=2, around=Surroundings(fixed={"enable-dp-attention": True}))
    assert (attention.ranks, attention.gpus, attention.attention_ranks) == (4, 4, 2)
    assert (copies.ranks, copies.gpus, copies.attention_ranks) == (4, 4, 2)


@pytest.fixture
def taken() -> Iterator[int]:
    """Hold a port that is below those whose derived port is none, until the test ends."""
    for port in range(41_000, 41_400):
        with socket.socket() as holder:
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                continue
            holder.listen()
            yield port
            return


def test_a_port_that_is_held_is_named(taken: int) -> None:
    """Case 39: SGLang would find out after the model is loaded."""
    with pytest.raises(ConfigError, match=f"port {taken} of 127.0.0.1 cannot be bound; end what listens there"):
        check_port(taken, "127.0.0.1", Surroundings())


def test_the_derived_port_counts_too(taken: int) -> None:
    """0.5.15 takes port + 10,000 for gRPC; 0.5.23 does not."""
    base = taken - 10_000
    with pytest.raises(ConfigError, match=f"port {taken} of 127.0.0.1, which SGLang derives from {base} for gRPC"):
        check_port(base, "127.0.0.1", Surroundings())
    check_port(base, "127.0.0.1", LATE)


@pytest.mark.parametrize("port", [0, -1, LAST_PORT + 1])
def test_what_is_no_port(port: int) -> None:
    """A number outside of 1 to 65,535 is refused."""
    with pytest.raises(ConfigError, match="no such port; give one from 1 to 65535"):
        check_port(port, "127.0.0.1", LATE)


def test_a_derived_port_that_is_none() -> None:
    """Above 55,535 the derived port is no port."""
    with pytest.raises(ConfigError, match="gRPC port 65536 from it, which is no port; give one up to 55535"):
        check_port(55_536, "127.0.0.1", Surroundings())


@pytest.mark.parametrize("told", [[None], [0], [5 * GB, 5 * GB], [5 * GB, 5 * GB + 1000]])
def test_swap_that_does_not_move_is_no_matter(told: list[int | None]) -> None:
    """Full or hidden swap says nothing; only pages that move cost time."""
    check_swap(lambda: told.pop(0), watch_s=0.01)


def test_a_machine_that_swaps_gets_no_pinned_pool() -> None:
    """It is named with how much it swaps, before anything is launched."""
    told = [5 * GB, 6 * GB]
    with pytest.raises(ConfigError, match=r"this machine swaps \d+ MB/s, and a host pool is pinned memory"):
        check_swap(lambda: told.pop(0), watch_s=0.01)
