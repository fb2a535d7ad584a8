"""What reading a trace did to it, and what it found odd: nothing is skipped or changed without a word."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Remark(enum.StrEnum):
    """One kind of thing that is counted while a trace is read; the value says it for people, after its count."""

    SHRANK = "inputs are shorter than that of the turn before (a compaction, a new question or a retry); kept"
    FAILED = "requests without any prompt or reply token (failed when recorded) were left out"
    EMPTY = "conversations without a user message were left out"
    JOINED = "parts of long conversations were joined to their first part"
    PARTS_OUT_OF_ORDER = "parts of long conversations stand after a later part; joined in file order"
    HEADLESS = "conversations begin with a reply (their beginning was not recorded); that reply was left out"
    SAME_ROLE = "messages repeat the role of the message before; both are kept in one turn"
    NOT_TEXT = "images, sounds or other parts that are not text were left out"
    TOOLS = "requests carry tool definitions; they were put before the system prompt, as text"
    BRANCHED = "turns continue an earlier turn than the one before them (edits, retries, sub-agents)"
    SUBAGENT = "sub-agents became branches of the session that started them"
    REWRITTEN = "turns begin their history anew (it was cut or compacted)"
    ORPHAN = "requests name a parent that is not in the trace; each begins a session"
    DUPLICATE = "sessions begin exactly like an earlier one (same times and lengths) and were kept"
    DUPLICATE_DROPPED = "sessions that begin exactly like an earlier one (same times and lengths) were left out"
    START_OFFSET = "first turns have a delay; it was taken as the session's start"
    THINK_CAPPED = "think times were longer than the cap and were cut to it"
    SPREAD = "arrivals were spread within the steps that the source rounded them to"
    INFERRED = "requests were found to continue an earlier one, by their blocks"
    NOT_SAMPLED = "requests belong to sessions that were not drawn"


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a remark was made, and where first."""

    remark: str
    count: int
    first: str = ""


@dataclass(slots=True)
class ReadingReport:
    """Counts while a trace is read. Its size does not grow with the trace."""

    requests: int = 0
    skipped: list[str] = field(default_factory=list)
    """One sentence for each bad line that was skipped."""
    earlier: list[Tally] = field(default_factory=list)
    """Remarks of the reading that made a normalised file, carried along."""
    _counts: dict[Remark, int] = field(default_factory=dict)
    _first: dict[Remark, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget everything: a new reading begins."""
        self.requests = 0
        self.skipped.clear()
        self._counts.clear()
        self._first.clear()

    def note(self, remark: Remark, where: str = "", count: int = 1) -> None:
        """Count `remark`; the first place is kept."""
        if count:
            self._counts[remark] = self._counts.get(remark, 0) + count
            self._first.setdefault(remark, where)

    def count(self, remark: Remark) -> int:
        """Return how often `remark` was made."""
        return self._counts.get(remark, 0)

    @property
    def remarks(self) -> list[Tally]:
        """List what was remarked, in order of first appearance; carried remarks come first."""
        own = [Tally(str(remark), count, self._first[remark]) for remark, count in self._counts.items()]
        return [*self.earlier, *own]

    def sentences(self) -> list[str]:
        """Say for people what was done, one sentence each."""
        said = [f"skipped {sentence}" for sentence in self.skipped]
        for tally in self.remarks:
            first = f" (first: {tally.first})" if tally.first else ""
            said.append(f"{tally.count:,} {tally.remark}{first}")
        return said
