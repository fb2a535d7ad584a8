"""Ctrl-C and SIGTERM: the first asks for an orderly stop, the next for a quick one; none of them loses anything."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Counts the requests to stop. Loops ask it; nothing is raised in the middle of a step."""

    def __init__(self) -> None:
        self._requests = 0

    def request(self) -> None:
        """Ask to stop; asking again makes it quicker."""
        self._requests += 1

    def should_stop(self) -> bool:
        """Whether anything new may still be begun."""
        return self._requests > 0

    def must_hurry(self) -> bool:
        """Whether an orderly end should not be waited for any longer."""
        return self._requests > 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Turn SIGINT, SIGTERM and SIGHUP into requests while the block runs, but for those that `nohup` ignores."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.request()

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
