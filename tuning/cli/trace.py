"""`hicache-tune scenario convert` and `scenario anonymise`: recorded traffic as sessions that can be played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape

from tuning.budget import parse_duration

if TYPE_CHECKING:
    from scenarios.trace import Trace
    from scenarios.trace_file import TraceTotals

AT_LEAST_0, AT_LEAST_1 = Number(gte=0), Number(gte=1)

Format = Annotated[str | None, Parameter(help="Format of the trace; by default it is recognised by its content.")]
SkipBad = Annotated[int, Parameter(validator=AT_LEAST_0, help="Bad lines to skip; one more ends the reading.")]
BlockTokens = Annotated[
    int | None,
    Parameter(validator=AT_LEAST_1, help="Tokens of a block of `hash_ids`, where the format leaves it open."),
]
MaxContext = Annotated[
    int | None, Parameter(validator=AT_LEAST_1, help="Requests whose prompt and reply have more tokens are bad lines.")
]


def convert(
    trace: Path,
    out: Path,
    *,
    format: Format = None,
    skip_bad: SkipBad = 0,
    sessions: Annotated[int | None, Parameter(validator=AT_LEAST_1, help="Draw so many whole sessions.")] = None,
    seed: Annotated[int, Parameter(help="Seed of what is drawn.")] = 0,
    infer_sessions: Annotated[
        bool, Parameter(negative=(), help="Join requests whose blocks go on from another.")
    ] = False,
    think_cap: Annotated[str | None, Parameter(help="Cut think times to this, as 60s or 2m.")] = None,
    spread_ticks: Annotated[
        bool, Parameter(negative=(), help="Spread arrivals over the step they were rounded to (Mooncake: 3 s).")
    ] = False,
    max_context: MaxContext = None,
    block_tokens: BlockTokens = None,
    drop_duplicates: Annotated[
        bool, Parameter(negative=(), help="Leave out sessions that begin exactly like an earlier one.")
    ] = False,
) -> int:
    """Make sessions of a recorded trace, and a scenario that plays them.

    Writes OUT, one session a line, and beside it OUT's name with .yaml, the scenario, unless that exists. Says what
    was skipped, changed or found odd.

    Parameters
    ----------
    trace
        The recorded trace: a file (also .gz), or a folder of kv-cache-tester sessions.
    out
        The trace file to write: .jsonl, or .jsonl.gz.
    """
    from scenarios.infer_sessions import infer_sessions as infer
    from scenarios.readers import open_trace
    from scenarios.trace_file import write_trace_file
    from scenarios.trace_steps import cap_think, draw_sessions
    from scenarios.trace_steps import spread_ticks as spread

    _check_out(trace, out)
    read = open_trace(
        trace,
        format=format,
        skip_bad=skip_bad,
        max_context_tokens=max_context,
        block_tokens=block_tokens,
        drop_duplicates=drop_duplicates,
    )
    if infer_sessions:
        read = infer(read)
    if spread_ticks:
        read = spread(read, seed)
    if think_cap is not None:
        read = cap_think(read, parse_duration(think_cap, "--think-cap"))
    if sessions is not None:
        read = draw_sessions(read, sessions, seed)
    totals = write_trace_file(read, out)
    _say(read, totals, out)
    _write_scenario(read, out)
    return 0


def anonymise(
    trace: Path,
    out: Path,
    *,
    model: Annotated[
        str | None,
        Parameter(help="Model whose tokenizer counts the text: a folder or a name. Traces of numbers need none."),
    ] = None,
    format: Format = None,
    skip_bad: SkipBad = 0,
    block_tokens: BlockTokens = None,
) -> int:
    """Write a trace without a word of it: lengths, times and which prompts begin alike stay, all else goes.

    Text becomes blocks of 16 tokens, hashed under a random salt that is thrown away; sessions get numbers for names.

    Parameters
    ----------
    trace
        The recorded trace, in any format that can be converted.
    out
        The trace file to write: .jsonl, or .jsonl.gz.
    """
    from scenarios import PromptTokenizer
    from scenarios.anonymise import anonymise as without_words
    from scenarios.readers import open_trace

    _check_out(trace, out)
    read = open_trace(trace, format=format, skip_bad=skip_bad, block_tokens=block_tokens)
    totals = without_words(read, out, None if model is None else PromptTokenizer.load(model))
    _say(read, totals, out)
    return 0


def _check_out(trace: Path, out: Path) -> None:
    """Refuse to write over anything but an earlier trace file."""
    from scenarios.errors import ConfigError
    from scenarios.trace_file import is_trace_file

    if out.exists() and (out.samefile(trace) or not is_trace_file(out)):
        raise ConfigError(f"{out} exists and is no trace file of an earlier conversion; give another name")


def _say(trace: Trace, totals: TraceTotals, out: Path) -> None:
    console = Console(stderr=True, soft_wrap=True)
    tokens = [
        f"{count:,} {name} tokens"
        for count, name in ((totals.input_tokens, "prompt"), (totals.output_tokens, "reply"))
        if count is not None
    ]
    what = ", ".join([f"{totals.sessions:,} sessions", f"{totals.requests:,} requests", *tokens])
    console.print(f"{trace.info.format}: {what}")
    for sentence in trace.report.sentences():
        console.print(f"  {escape(sentence)}", highlight=False)
    if trace.info.block_tokens and not (trace.info.sessions_recorded or trace.info.sessions_inferred):
        console.print("  every request is a session of its own; --infer-sessions joins those that go on from another")
    if trace.info.at_step_s is not None:
        console.print(f"  arrivals are rounded to {trace.info.at_step_s:g} s; --spread-ticks spreads them")
    console.print(f"written: {escape(str(out))}")


def _write_scenario(trace: Trace, out: Path) -> None:
    """Write the scenario that plays the trace; one that exists is the user's and stays."""
    from scenarios.errors import ConfigError
    from scenarios.trace import Clock

    console = Console(stderr=True, soft_wrap=True)
    name = out.name.removesuffix(".gz").removesuffix(".jsonl")
    path = out.with_name(f"{name}.yaml")
    if path.exists():
        console.print(f"{escape(str(path))} exists and stays as it is")
        return
    lines = ["schema_version: 1", f"name: {json.dumps(name)}"]
    if trace.info.clock is not Clock.TRACE:
        lines += [
            "sessions: # when sessions began was not recorded; 16 are played at a time",
            "  concurrency: 16",
            "  ramp_s: 60",
        ]
    if trace.info.block_tokens is not None:
        lines.append("api: generate # token ids share blocks exactly; a chat template would shift them")
    lines += ["replay:", f"  trace: {json.dumps(out.name)}"]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot write the scenario {path}: {problem.strerror}; check the folder") from None
    console.print(f"written: {escape(str(path))} (play it: --scenario {escape(str(path))})")
