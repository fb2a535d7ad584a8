"""What the CPU engine says of itself agrees with what its shim does."""

from __future__ import annotations

from harness.engine.cpu import engine


def test_reserve_is_that_of_the_shim() -> None:
    """The shim runs in the engine's own environment, so its constant is compared as text."""
    device = (engine.HERE / "shim" / "hicache_cpu_shim" / "device.py").read_text(encoding="utf-8")
    assert "HOST_RESERVE_BYTES = 1 << 30\n" in device
    assert engine.HOST_RESERVE_BYTES == 1 << 30
