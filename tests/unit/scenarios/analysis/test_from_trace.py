"""Traces as streams: ids, scopes, clocks, text, and what is missing."""

import pytest

from scenarios.analysis import (
    Answer,
    Assumptions,
    Load,
    Machine,
    analyse,
    load_of_trace,
)
from scenarios.errors import ScenarioError
from scenarios.trace import Clock, Message, Scope, Trace, TraceRequest
from tests.support.analysis import BLOCK_TOKENS, curve_of, request, trace_of


def read(trace: Trace, *, users: int = 1, tokenizer: bool = False) -> Load:
    """Read with a service time of 1 s, a pause of 2 s and a limit of 9 s; characters are tokens."""
    assumed = Assumptions(users=users, service_s=1.0, think_s=2.0, think_limit_s=9.0)
    encode = (lambda text: list(text.encode())) if tokenizer else None
    return load_of_trace(trace, assumed=assumed, page_tokens=BLOCK_TOKENS, encode=encode)


def said(session: str, turn: int, text: str, reply: str | None, after: int | None = None) -> TraceRequest:
    """Make a turn of a chat log."""
    answer = None if reply is None else Message("assistant", reply)
    return TraceRequest(
        session,
        turn,
        None,
        None,
        after=after,
        messages=(Message("user", text),),
        reply=answer,
    )


def test_global_ids_are_shared_and_local_ones_are_not() -> None:
    """The same two requests of two sessions hit with global ids and miss with local ones."""
    requests = [request([1, 2], session="a"), request([1, 2], 1.0, session="b")]
    assert curve_of(read(trace_of(requests)).stream).endless == 0.5
    local = read(trace_of(requests, scope=Scope.LOCAL))
    assert curve_of(local.stream).endless == 0
    assert not local.others_known
    assert any("numbered in each session anew" in note for note in local.notes)


def test_tokens_that_hit_are_no_more_than_the_prompt_has() -> None:
    """min(blocks x block size, input length): of 14 tokens in two blocks, 14 hit."""
    trace = trace_of([request([1, 2], input_tokens=14), request([1, 2], 1.0, input_tokens=14)])
    assert curve_of(read(trace).stream).hit_tokens[-1] == 14


def test_requests_are_played_by_their_times_not_by_their_lines() -> None:
    """The second line came first; one without a time comes with the line before it."""
    load = read(trace_of([request([1], 8.0), request([2], 3.0), request([3], None)]))
    assert load.stream.at_s.tolist() == [0, 0, 5]
    assert any("1 request(s) without a time" in note for note in load.notes)


@pytest.mark.parametrize("ids", [[-5, 2**64 + 7], [2**63, 1]])
def test_ids_of_any_size_are_told_apart(ids: list[int]) -> None:
    """Ids that are negative or longer than 64 bits are ids too, also beside ordinary ones."""
    trace = trace_of([request([3, 4]), request(ids, 1.0), request([3, *ids], 2.0), request(ids, 3.0)])
    assert curve_of(read(trace).stream).hit_tokens[-1] == 30


def test_sessions_with_clocks_of_their_own_are_played_back_to_back() -> None:
    """The recorded gap of 103 s is 3 s of service and a pause that is cut from 100 to 9 s."""
    requests = [
        request([1], 50.0, "a", 0),
        TraceRequest("a", 1, 20, 1, at_s=153.0, think_s=100.0, block_ids=(1, 2)),
    ]
    load = read(trace_of(requests, clock=Clock.SESSION))
    assert load.stream.at_s.tolist() == [0, 12]
    assert load.times == "simulated"
    assert any("1 users play the sessions back to back" in note for note in load.notes)


def test_without_any_times_assumptions_stand_in() -> None:
    """1 s of service and 2 s of pause make 3 s; a recorded pause counts."""
    requests = [request([1], None, "a", 0), request([1], None, "a", 1)]
    paused = TraceRequest("a", 2, 10, 1, think_s=5.0, block_ids=(1,))
    assert read(trace_of([*requests, paused], clock=Clock.NONE)).stream.at_s.tolist() == [0, 3, 9]


def test_equal_seeds_give_equal_interleavings_and_others_others() -> None:
    """The order of the users' sessions is drawn."""
    trace = trace_of([request([n], None, str(n)) for n in range(20)], clock=Clock.NONE)
    orders = [
        load_of_trace(trace, assumed=Assumptions(users=4, seed=seed), page_tokens=1).stream.session.tolist()
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_text_is_cut_into_pages_of_the_whole_conversation() -> None:
    """Turn 1 repeats 5 + 20 + 5 + 10 tokens of history; the 40 are four pages and hit."""
    requests = [said("a", 0, "x" * 20, "y" * 10), said("a", 1, "z" * 20, None)]
    load = read(trace_of(requests, block_tokens=None, clock=Clock.NONE), tokenizer=True)
    assert load.stream.prompt_tokens.tolist() == [25, 65]
    assert curve_of(load.stream).hit_tokens[-1] == 40


def test_an_edited_message_goes_on_from_the_turn_before_it() -> None:
    """Turn 2 continues turn 0, not turn 1."""
    requests = [
        said("a", 0, "x" * 20, "y" * 10),
        said("a", 1, "z" * 99, None),
        said("a", 2, "z" * 5, None, after=0),
    ]
    load = read(trace_of(requests, block_tokens=None, clock=Clock.NONE), tokenizer=True)
    assert load.stream.prompt_tokens.tolist() == [25, 144, 50]


def test_text_without_a_tokenizer_names_what_is_missing() -> None:
    """The verdict asks for the model; arrivals are shown all the same."""
    trace = trace_of(
        [said("a", 0, "hello", None), request([], 1.0, input_tokens=5)],
        block_tokens=None,
    )
    analysis = analyse(read(trace), Machine())
    assert analysis.cache is None
    assert "name the model" in analysis.sentence
    assert analysis.arrivals.requests == 2


def test_lengths_alone_tell_nothing_of_sharing() -> None:
    """An Azure trace has arrivals and no verdict."""
    trace = trace_of(
        [
            request([], 1.0, "a", input_tokens=70),
            request([], 4.0, "b", input_tokens=90),
        ],
        block_tokens=None,
    )
    analysis = analyse(read(trace), Machine(device_tokens=10))
    assert (analysis.verdict.answer, analysis.cache) == (Answer.UNKNOWN, None)
    assert "neither block ids nor text" in analysis.sentence
    assert (analysis.arrivals.duration_s, analysis.arrivals.prompt_tokens) == (3.0, 160)


def test_an_empty_trace_and_one_without_prompts_are_refused() -> None:
    """Each with a sentence that says so."""
    with pytest.raises(ScenarioError, match="there is no request in it"):
        read(trace_of([]))
    with pytest.raises(ScenarioError, match="no request has a prompt"):
        analyse(read(trace_of([request([], input_tokens=0)], block_tokens=None)), Machine())


def test_one_request_is_analysed_with_a_word_of_caution() -> None:
    """No reuse, no duration, no error."""
    analysis = analyse(
        read(trace_of([request([1, 2])])),
        Machine(device_tokens=100, kv_bytes_per_token=10),
    )
    assert analysis.verdict.answer is Answer.DOES_NOT_HELP
    assert any("Only 1 request(s)" in note for note in analysis.notes)
