"""The rules of the verdict, each on figures of its own."""

import pytest

from scenarios.analysis.machine import Machine
from scenarios.analysis.prior import CachePrior
from scenarios.analysis.record import Answer, CacheUse, Mark, Verdict
from scenarios.analysis.sharing import Sharing, WorkingSet
from scenarios.analysis.verdict import decide

MACHINE = Machine(
    device_tokens=100,
    kv_bytes_per_token=1_000_000,
    copy_gb_per_s=20.0,
    prefill_tokens_per_s=1000.0,
)


def mark(
    pool: str,
    together: int,
    device: float,
    host: float,
    *,
    prefill_s: float | None = 100.0,
    reload_s: float = 1.0,
    peak: float = 1.0,
) -> Mark:
    """Make a mark whose copies are quick unless told otherwise."""
    return Mark(
        pool=pool,
        host_tokens=together if pool else 0,
        host_gb=together / 1000 if pool else 0.0,
        together_tokens=together,
        device_hit_rate=device,
        host_hit_rate=host,
        saved_tokens=0,
        saved_work=host / (1 - device),
        saved_prefill_s=prefill_s,
        reload_s=reload_s,
        reload_gb_per_s=0.1,
        peak_reload_gb_per_s=peak,
    )


def verdict(rates: tuple[float, ...], *marks: Mark, others_known: bool = True) -> Verdict:
    """Decide on a curve that has `rates` at 0, 100, 200... tokens."""
    sizes = tuple(100.0 * step for step in range(len(rates)))
    cache = CacheUse(
        block_tokens=10,
        blocks=1,
        sample_rate=1.0,
        sharing=Sharing(None, None, 1 - rates[-1]),
        reuse=None,
        working_set=WorkingSet(1.0, (1.0,), (1,), (1,), (0,)),
        curve=CachePrior("made", 1000, sizes, rates),
        knee_tokens=300,
        marks=marks,
    )
    return decide(cache, MACHINE, others_known=others_known)


OFF = mark("", 100, 0.2, 0.0)
CURVE = (0.0, 0.2, 0.5, 0.8)


def test_no_sharing_does_not_help() -> None:
    """Below 5 % nothing is worth a tier."""
    said = verdict((0.0, 0.04), mark("", 100, 0.0, 0.0), mark("x", 200, 0.0, 0.04))
    assert said.answer is Answer.DOES_NOT_HELP
    assert "prompts share too little" in said.sentence


def test_no_sharing_within_sessions_alone_tells_nothing() -> None:
    """Ids that are numbered in each session anew hide what sessions share."""
    assert verdict((0.0, 0.04), others_known=False).answer is Answer.UNKNOWN


def test_a_device_that_holds_everything_needs_no_host() -> None:
    """What is left to save is below 3 % of the work."""
    said = verdict((0.0, 0.79, 0.8), mark("", 100, 0.795, 0.0), mark("x", 200, 0.795, 0.005))
    assert said.answer is Answer.DOES_NOT_HELP
    assert "the device pool of 100 tokens holds what is used again" in said.sentence


def test_without_a_device_the_size_is_named_from_which_on_no_host_is_needed() -> None:
    """Nearly all of 80 % is had from 300 tokens on."""
    said = verdict((0.0, 0.2, 0.5, 0.797, 0.8))
    assert said.answer is Answer.DEPENDS
    assert "smaller than 300 tokens (0.3 GB a rank)" in said.sentence


def test_pools_that_are_too_small_depend_on_a_larger_one() -> None:
    """The knee says how large."""
    said = verdict(CURVE, OFF, mark("x", 150, 0.2, 0.01))
    assert said.answer is Answer.DEPENDS
    assert "about 300 tokens (0.3 GB a rank) would raise the hit rate from 20% to 80%" in said.sentence
    assert verdict(CURVE, OFF).answer is Answer.DEPENDS


def test_the_smallest_pool_that_does_it_is_named() -> None:
    """A larger one that saves 1 % more is not worth its memory; a smaller one that saves half is not enough."""
    pools = (
        mark("small", 200, 0.2, 0.3),
        mark("enough", 300, 0.2, 0.59),
        mark("large", 900, 0.2, 0.6),
    )
    said = verdict(CURVE, OFF, *pools)
    assert (said.answer, said.pool) == (Answer.HELPS, "enough")
    assert "raises the hit rate from 20% to 79% and saves 74% of the prefill work" in said.sentence


def test_copies_that_take_longer_than_computing_do_not_help() -> None:
    """A slow bus and a quick GPU."""
    said = verdict(CURVE, OFF, mark("x", 300, 0.2, 0.6, prefill_s=10.0, reload_s=30.0))
    assert said.answer is Answer.DOES_NOT_HELP
    assert "copying a token back takes 3.0 times as long as computing it" in said.sentence


def test_a_busy_bus_is_to_be_measured() -> None:
    """More than half of it in the busiest time."""
    said = verdict(CURVE, OFF, mark("x", 300, 0.2, 0.6, peak=15.0))
    assert (said.answer, said.pool) == (Answer.DEPENDS, "x")
    assert "reloads need 15.0 GB/s in the busiest time, 75% of what the bus" in said.sentence


def test_a_small_saving_is_to_be_measured() -> None:
    """Between 3 and 10 % of the work."""
    said = verdict(CURVE, OFF, mark("x", 150, 0.2, 0.06))
    assert (said.answer, said.pool) == (Answer.DEPENDS, "x")
    assert "which is little" in said.sentence


@pytest.mark.parametrize("answer", list(Answer))
def test_every_answer_has_a_sentence(answer: Answer) -> None:
    """It ends with the reason."""
    assert Verdict(answer, "so it is").sentence.endswith(": so it is.")
