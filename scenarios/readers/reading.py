"""One pass over a trace: which records are bad and how many may be, arrivals, and the turns of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scenarios.readers.sample import Sample
from scenarios.readers.source import BadRecord, CutShort, Place, Record
from scenarios.reading_report import ReadingReport, Remark
from scenarios.trace import TraceError, TraceRequest

FIRST_BLOCK_SIZE = 512


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a user may ask of a reader."""

    skip_bad: int = 0
    """How many bad lines are skipped; the next one ends the reading."""
    max_context_tokens: int | None = None
    """Requests whose prompt and reply are longer are bad."""
    block_tokens: int | None = None
    """Tokens of a block, where the source does not say; None takes the format's own."""
    drop_duplicates: bool = False
    """Leave out sessions that begin exactly like an earlier one (kv-cache-tester)."""


@dataclass(slots=True)
class Reading:
    """The state of one pass. Nothing of it survives into the next pass."""

    path: Path
    sample: Sample
    options: ReadOptions
    report: ReadingReport
    skipped: int = 0
    _first_s: float | None = None
    _latest_s: float = field(default=0.0)
    _latest: str = ""

    def each(
        self, records: Iterable[Record], read: Callable[[Record], Sequence[TraceRequest]]
    ) -> Iterator[TraceRequest]:
        """Yield what `read` makes of each record; bad records are skipped as long as that is allowed."""
        iterator = iter(records)
        while True:
            try:
                record = next(iterator)
            except StopIteration:
                return
            except CutShort as problem:
                self.skip(problem)
                return
            try:
                requests = read(record)
            except BadRecord as problem:
                self.skip(problem)
                continue
            yield from requests

    def skip(self, problem: BadRecord) -> None:
        """Skip a bad record and report it; raise TraceError when no more may be skipped."""
        allowed = self.options.skip_bad
        if self.skipped >= allowed:
            before = f" ({allowed} bad before it were skipped)" if allowed else ""
            raise TraceError(f"{problem}{before}; correct it, or go on without it: --skip-bad {allowed + 1}") from None
        self.skipped += 1
        self.report.skipped.append(str(problem))

    def arrival_s(self, place: Place, field_name: str, clock_s: float) -> float:
        """Return seconds since the trace's first arrival; raise BadRecord when an arrival is before the one above."""
        if self._first_s is None:
            self._first_s = clock_s
        elif clock_s < self._latest_s:
            raise BadRecord(
                f"{place}: `{field_name}` is {self._latest_s - clock_s:g} s before that of {self._latest}; "
                "sort the trace by time"
            )
        self._latest_s, self._latest = clock_s, place.short
        return clock_s - self._first_s

    def check_context(self, place: Place, input_tokens: int | None, output_tokens: int | None) -> None:
        """Raise BadRecord when a request is longer than the limit that the user gave."""
        limit, context = self.options.max_context_tokens, (input_tokens or 0) + (output_tokens or 0)
        if limit is not None and context > limit:
            raise BadRecord(f"{place}: prompt and reply are {context} tokens, over the limit of {limit}")

    def check_blocks(self, place: Place, input_tokens: int, blocks: int, block_tokens: int, *, floor: bool) -> None:
        """Raise BadRecord when so many blocks cannot be those of a prompt; `floor`: the partly filled may be absent."""
        whole = -(-input_tokens // block_tokens)
        least = input_tokens // block_tokens if floor else whole
        if blocks not in (least, whole):
            raise BadRecord(
                f"{place}: {blocks} block ids for a prompt of {input_tokens} tokens, "
                f"which is {whole} blocks of {block_tokens}; "
                "check the file, or say its block size with --block-tokens"
            )


@dataclass(slots=True)
class SessionState:
    """What is known of a session so far."""

    turns: int = 0
    input_tokens: int = 0
    context_tokens: int = 0
    """Prompt and reply of the latest turn."""
    ended_s: float | None = None


class SessionBook:
    """Numbers the turns of sessions that stand interleaved in a file.

    It grows with the number of sessions, not with their requests.
    """

    def __init__(self, report: ReadingReport) -> None:
        self._report = report
        self._sessions: dict[str, SessionState] = {}

    def of(self, session_id: str) -> SessionState:
        """Return a session's state; a session that was never seen is new."""
        return self._sessions.setdefault(session_id, SessionState())

    def add_turn(self, state: SessionState, place: Place, input_tokens: int | None, output_tokens: int | None) -> int:
        """Count a turn and return its number; a prompt shorter than the one before is remarked."""
        if input_tokens is not None:
            if state.turns and input_tokens < state.input_tokens:
                self._report.note(Remark.SHRANK, place.short)
            state.input_tokens = input_tokens
            state.context_tokens = input_tokens + (output_tokens or 0)
        state.turns += 1
        return state.turns - 1
