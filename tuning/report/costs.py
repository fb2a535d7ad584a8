"""What the compared settings leave free, and what their reloads cost: the same rows in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from harness.reload_cost import AddedTtft, Estimate, ReloadCost, reload_cost
from harness.store import TrialRecord
from scenarios.strict import StrictModel
from tuning.report import words
from tuning.report.played import Played

NOTE = (
    "Seconds a token are fitted on the client's records under load, so they hold the waiting behind others; intervals "
    "are 95 %. Twice the concurrency is a guess from how memory grew in the ramp of the load; a dash is not known."
)


class Cost(StrictModel):
    """One setting's headroom and reloads, all of its trials taken together. None is not known, never zero."""

    role: str
    label: str
    trial_numbers: tuple[int, ...]
    device_headroom_bytes: int | None
    """The least of its trials, as all of these."""
    host_headroom_bytes: int | None
    cgroup_headroom_bytes: int | None
    device_double_bytes: int | None
    """At twice the concurrency."""
    host_double_bytes: int | None
    reload: ReloadCost | None


def costs(settings: Sequence[Played]) -> tuple[Cost, ...]:
    """Sum up headroom and reloads of each setting; of a load that was not sustained nothing is fitted."""
    return tuple(_cost(setting) for setting in settings)


def costs_table(found: Sequence[Cost]) -> Table:
    """Show a column for each setting."""
    table = Table(
        title="Headroom and reload cost", title_justify="left", caption=NOTE, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("", min_width=16, overflow="fold")
    for cost in found:
        table.add_column(cost.role, justify="right", overflow="fold")
    for name, cells in cost_rows(found):
        table.add_row(Text(name), *map(Text, cells))
    return table


def cost_rows(found: Sequence[Cost]) -> list[tuple[str, list[str]]]:
    """Return the rows that say something of any setting: what it is, then a cell for each setting."""
    columns = [dict(_cells(cost)) for cost in found]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, [column.get(name, words.UNKNOWN) for column in columns]) for name in names]
    return [row for row in rows if any(cell != words.UNKNOWN for cell in row[1])]


def _cost(setting: Played) -> Cost:
    records = setting.records
    headrooms = [record.headroom for record in records if record.headroom]
    return Cost(
        role=setting.role,
        label=setting.label,
        trial_numbers=tuple(record.number for record in records),
        device_headroom_bytes=_least(h.device_bytes for h in headrooms),
        host_headroom_bytes=_least(h.host_bytes for h in headrooms),
        cgroup_headroom_bytes=_least(h.cgroup_bytes for h in headrooms),
        device_double_bytes=_least(h.device_double_bytes for h in headrooms),
        host_double_bytes=_least(h.host_double_bytes for h in headrooms),
        reload=_reload(setting, records),
    )


def _reload(setting: Played, records: Sequence[TrialRecord]) -> ReloadCost | None:
    deltas = [record.cache for record in records if record.cache]
    known = [record.reload for record in records if record.reload]
    if not deltas or not any(delta.load_back_tokens for delta in deltas):
        return None
    return reload_cost(
        setting.counted if setting.sustained else setting.counted.iloc[:0],
        *deltas,
        kv_bytes_per_token=next((cost.kv_bytes_per_token for cost in known), None),
        pcie_ceiling_bytes_per_s=max((c.pcie_ceiling_bytes_per_s or 0.0 for c in known), default=0.0) or None,
    )


def _cells(cost: Cost) -> Iterator[tuple[str, str]]:
    yield "least device memory free, GiB", words.gib(cost.device_headroom_bytes)
    yield "at twice the concurrency", words.gib(cost.device_double_bytes)
    yield "least host memory free, GiB", words.gib(cost.host_headroom_bytes)
    yield "host at twice the concurrency", words.gib(cost.host_double_bytes)
    yield "left to the cgroup limit, GiB", words.gib(cost.cgroup_headroom_bytes)
    if cost.reload is not None:
        yield from reload_cells(cost.reload)


def reload_cells(reload: ReloadCost) -> Iterator[tuple[str, str]]:
    """Yield what reloads cost, figure by figure: its name and its value in words."""
    yield "reloads", words.count(reload.reloads)
    yield "reloaded tokens", words.count(reload.tokens)
    yield "reloaded GB", _scaled(reload.bytes, 1e9)
    yield "GB/s while copying", _of_ceiling(reload.bytes_per_s, reload.pcie_ceiling_bytes_per_s)
    yield "GB/s as clients see it", _estimate(reload.felt_bytes_per_s, 1e9)
    yield "PCIe ceiling, GB/s", _scaled(reload.pcie_ceiling_bytes_per_s, 1e9)
    yield "compute, us a token", _estimate(reload.compute_s_per_token, 1e-6)
    yield "reload, us a token", _estimate(reload.reload_s_per_token, 1e-6)
    yield "reload, fixed ms", _estimate(reload.reload_fixed_s, 1e-3)
    yield "break-even, tokens", _break_even(reload)
    for band in reload.added_ttft:
        yield f"ms added by {_band(band)} tokens, P50 / P99", f"{1e3 * band.p50_s:+.0f} / {1e3 * band.p99_s:+.0f}"
    yield "evictions blocked, s", _eviction(reload)
    yield (
        "written for each read back",
        words.UNKNOWN if reload.write_amplification is None else (f"{reload.write_amplification:.1f}"),
    )


def _scaled(value: float | None, unit: float) -> str:
    return words.UNKNOWN if value is None else _short(value / unit)


def _estimate(found: Estimate | None, unit: float) -> str:
    if found is None:
        return words.UNKNOWN
    return f"{_scaled(found.value, unit)} [{_scaled(found.low, unit)}, {_scaled(found.high, unit)}]"


def _short(value: float) -> str:
    """Write three digits, and never a power of ten."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _of_ceiling(bytes_per_s: float | None, ceiling: float | None) -> str:
    share = f" ({bytes_per_s / ceiling:.0%} of the ceiling)" if bytes_per_s and ceiling else ""
    return _scaled(bytes_per_s, 1e9) + share


def _break_even(reload: ReloadCost) -> str:
    if reload.break_even_tokens is None:
        return words.UNKNOWN
    high = "any" if reload.break_even_high_tokens is None else f"{reload.break_even_high_tokens:,.0f}"
    return f"{reload.break_even_tokens:,.0f} [{reload.break_even_low_tokens or 0:,.0f}, {high}]"


def _band(band: AddedTtft) -> str:
    return f"over {band.from_tokens}" if band.to_tokens is None else f"{band.from_tokens + 1}-{band.to_tokens}"


def _eviction(reload: ReloadCost) -> str:
    if reload.eviction_s is None:
        return words.UNKNOWN
    return f"{reload.eviction_s:.3g} ({words.share(reload.eviction_share)} of the load)"


def _least(values: Iterable[int | None]) -> int | None:
    """Return the least; None when one trial does not know its own."""
    found = list(values)
    known = [value for value in found if value is not None]
    return min(known) if known and len(known) == len(found) else None
