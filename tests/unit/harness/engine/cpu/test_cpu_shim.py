"""The parts of the shim that need no torch: patching, stand-ins, and the virtual device."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.engine.cpu.shim.hicache_cpu_shim import device, patching, slowdown, stubs


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Undo what a test does to the import system."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_patch_comes_before_anybody_copies_the_name(tmp_path: Path) -> None:
    """A module that imports a function from a patched one gets the replacement."""
    (tmp_path / "shim_target.py").write_text("def answer(): return 'original'\nkept = 1\n")
    (tmp_path / "shim_user.py").write_text("from shim_target import answer, kept\n")
    (tmp_path / "shim_patch.py").write_text("def change(module): module.answer = lambda: 'replaced'\n")
    patching.install({"shim_target": "shim_patch:change"})
    user = importlib.import_module("shim_user")
    assert (user.answer(), user.kept) == ("replaced", 1)


def test_a_patch_is_not_loaded_before_its_module() -> None:
    """Arranging a patch imports nothing."""
    patching.install({"shim_absent": "shim_absent_patch:change"})
    with pytest.raises(ModuleNotFoundError, match="shim_absent"):
        importlib.import_module("shim_absent")


def test_a_stand_in_can_be_imported_like_the_real_thing() -> None:
    """Decorators, constants, base classes and submodules of an absent package are there."""
    stubs.install(["shim_triton"])
    triton = importlib.import_module("shim_triton")
    language = importlib.import_module("shim_triton.language")

    def kernel() -> str:
        return "unchanged"

    assert triton.jit(kernel) is kernel
    assert triton.jit(do_not_specialize=["x"])(kernel) is kernel
    assert language.InterpolationMode.BICUBIC == "InterpolationMode.BICUBIC"
    assert issubclass(type("Sub", (language.Thing,), {}), language.Thing)
    with pytest.raises(AttributeError):
        _ = triton.__wrapped__


def test_a_real_package_wins_over_its_stand_in(tmp_path: Path) -> None:
    """Only what is absent gets a stand-in."""
    (tmp_path / "shim_present.py").write_text("real = True\n")
    stubs.install(["shim_present"])
    assert importlib.import_module("shim_present").real is True


def test_triton_without_a_driver_says_what_triton_says() -> None:
    """SGLang decides by this error that there is no GPU."""
    assert importlib.util.find_spec("triton") is None
    stubs.install(["triton"])
    triton = importlib.import_module("triton")
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = triton.runtime.driver


def test_the_device_is_charged_for_weights_and_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory is the fixed size less the loaded parameters and the KV pool, and the methods still work."""
    monkeypatch.setenv("HICACHE_TUNE_CPU_DEVICE_MIB", "100")
    monkeypatch.setattr(device, "_used_bytes", 0)

    class Loader:
        def load_model(self, *, config: str) -> SimpleNamespace:
            parameters = [SimpleNamespace(nbytes=30 << 20), SimpleNamespace(nbytes=20 << 20)]
            return SimpleNamespace(config=config, parameters=lambda: parameters)

    class Pool:
        def __init__(self, size: int) -> None:
            self.size = size

        def get_kv_size_bytes(self) -> tuple[int, int]:
            return self.size << 20, self.size << 20

    other = type("Other", (), {"load_model": lambda self: None})
    device.patch_loader(SimpleNamespace(DefaultModelLoader=Loader, DummyModelLoader=other))
    device.patch_memory_pool(SimpleNamespace(MHATokenToKVPool=Pool))
    free = [device.available_gib("cpu", 0, distributed=False)]
    assert Loader().load_model(config="kept").config == "kept"
    free.append(device.available_gib("cpu", 0))
    assert Pool(size=10).size == 10
    free.append(device.available_gib("cpu", 0))
    assert [gib * 1024 for gib in free] == pytest.approx([100, 50, 30])


def test_sglang_asks_the_virtual_device() -> None:
    """Both questions about the device's memory are answered by the shim."""
    utils = SimpleNamespace(get_available_gpu_memory=None, get_cpu_memory_capacity=lambda: 24_000.0)
    device.patch_utils(utils)
    assert utils.get_available_gpu_memory is device.available_gib
    assert utils.get_cpu_memory_capacity() is None


def test_a_slower_prefill_leaves_all_else_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a prefill waits, for as much longer as was asked; what the model returns is its own."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, perf_counter=iter([10.0, 12.0, 20.0]).__next__)
    monkeypatch.setattr(slowdown, "time", clock)
    forward = slowdown.slowed(lambda _runner, batch, twice=1: (batch.name, twice), 4.0)
    prefill, decode = (
        SimpleNamespace(name=name, forward_mode=SimpleNamespace(is_extend=lambda name=name: name == "prefill"))
        for name in ("prefill", "decode")
    )
    assert forward(None, prefill, twice=2) == ("prefill", 2)
    assert forward(None, decode) == ("decode", 1)
    assert waited == [6.0]


@pytest.mark.parametrize(("asked", "is_slowed"), [(None, False), ("1", False), ("2.5", True)])
def test_prefills_are_slowed_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, is_slowed: bool
) -> None:
    """Without the variable SGLang's own function stays."""
    if asked is not None:
        monkeypatch.setenv("HICACHE_TUNE_CPU_PREFILL_FACTOR", asked)
    forward = object.__repr__
    runner = SimpleNamespace(ModelRunner=SimpleNamespace(forward=forward))
    slowdown.patch(runner)
    assert (runner.ModelRunner.forward is not forward) == is_slowed
