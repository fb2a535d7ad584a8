"""`hicache-tune verify`: is HiCache on, and does it pay, on a server that runs or on one launched for it?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.engine.api_key import api_key_headers
from scenarios.errors import ConfigError
from tuning.budget import parse_duration
from tuning.cli.server import checked_url
from tuning.space import Engine

if TYPE_CHECKING:
    from harness.engine.client import EngineClient
    from harness.engine.handle import Launcher
    from harness.engine.spec import EngineSpec
    from harness.stopping import StopFlag
    from harness.verify.break_even import BreakEven
    from harness.verify.procedure import Verification

SERVER = Group("Which server", sort_key=0)
COST = Group("What it may cost", sort_key=1)
OK, NOT_PROVEN, INTERRUPTED = 0, 2, 130


def verify(
    *,
    url: Annotated[str | None, Parameter(group=SERVER, help="Address of a running SGLang server.")] = None,
    model: Annotated[
        str | None, Parameter(group=SERVER, help="Launch a server with this model, HiCache on, and verify that.")
    ] = None,
    engine: Annotated[
        Literal["local", "docker", "cpu"],
        Parameter(group=SERVER, help="What to launch: `local`, a `docker` container, or the real SGLang on `cpu`."),
    ] = "local",
    image: Annotated[str | None, Parameter(group=SERVER, help="Docker image that has SGLang.")] = None,
    engine_python: Annotated[Path | None, Parameter(group=SERVER, help="Python that has SGLang.")] = None,
    engine_arg: Annotated[
        tuple[str, ...], Parameter(group=SERVER, negative="", help="Further engine flag, as --engine-arg=--flag=value.")
    ] = (),
    api_key_env: Annotated[
        str | None, Parameter(group=SERVER, help="Environment variable that holds the server's API key.")
    ] = None,
    tokens: Annotated[
        int, Parameter(group=COST, validator=Number(gte=64), help="Length of the longest prompts.")
    ] = 2000,
    probes: Annotated[int, Parameter(group=COST, validator=Number(gte=5, lte=100), help="Prompts that are timed.")] = 8,
    fill_tokens: Annotated[
        int, Parameter(group=COST, validator=Number(gte=1), help="Most tokens sent to fill the device, which evicts.")
    ] = 2_000_000,
    seconds: Annotated[str, Parameter(group=COST, help="Most time, as 60s or 5m.")] = "60s",
    json: Annotated[bool, Parameter(negative="", help="Print the result as JSON on stdout.")] = False,
) -> int:
    """Prove in about a minute whether HiCache is on and pays: cold, device and host TTFT of the same prompts."""
    from harness.stopping import StopFlag
    from harness.verify.judgement import Answer
    from harness.verify.procedure import Limits
    from harness.verify.procedure import verify as run

    console = Console(stderr=True)
    limits = Limits(probes, tokens, fill_tokens, parse_duration(seconds, "--seconds"))
    stop = StopFlag()
    with stop.on_signals(), console.status("...") as status:
        headers = api_key_headers(api_key_env)
        launch = _Launch(model, engine, engine_python, image, engine_arg)
        with _server(url, headers, launch, stop, status.update) as control:
            found = run(control, headers=headers, limits=limits, say=status.update, should_stop=stop.should_stop)
    _show(console, found)
    if json:
        sys.stdout.write(found.model_dump_json(indent=1) + "\n")
    if stop.should_stop():
        return INTERRUPTED
    proven = (Answer.PAYS, Answer.DOES_NOT_PAY, Answer.OFF)
    return OK if found.judgement.answer in proven else NOT_PROVEN


@dataclass(frozen=True)
class _Launch:
    """What is launched to be verified, as the user gave it."""

    model: str | None
    engine: Engine
    python: Path | None
    image: str | None
    arguments: Sequence[str]


@contextmanager
def _server(
    url: str | None,
    headers: Mapping[str, str],
    launch: _Launch,
    stop: StopFlag,
    say: Callable[[str], None],
) -> Iterator[EngineClient]:
    """Give a client of the server that is named, or of one that is launched for as long as the block runs."""
    from harness.engine.client import EngineClient
    from harness.engine.setting import Setting
    from harness.verify.server import launched

    if url is not None:
        if launch.model is not None or launch.engine != "local":
            raise ConfigError("--url names a server that runs; leave out --model and --engine, which launch one")
        client = EngineClient(checked_url(url), headers)
        try:
            yield client
        finally:
            client.close()
        return
    spec = _spec(launch)
    with launched(
        spec,
        Setting(hicache=True).canonical(),
        say=say,
        should_stop=stop.should_stop,
        launcher=lambda folder: _launcher(launch, spec, folder),
    ) as client:
        yield client


def _spec(launch: _Launch) -> EngineSpec:
    from tuning.engines import cpu_spec, default_model, docker_spec, local_spec

    if launch.image is not None and launch.engine != "docker":
        raise ConfigError("--image is for --engine docker; leave it out, or give --engine docker")
    found = launch.model or default_model(launch.engine)
    if found is None:
        raise ConfigError("give --url of a running server, or --model to launch one, or --engine cpu")
    if launch.engine == "cpu":
        return cpu_spec(found, launch.arguments)
    if launch.engine == "docker":
        return docker_spec(found, launch.image, launch.arguments)
    return local_spec(found, launch.python, launch.arguments)


def _launcher(launch: _Launch, spec: EngineSpec, folder: Path) -> Launcher | None:
    from harness.engine.docker import DockerLauncher
    from tuning.engines import image_of

    if launch.engine != "docker":
        return None
    return DockerLauncher(spec, image_of(launch.image, spec.model), folder)


def _show(console: Console, found: Verification) -> None:
    table = Table(show_header=False, box=None)
    for name, value in _rows(found):
        table.add_row(name, value)
    console.print(table)
    console.print(f"\n[bold]{escape(found.judgement.sentence)}[/]")


def _rows(verification: Verification) -> list[tuple[str, str]]:
    """Name the figures for people, in the order in which they matter."""
    found, counters = verification.judgement, verification.counters
    rows = [
        ("HiCache, says the engine", "on" if verification.hicache else "off"),
        ("device KV pool", f"{verification.device_pool_tokens:,} tokens"),
        ("prompts", f"{verification.prompt_tokens:,} tokens, and some shorter"),
        ("sent to fill the device", f"{verification.fill_tokens:,} tokens" + _cut(verification)),
        ("TTFT cold", f"{found.cold_s * 1000:.0f} ms"),
        ("TTFT from the device", _ms(found.device_s)),
        ("TTFT from the host", _ms(found.host_s)),
        ("reloading is faster from", _break_even(found.break_even)),
        ("came back from the host", f"{found.host_share:.0%} of the prompts"),
    ]
    if counters is not None:
        rows.append(("reloaded, by the engine's counters", _count(counters.load_back_tokens)))
        rows.append(("evicted, by the engine's counters", _count(counters.evicted_tokens)))
    return rows


def _cut(verification: Verification) -> str:
    return "" if verification.fill_complete else " (a limit came before the pool was full)"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def _break_even(found: BreakEven | None) -> str:
    return (
        "-" if found is None or found.tokens is None else f"{max(found.tokens, found.shortest_tokens):,.0f} tokens on"
    )


def _count(tokens: int | None) -> str:
    return "not told" if tokens is None else f"{tokens:,} tokens"
