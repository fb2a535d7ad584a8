"""When silence under load is a hang, and when it is a long prefill."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from harness.engine.client import EngineClient
from harness.engine.failure import Blame, FailureKind
from harness.engine.hang import HangRule, HangWatch, Signs
from harness.errors import EngineUnreachable
from tests.support.cases import case_rows, expected
from tests.support.processes import wait_for

BUSY = ("sglang:prompt_tokens_total 1.0",)


def suspect_at(rule: HangRule, work: Callable[[int], tuple[str, ...] | None], *, until_s: int = 200) -> int | None:
    """Let a load be silent from second 0 on; return the second in which /health would be asked."""
    return next((s for s in range(until_s) if rule.is_suspect(Signs(s, s, work(s)))), None)


def test_silence_with_still_counters_is_suspect() -> None:
    """After the whole time, not earlier; counters that cannot be read show no life."""
    assert suspect_at(HangRule(60), lambda _: BUSY) == 60
    assert suspect_at(HangRule(60), lambda _: None) == 60


def test_counters_that_move_show_life() -> None:
    """However long the load hears nothing; once they stop the clock starts anew."""
    assert suspect_at(HangRule(60), lambda s: (str(s),)) is None
    assert suspect_at(HangRule(60), lambda s: (str(min(s, 100)),)) == 130


def test_a_token_ends_the_suspicion() -> None:
    """What stood still before the token does not count."""
    rule = HangRule(60)
    assert not any(rule.is_suspect(Signs(s, s, BUSY)) for s in range(59))
    assert not rule.is_suspect(Signs(59, 0, None))
    assert not any(rule.is_suspect(Signs(59 + s, s, BUSY)) for s in range(59))
    assert rule.is_suspect(Signs(119, 60, BUSY))


def test_the_last_word_is_with_health() -> None:
    """An engine that answers it gets twice the time for the requests of the load."""
    rule = HangRule(60)
    assert rule.hangs(Signs(60, 60, BUSY), healthy=False)
    assert not rule.hangs(Signs(60, 60, BUSY), healthy=True)
    assert rule.hangs(Signs(120, 120, BUSY), healthy=True)


def test_a_long_prefill_is_no_hang() -> None:
    """Case 41: /health fails twice at its own limit of 20 s while the token counter advances: nothing is ended."""
    case = expected("41")
    assert (case["verdict"], case["kills"]) == ("alive", 0)
    rows = case_rows("41", "health.jsonl")
    rule = HangRule(60)
    told = [Signs(row["t_s"], row["t_s"], (str(row.get("prompt_tokens_total")),)) for row in rows]
    assert not any(rule.is_suspect(signs) for signs in told)


class Engine(EngineClient):
    """An engine that says what it is told to."""

    def __init__(self, *, healthy: bool, reachable: bool = True) -> None:
        super().__init__("http://127.0.0.1:9")
        self.is_healthy, self.reachable, self.asked = healthy, reachable, 0

    def healthy(self) -> bool:
        """Tell its health."""
        self.asked += 1
        return self.is_healthy

    def metrics_text(self) -> str:
        """Return counters that stand still, beside a gauge and a clock that do not."""
        if not self.reachable:
            raise EngineUnreachable("no answer")
        return f"{BUSY[0]}\nprocess_cpu_seconds_total {self.asked}\n"


@pytest.mark.parametrize("reachable", [True, False])
def test_a_watch_says_that_the_engine_hangs(reachable: bool) -> None:
    """It is the machine's fault until it happens again, as a deadlock of the engine is chance."""
    engine = Engine(healthy=False, reachable=reachable)
    watch = HangWatch(after_s=0.2)
    thread = threading.Thread(target=watch.run, args=[engine])
    thread.start()
    now = iter(range(1000))

    def is_over() -> bool:
        watch.heard(at_s := next(now) / 50, at_s)
        return bool(watch.said)

    wait_for(is_over, "a hang")
    thread.join()
    failure = watch.failure("first line\nlast batch\n")
    assert (failure.kind, failure.blame) == (FailureKind.HANG, Blame.MACHINE)
    assert failure.last_lines == ("first line", "last batch")
    assert "and /health fails" in failure.sentence


def test_a_watch_asks_nothing_while_tokens_come() -> None:
    """Its probes are requests too, and would be measured with the load."""
    engine = Engine(healthy=False)
    watch = HangWatch(after_s=0.2)
    thread = threading.Thread(target=watch.run, args=[engine])
    thread.start()
    for number in range(30):
        watch.heard(number, 0.0)
        thread.join(0.02)
    watch.end()
    thread.join()
    assert (watch.said, engine.asked) == ("", 0)
