"""The plots of an analysis, each one function from what was counted to a figure, or to why there is none."""

from __future__ import annotations

import plotly.graph_objects as go

from scenarios.analysis import Analysis, CacheUse
from tuning.report.figure import BEST, DROPPED, OFF, ON, STORAGE, Plot, escaped, finished, left_out


def all_plots(analysis: Analysis) -> list[Plot]:
    """Draw every plot of the page, in its order."""
    cache = analysis.cache
    if cache is None:
        return [arrivals(analysis), left_out("Hit rate", "the source has neither block ids nor text")]
    return [
        hit_rate(analysis, cache),
        pools(cache),
        working_set(cache),
        reuse_time(cache),
        reuse_distance(cache),
        arrivals(analysis),
    ]


def hit_rate(analysis: Analysis, cache: CacheUse) -> Plot:
    """Draw the hit rate against the size of the cache, with the sizes that are marked."""
    title = "Hit rate by cache size"
    curve = cache.curve
    if len(curve.sizes_tokens) < 2:
        return left_out(title, "no prompt token was seen before, so caches of every size hit nothing")
    figure = go.Figure()
    sizes = [*curve.sizes_tokens[1:], max(curve.unique_tokens, curve.sizes_tokens[-1])]
    rates = [*curve.hit_rates[1:], curve.hit_rates[-1]]
    sizes_gb = [f", {gb:,.1f} GB a rank" if (gb := analysis.machine.gb(size)) is not None else "" for size in sizes]
    figure.add_scatter(
        x=sizes, y=rates, name="LRU", line={"color": BEST, "width": 3, "shape": "hv"}, text=sizes_gb,
        hovertemplate="%{y:.1%} with %{x:,.0f} tokens%{text}<extra></extra>", showlegend=False,
    )  # fmt: skip
    marks = [(mark.together_tokens, mark.pool or "device pool", ON if mark.pool else OFF) for mark in cache.marks]
    for place, (tokens, name, colour) in enumerate((*marks, (cache.knee_tokens, "knee", DROPPED))):
        figure.add_scatter(
            x=[tokens, tokens], y=[0, curve.at(tokens)], mode="lines+markers", name=escaped(name),
            line={"color": colour, "width": 2, "dash": ("solid", "dash", "dot", "dashdot", "longdash")[place % 5]},
            marker={"size": [0, 9], "color": colour}, hovertemplate=f"{escaped(name)}: %{{y:.1%}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(type="log", title="tokens that the cache holds (log scale)", tickformat="~s")
    figure.update_yaxes(title="share of prompt tokens", tickformat=".0%", rangemode="tozero")
    how = "Exact" if cache.sample_rate == 1 else f"From a sample of {cache.sample_rate:.2%} of the blocks"
    return finished(title, f"{how}, for one LRU cache of each size. Lines mark what the tiers hold together.", figure)


def pools(cache: CacheUse) -> Plot:
    """Draw what each tier would serve, for each host pool."""
    title = "Where prompts would come from"
    if not cache.marks:
        return left_out(title, "the size of the device's KV pool is not known")
    labels = [escaped(mark.pool or "device pool alone") for mark in reversed(cache.marks)]
    shares = (
        ("device", BEST, [mark.device_hit_rate for mark in cache.marks]),
        ("host", ON, [mark.host_hit_rate for mark in cache.marks]),
        ("computed", OFF, [1 - mark.hit_rate for mark in cache.marks]),
    )
    figure = go.Figure()
    for name, colour, values in shares:
        figure.add_bar(
            y=labels, x=values[::-1], name=name, orientation="h", marker={"color": colour},
            hovertemplate=f"{name}: %{{x:.1%}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.35, legend_traceorder="normal")
    figure.update_xaxes(title="share of prompt tokens", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(automargin=True)
    return finished(title, "Expected tiers of the prompt tokens by host pool.", figure, height=120 + 44 * len(labels))


def working_set(cache: CacheUse) -> Plot:
    """Draw the KV that is in use over time, beside what the device holds."""
    seen = cache.working_set
    figure = go.Figure()
    lines = (
        ("all so far", OFF, seen.unique_tokens),
        ("used in the window", BEST, seen.touched_tokens),
        ("used before and again", STORAGE, seen.kept_tokens),
    )
    for name, colour, tokens in lines:
        figure.add_scatter(
            x=seen.until_s, y=tokens, name=name, line={"color": colour, "width": 2},
            hovertemplate=f"{name}: %{{y:,.0f}} at %{{x:,.0f}} s<extra></extra>",
        )  # fmt: skip
    if cache.marks:
        figure.add_hline(y=cache.marks[0].together_tokens, line={"color": ON, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="seconds")
    figure.update_yaxes(title="tokens of KV", rangemode="tozero", tickformat="~s")
    caption = (
        f"Unique tokens so far, those used in each window of {seen.window_s:,.1f} s, and those a cache that knows the "
        "future would hold."
    )
    device = " The dotted line is the device pool." if cache.marks else ""
    return finished("Working set", caption + device, figure)


def reuse_time(cache: CacheUse) -> Plot:
    """Draw after what time prompt tokens are used again."""
    title = "Time until reuse"
    if cache.reuse is None:
        return left_out(title, "no prompt token was seen before")
    times_s = [max(time_s, 1e-3) for time_s in cache.reuse.time_s]
    return _distribution(title, "seconds since the last use (log scale)", times_s, cache.reuse.shares, "s")


def reuse_distance(cache: CacheUse) -> Plot:
    """Draw how many other tokens come between two uses."""
    title = "Reuse distance"
    if cache.reuse is None:
        return left_out(title, "no prompt token was seen before")
    distances = [max(distance, 1.0) for distance in cache.reuse.distance_tokens]
    return _distribution(title, "other tokens used since (log scale)", distances, cache.reuse.shares, "tokens")


def arrivals(analysis: Analysis) -> Plot:
    """Draw the requests over time."""
    seen = analysis.arrivals
    figure = go.Figure()
    figure.add_bar(
        x=seen.until_s, y=seen.in_window, marker={"color": BEST},
        hovertemplate="%{y} requests until %{x:,.0f} s<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="seconds")
    figure.update_yaxes(title="requests", rangemode="tozero")
    return finished("Arrivals", f"Requests in each of {len(seen.until_s)} windows; times are {seen.times}.", figure)


def _distribution(title: str, axis: str, values: list[float], shares: tuple[float, ...], unit: str) -> Plot:
    figure = go.Figure()
    figure.add_scatter(
        x=values, y=shares, line={"color": BEST, "width": 3}, mode="lines+markers",
        hovertemplate=f"%{{y:.0%}} within %{{x:,.1f}} {unit}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(type="log", title=axis)
    figure.update_yaxes(title="share of reused tokens", tickformat=".0%", range=[0, 1.02])
    return finished(title, "Over the prompt tokens that were seen before.", figure, height=320)
