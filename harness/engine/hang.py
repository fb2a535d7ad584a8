"""Whether an engine under load hangs: it takes requests, and nothing comes back.

No single sign is enough. `/health` fails for as long as a long prefill runs, and a load of long prompts is silent for
as long as its first ones are computed; while that goes on the engine's token counters move. A `/health` that is
answered proves that tokens are generated, if not for the load.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from harness.engine.client import EngineClient
from harness.engine.failure import Failure, FailureKind, last_lines
from harness.errors import EngineUnreachable

HANG_AFTER_S = 60.0
"""Longer than any one step of a prefill takes, shorter than the time-out of a first token (120 s)."""
WORK_COUNTERS = r"sglang:(?:realtime|prompt|generation|cached|load_back|evicted|prefetched|backuped)_tokens_total"
"""What moves with any work of the engine; `realtime` is counted batch by batch while requests still run."""


@dataclass(frozen=True)
class Signs:
    """What was seen of an engine at one moment."""

    at_s: float
    silent_s: float
    """For how long requests have been in flight without a token for any of them."""
    work: tuple[str, ...] | None
    """The engine's counters of tokens; None when they could not be read."""


class HangRule:
    """Decides from signs, one after the other, whether the engine hangs. It asks nothing itself."""

    def __init__(self, after_s: float = HANG_AFTER_S) -> None:
        self._after_s = after_s
        self._work: tuple[str, ...] | None = None
        self._still_since_s: float | None = None

    @property
    def watch_from_s(self) -> float:
        """From which silence on the counters must be read."""
        return self._after_s / 2

    def is_suspect(self, signs: Signs) -> bool:
        """Whether nothing has come for so long, and the counters have stood still, that /health must be asked."""
        if signs.silent_s < self.watch_from_s:
            return False  # the counters were not read
        moved = signs.work is not None and signs.work != self._work
        if signs.work is not None:
            self._work = signs.work
        if moved or self._still_since_s is None:
            self._still_since_s = signs.at_s
        still_s = signs.at_s - self._still_since_s
        return signs.silent_s >= self._after_s and still_s >= self._after_s - self.watch_from_s

    def hangs(self, signs: Signs, *, healthy: bool) -> bool:
        """Whether a suspect hangs: /health fails too, or the load has waited for twice as long in spite of it."""
        return not healthy or signs.silent_s >= 2 * self._after_s


class HangWatch:
    """Hears from a running load how long it has been silent; `said` is not empty once the engine hangs."""

    def __init__(self, after_s: float = HANG_AFTER_S) -> None:
        self._rule = HangRule(after_s)
        self._poll_s = min(1.0, after_s / 10)
        self._ended = threading.Event()
        self._heard = (0.0, 0.0)
        self.said = ""

    def heard(self, at_s: float, silent_s: float) -> None:
        """Take what the load tells at `at_s`, on the monotonic clock."""
        self._heard = (at_s, silent_s)

    def failure(self, log_text: str) -> Failure:
        """Class the hang."""
        return Failure(FailureKind.HANG, self.said, None, last_lines(log_text))

    def run(self, client: EngineClient) -> None:
        """Watch until `end`; one probe at a time, and none while tokens come."""
        while not (self._ended.wait(self._poll_s) or self.said):
            at_s, silent_s = self._heard
            signs = Signs(at_s, silent_s, _work(client) if silent_s >= self._rule.watch_from_s else None)
            if not self._rule.is_suspect(signs):
                continue
            healthy = client.healthy()
            tokens_came = self._heard[1] < silent_s  # while /health was being asked, which may take half a minute
            if self._rule.hangs(signs, healthy=healthy) and not tokens_came:
                health = "/health is answered, but no request is" if healthy else "/health fails"
                seconds = round(self._heard[1])
                self.said = f"no token came to any request for {seconds} s, its counters stand still, and {health}"

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()


@contextmanager
def watching_for_a_hang(
    connect: Callable[[], AbstractContextManager[EngineClient]], after_s: float = HANG_AFTER_S
) -> Iterator[HangWatch]:
    """Watch an engine, by a client of the watch's own, until the block ends.

    The watch is not waited for: a probe of an engine that hangs takes half a minute, and fails once that is stopped.
    """
    watch = HangWatch(after_s)

    def run() -> None:
        with connect() as client:
            watch.run(client)

    threading.Thread(target=run, name="hang watch", daemon=True).start()
    try:
        yield watch
    finally:
        watch.end()


def _work(client: EngineClient) -> tuple[str, ...] | None:
    try:
        lines = client.metrics_text().splitlines()
    except EngineUnreachable:
        return None
    return tuple(sorted(line for line in lines if re.match(WORK_COUNTERS, line)))
