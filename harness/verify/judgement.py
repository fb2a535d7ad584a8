"""What the timings of one verification say, in a sentence or two."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence

from scipy import stats

from harness.verify.break_even import BreakEven, break_even
from harness.verify.timing import Timing
from scenarios.strict import StrictModel

CLEAR_P_VALUE = 0.01
"""Host hits are called faster than cold prompts when chance would make them look so in less than 1 % of cases."""
MOSTLY = 0.5
"""A prompt counts as served by a tier when more than this share of it came from there."""


class Answer(enum.StrEnum):
    """What was found."""

    PAYS = "pays"
    DOES_NOT_PAY = "does not pay"
    """KV came back from the host, and not faster than it is computed anew."""
    NOT_USED = "on, but not used"
    """HiCache is on, yet what was evicted was computed again."""
    OFF = "off"
    NOT_EVICTED = "nothing was evicted"
    """Within the limits the prompts stayed on the device: nothing can be said of the host tier."""


class Judgement(StrictModel):
    """The answer with the figures that it rests on; times in seconds, shares of the prompts."""

    answer: Answer
    sentence: str
    cold_s: float
    device_s: float | None
    host_s: float | None
    """Median TTFT of the prompts that came from the host; None when none did."""
    host_share: float
    still_on_device_share: float
    break_even: BreakEven | None = None
    """By all lengths; None when fewer than three of them came back from the host."""


def judge(cold: Sequence[Timing], again: Sequence[Timing], evicted: Sequence[Timing], *, hicache: bool) -> Judgement:
    """Judge three rounds of the same prompts: never seen, sent again at once, and after others filled the device.

    The answer is that of the longest prompts; the shorter ones show from which length on it holds. `hicache` is what
    the engine says of itself.
    """
    reloaded = [(before, after) for before, after in zip(cold, evicted, strict=True) if _from_host(after)]
    found = break_even([before for before, _ in reloaded], [after for _, after in reloaded])
    cold, again, evicted = _longest(cold), _longest(again), _longest(evicted)
    host = [timing for timing in evicted if _from_host(timing)]
    device_hits = [timing for timing in again if _share(timing.device_tokens, timing) > MOSTLY]
    stayed = [timing for timing in evicted if _share(timing.device_tokens, timing) > MOSTLY]
    answer = _answer(cold, host, stayed, len(evicted), hicache=hicache)
    cold_s, device_s, host_s = _median(cold), _median(device_hits), _median(host)
    sentence = _sentence(answer, cold[0].prompt_tokens, cold_s or 0.0, device_s, host_s)
    if found is not None and answer in (Answer.PAYS, Answer.DOES_NOT_PAY):
        sentence = f"{sentence} {found.sentence}"
    return Judgement(
        answer=answer,
        sentence=sentence,
        cold_s=cold_s or 0.0,
        device_s=device_s,
        host_s=host_s,
        host_share=len(host) / len(evicted),
        still_on_device_share=len(stayed) / len(evicted),
        break_even=found,
    )


def _answer(
    cold: Sequence[Timing], host: Sequence[Timing], stayed: Sequence[Timing], sent: int, *, hicache: bool
) -> Answer:
    if len(host) > MOSTLY * sent:
        faster = stats.mannwhitneyu([t.ttft_s for t in host], [t.ttft_s for t in cold], alternative="less")
        return Answer.PAYS if float(faster.pvalue) < CLEAR_P_VALUE else Answer.DOES_NOT_PAY
    if not hicache:
        return Answer.OFF
    return Answer.NOT_EVICTED if len(stayed) > MOSTLY * sent else Answer.NOT_USED


def _sentence(answer: Answer, tokens: int, cold_s: float, device_s: float | None, host_s: float | None) -> str:
    cold = f"{tokens:,} tokens take {_ms(cold_s)} to compute"
    device = f", {_ms(device_s)} from the device" if device_s is not None else ""
    match answer:
        case Answer.PAYS if host_s is not None:
            return (
                f"HiCache is on and pays: {cold}{device} and {_ms(host_s)} from the host, "
                f"{cold_s / host_s:.1f} times faster than computing them again."
            )
        case Answer.DOES_NOT_PAY if host_s is not None:
            return (
                f"HiCache is on and does not pay: {cold}{device} and {_ms(host_s)} from the host, which is not "
                "clearly faster; try longer prompts (--tokens) and other transfer settings (hicache-tune search)."
            )
        case Answer.OFF:
            return f"HiCache is off: what leaves the device is computed again ({cold}{device})."
        case Answer.NOT_EVICTED:
            return (
                f"Nothing can be said of the host tier: the prompts stayed on the device ({cold}{device}); let more "
                "tokens be sent to fill it (--fill-tokens, --seconds)."
            )
    return (
        f"HiCache is on, but what was evicted was computed again ({cold}{device}): the host pool may be too small for "
        "what was sent, or the write policy did not copy prompts that were used twice."
    )


def _longest(timings: Sequence[Timing]) -> list[Timing]:
    most = max(timing.prompt_tokens for timing in timings)
    return [timing for timing in timings if timing.prompt_tokens == most]


def _from_host(timing: Timing) -> bool:
    return _share((timing.host_tokens or 0) + (timing.storage_tokens or 0), timing) > MOSTLY


def _share(tokens: int | None, timing: Timing) -> float:
    return (tokens or 0) / timing.prompt_tokens if timing.prompt_tokens else 0.0


def _median(timings: Sequence[Timing]) -> float | None:
    return statistics.median(timing.ttft_s for timing in timings) if timings else None


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
