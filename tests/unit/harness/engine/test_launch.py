"""The usual way to start an engine: its port and the command for users."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.engine.launch import ProcessLauncher
from harness.engine.process import free_port
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.errors import ConfigError


def launcher(port: int | None) -> ProcessLauncher:
    """Make a launcher of an engine on `port`."""
    return ProcessLauncher(EngineSpec(python=Path("python"), model="m", sglang_version="0.5.15", port=port))


def test_a_given_port_is_taken() -> None:
    """Every launch listens there, and the command for users has SGLang's own."""
    port = free_port()
    plan = launcher(port).plan(Setting())
    assert (plan.port, plan.base_url) == (port, f"http://127.0.0.1:{port}")
    assert plan.argv[plan.argv.index("--port") + 1] == str(port)
    assert plan.command[plan.command.index("--port") + 1] == "30000"
    assert plan.argv[: plan.argv.index("--port")] == plan.command[: plan.command.index("--port")]


def test_a_given_port_that_is_held_is_named_before_a_launch() -> None:
    """SGLang would notice only after it has loaded."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1"):
        launcher(port).plan(Setting())


def test_without_one_a_free_port_is_found() -> None:
    """Each launch looks anew."""
    assert launcher(None).plan(Setting()).port >= 20_000
