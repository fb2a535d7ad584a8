"""`hicache-tune diagnose`: what a running server suffers from, by watching it and nothing else."""

from __future__ import annotations

import ipaddress
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.engine.api_key import api_key_headers
from tuning.cli.server import checked_url
from tuning.cli.target import ABOVE_0

if TYPE_CHECKING:
    from harness.diagnose.causes import Diagnosis
    from harness.diagnose.seen import Moment

OK, INTERRUPTED = 0, 130
STYLES = {"fault": "bold red", "advice": "yellow", "healthy": "green"}


def diagnose(
    *,
    url: str,
    minutes: Annotated[float, Parameter(validator=ABOVE_0)] = 2.0,
    api_key_env: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Watch a running server's metrics, sending nothing, and name what it most likely suffers from.

    Parameters
    ----------
    url
        Address of the SGLang server, launched with --enable-metrics.
    minutes
        How long to watch.
    api_key_env
        Environment variable that holds the server's API key.
    json
        Print the findings as JSON on stdout.
    """
    from harness.diagnose.causes import Diagnosis
    from harness.diagnose.causes import diagnose as find
    from harness.diagnose.figures import Figures
    from harness.diagnose.seen import watch
    from harness.engine.client import EngineClient
    from harness.stopping import StopFlag

    console, stop = Console(stderr=True), StopFlag()
    address = checked_url(url)
    control = EngineClient(address, api_key_headers(api_key_env))
    with stop.on_signals(), console.status("watching ...") as status:
        try:
            seen = watch(
                control,
                60 * minutes,
                local=_is_loopback(address),
                say=lambda moment: status.update(_moment(moment)),
                should_stop=stop.should_stop,
            )
        finally:
            control.close()
    found = Diagnosis(
        base_url=address,
        seconds=round(seen.seconds, 1),
        requests=seen.delta.requests,
        hit_rate=seen.delta.hit_rate,
        figures=Figures.of(seen),
        findings=find(seen),
    )
    _show(console, found)
    if json:
        sys.stdout.write(found.model_dump_json(indent=1) + "\n")
    return INTERRUPTED if stop.should_stop() else OK


def _show(console: Console, found: Diagnosis) -> None:
    rate = "not told" if found.hit_rate is None else f"{found.hit_rate:.0%}"
    console.print(f"{found.requests or 0} requests in {found.seconds:.0f} s, hit rate {rate}")
    table = Table(show_header=False, box=None)
    for name, value in found.figures.rows():
        table.add_row(name, value)
    console.print(table)
    if not found.findings:
        console.print("[bold]Nothing stands out.[/]")
    for finding in found.findings:
        console.print(f"\n[{STYLES[finding.weight]}]{finding.name}[/]: {escape(finding.cause)}")
        console.print(f"  seen: {escape(finding.evidence)}")
        console.print(f"  next: {escape(finding.next_step)}")


def _moment(moment: Moment) -> str:
    gauges = moment.gauges
    usage = f", KV pool {gauges.token_usage:.0%}" if gauges.token_usage is not None else ""
    fill = f", host pool {gauges.host_fill:.0%}" if gauges.host_fill is not None else ""
    return f"running {gauges.running_requests or 0:.0f}, queued {gauges.queued_requests or 0:.0f}{usage}{fill}"


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
