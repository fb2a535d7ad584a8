"""An engine that somebody else runs, reached by URL: measured as it is, or restarted by the user's own command."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from harness.engine import ledger
from harness.engine.effective import differences
from harness.engine.failure import Failure, FailureKind, LaunchFailed, classify, last_lines
from harness.engine.flag_source import number_of
from harness.engine.handle import LaunchContext, LaunchPlan
from harness.engine.ledger import Ledger
from harness.engine.model_shape import architecture, read_model_config, text_config
from harness.engine.process import start_owned
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import Surroundings
from harness.errors import ConfigError, Interrupted
from scenarios.strict import StrictModel

POLL_S = 0.1
CONNECT_S = 2.0
SETTING_VERSION = 1
PORTS = {"http": 80, "https": 443}


class RestartHook(StrictModel):
    """The user's command that restarts the engine with other flags.

    It gets the flags either after its own words or as one JSON object on stdin: `schema_version`, `base_url`, `flags`
    (a list of words) and `setting` (by name). It exits with 0 once the old engine is gone; the new one may still be
    loading. Any other code is a failed launch, classed by what the command printed, so it should print the engine's
    log.
    """

    command: tuple[str, ...] = Field(min_length=1)
    hand_over: Literal["append", "json"] = "append"
    timeout_s: float = Field(default=900.0, gt=0)

    def argv(self, flags: Sequence[str]) -> list[str]:
        """Build the command: a list, never a shell string."""
        return [*self.command, *flags] if self.hand_over == "append" else list(self.command)

    def stdin(self, setting: Setting, flags: Sequence[str], base_url: str) -> bytes:
        """Return what the command reads; empty when the flags are among its words."""
        if self.hand_over == "append":
            return b""
        said: dict[str, Any] = {"schema_version": SETTING_VERSION, "base_url": base_url, "flags": list(flags)}
        return json.dumps({**said, "setting": dict(setting.values())}).encode() + b"\n"


class Attachment(StrictModel):
    """Where the engine is, and how it is restarted; without a hook it is only measured."""

    url: str
    restart: RestartHook | None = None

    @model_validator(mode="after")
    def _is_an_address(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{self.url} is no address; give http://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("a key must not stand in an address, which is kept in the results; leave it out")
        if parts.path not in ("", "/") or parts.query:
            raise ValueError(f"{self.url}: give the server's address alone, without a path")
        return self

    @property
    def base_url(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")

    @property
    def host(self) -> str:
        """The host."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def is_near(self) -> bool:
        """Whether it is an address of loopback, where the engine has this machine's memory, but for a tunnel."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"


@dataclass(frozen=True)
class AttachLauncher:
    """Attaches to one engine for every trial; `flags` are those of every launch, which the hook gets too."""

    to: Attachment
    flags: tuple[str, ...] = ()
    model: str = ""

    def command(self, setting: Setting) -> tuple[str, ...]:
        """Return the user's own restart; of a hook that takes its flags on stdin, the launch that they describe.

        Without a hook the setting is what runs already, and there is nothing to run.
        """
        hook = self.to.restart
        if hook is None:
            return ()
        flags = [*self.flags, *setting.flags()]
        if hook.hand_over == "json":
            return ("python", "-m", "sglang.launch_server", "--model-path", self.model, *flags)
        return tuple(hook.argv(flags))

    def plan(self, setting: Setting) -> LaunchPlan:
        """Plan the restart; without a hook nothing is run."""
        flags = [*self.flags, *setting.flags()]
        hook = self.to.restart
        return LaunchPlan(
            argv=tuple(hook.argv(flags)) if hook else (),
            command=self.command(setting),
            port=self.to.port,
            base_url=self.to.base_url,
            stdin=hook.stdin(setting, flags, self.to.base_url) if hook else b"",
            log_tells_phases=False,
        )

    def launch(self, plan: LaunchPlan, context: LaunchContext) -> AttachedEngine:
        """Let the hook restart the engine, if there is one; raise LaunchFailed with what the hook said."""
        context.log_path.write_bytes(b"")
        if self.to.restart is not None:
            run_hook(plan.argv, plan.stdin, context, timeout_s=self.to.restart.timeout_s)
        return AttachedEngine(self.to, context.log_path)

    def end_orphans(self, book: Ledger) -> int:
        """End a hook that an earlier run left; the engine itself is not ours."""
        return book.end_orphans()


class AttachedEngine:
    """An engine that is not ours: it is never signalled and never stopped."""

    def __init__(self, to: Attachment, log_path: Path) -> None:
        self._to, self._log_path = to, log_path

    @property
    def exit_code(self) -> None:
        """Unknown: a death shows as requests that are not answered."""
        return None

    @property
    def log_text(self) -> str:
        """What the restart hook printed; the engine's own log is not seen."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def pids(self) -> list[int]:
        """Return none: its processes may be on another machine."""
        return []

    def listens(self) -> bool:
        """Whether somebody answers at the address."""
        try:
            with socket.create_connection((self._to.host, self._to.port), timeout=CONNECT_S):
                return True
        except OSError:
            return False

    def pin(self, cpus: Sequence[int]) -> None:
        """Leave it where it is."""

    def stop(self, *, term_s: float = 30.0, must_hurry: Callable[[], bool] = lambda: False) -> None:
        """Leave it running: it is not ours to end."""
        return


def run_hook(argv: Sequence[str], stdin: bytes, context: LaunchContext, *, timeout_s: float) -> None:
    """Run a restart hook to its end.

    What a hook that succeeds leaves running is the engine, and stays; of one that fails, nothing is left. Raises
    LaunchFailed for a code that is not 0 or after `timeout_s`, Interrupted when it is to stop.
    """
    hook, owned = start_owned(argv, stdin=subprocess.PIPE, log_path=context.log_path, book=context.book)
    try:
        _feed(hook, stdin)
        _wait(hook, context.log_path, timeout_s, context.should_stop)
    except BaseException:
        ledger.end(owned, term_s=2.0)
        hook.wait()
        raise
    finally:
        context.book.clear()


def running_setting(server_info: Mapping[str, Any]) -> Setting:
    """Return the canonical setting that an engine says it runs: what is measured when nothing is restarted."""
    known = {
        name: server_info[name]
        for name in Setting.model_fields
        if name in server_info and server_info[name] not in (None, 0)
    }
    on = bool(server_info.get("enable_hierarchical_cache"))
    known = {name: value for name, value in known.items() if on or not name.startswith("hicache_")}
    if "hicache_size" in known:
        known.pop("hicache_ratio", None)  # a size wins over the ratio, which SGLang shows all the same
    return Setting.parse({**known, "hicache": on}, where="the engine's /server_info").canonical()


def attached_spec(server_info: Mapping[str, Any], model: str, *, near: bool = False) -> EngineSpec:
    """Describe an engine that is not ours by what it says of itself; `model` is where its tokenizer is here."""
    version = str(server_info.get("version") or "")
    config = read_model_config(model)
    dp_attention = bool(server_info.get("enable_dp_attention"))
    device = str(server_info.get("device") or "cuda")
    around = Surroundings(
        version=number_of(version),
        platform="cpu" if device == "cpu" else "cuda",
        fixed={"enable-dp-attention": True} if dp_attention else {},
        architecture=architecture(config),
        uses_mla="kv_lora_rank" in text_config(config) if config else None,
    )
    return EngineSpec(
        python=Path(sys.executable),
        model=model,
        sglang_version=version,
        device=device,
        tp_size=int(server_info.get("tp_size") or 1),
        dp_size=int(server_info.get("dp_size") or 1),
        around=around,
        config=config,
        here=False,
        near=near,
    )


def check_restarted(setting: Setting, server_info: Mapping[str, Any]) -> None:
    """Raise LaunchFailed when the engine does not run `setting`: a measurement of it would be another setting's."""
    for found in differences(setting, server_info):
        said = (
            f"the engine runs {found.flag} {found.got} and not {found.asked}: the restart hook has to pass on every "
            "flag that it is given, and to end only once the old engine is gone"
        )
        raise LaunchFailed(Failure(FailureKind.BAD_FLAG, said, None))


def check_hook(hook: RestartHook) -> None:
    """Raise ConfigError when the hook's program does not exist, before anything is measured."""
    if shutil.which(hook.command[0]) is None:
        raise ConfigError(f"restart hook {hook.command[0]}: no such program; give its path")


def _feed(hook: subprocess.Popen[bytes], stdin: bytes) -> None:
    if hook.stdin is None:
        return
    try:
        hook.stdin.write(stdin)
        hook.stdin.close()
    except BrokenPipeError:
        pass  # a hook that needs no stdin may end before it is written


def _wait(hook: subprocess.Popen[bytes], log_path: Path, timeout_s: float, should_stop: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout_s
    while hook.poll() is None:
        if should_stop():
            raise Interrupted
        if time.monotonic() > deadline:
            text = _read(log_path)
            said = f"the restart hook had not ended after {timeout_s:g} s"
            raise LaunchFailed(Failure(FailureKind.SLOW_START, said, None, last_lines(text)))
        time.sleep(POLL_S)
    if hook.returncode != 0:
        otherwise = f"the restart hook ended with {hook.returncode}"
        raise LaunchFailed(classify(_read(log_path), hook.returncode, otherwise=otherwise))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
