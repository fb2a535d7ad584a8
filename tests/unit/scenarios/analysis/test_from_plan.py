"""Plans as streams: histories, replies, branches and simulated times."""

import pytest

from scenarios.analysis import (
    Assumptions,
    Load,
    analyse,
    load_of_plan,
    load_of_scenario,
)
from scenarios.analysis.machine import Machine
from scenarios.catalogue import load_scenario
from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session, Turn

PAGE = 10


def ids(tokens: int, word: int) -> tuple[int, ...]:
    """Write a message of one word."""
    return (word,) * tokens


def session(name: str, *turns: Turn, phase: Phase = Phase.COUNTED, start_s: float = 0.0) -> Session:
    """Make a session with a system prompt of two pages that all share."""
    return Session(name, phase, turns, start_s, system_token_ids=ids(20, 1))


def turn(
    word: int,
    *,
    reply: int | None = None,
    after: int | None = None,
    think_s: float = 0.0,
) -> Turn:
    """Make a turn that says two pages and is answered with one."""
    scripted = None if reply is None else ids(10, reply)
    return Turn(think_s, 10, after=after, token_ids=ids(20, word), reply_token_ids=scripted)


def played(*sessions: Session, concurrency: int | None = 1) -> Load:
    """Return the load of a plan, each request of which takes 1 s."""
    plan = Plan("made", 3, concurrency, sessions)
    return load_of_plan(plan, page_tokens=PAGE, assumed=Assumptions(service_s=1.0))


def hits(load: Load) -> float:
    """Return the hit rate of an endless cache."""
    cache = analyse(load, Machine()).cache
    assert cache is not None
    return cache.curve.hit_rates[-1]


def test_the_models_own_reply_is_found_in_the_cache() -> None:
    """Prompts are 40 and 70 tokens; the second finds 40 + 10 of them."""
    assert hits(played(session("a", turn(5), turn(6)))) == pytest.approx(50 / 110)


def test_a_scripted_reply_takes_the_place_of_the_generated_one_and_is_computed() -> None:
    """The second prompt finds the first one alone: the engine has cached words of its own."""
    assert hits(played(session("a", turn(5, reply=7), turn(6)))) == pytest.approx(40 / 110)


def test_a_branch_goes_on_from_the_turn_it_names() -> None:
    """The third turn asks again after the system prompt: it finds two pages, and does not grow."""
    load = played(session("a", turn(5), turn(6), turn(8, after=-1)))
    assert load.stream.prompt_tokens.tolist() == [40, 70, 40]
    assert hits(load) == pytest.approx((50 + 20) / 150)


def test_sessions_share_their_system_prompt() -> None:
    """Of the second session's first prompt, 20 of 40 tokens are in the cache."""
    assert hits(played(session("a", turn(5)), session("b", turn(6)))) == pytest.approx(20 / 80)


def test_users_take_turns_and_fillers_end_with_the_last_counted_turn() -> None:
    """Two users, 1 s a request: the filler's second turn comes after the last counted one and is left out."""
    load = played(
        session("warm", turn(2), phase=Phase.WARMUP),
        session("late", turn(3), turn(4, think_s=2.0), start_s=0.5),
        session("fill", turn(5), turn(6, think_s=9.0), phase=Phase.FILLER),
        concurrency=2,
    )
    assert load.stream.at_s.tolist() == [0, 0.5, 1, 3.5]
    assert load.stream.counted.tolist() == [False, True, False, True]


def test_recorded_times_wait_for_the_reply_before() -> None:
    """A turn that is due at 0.2 s is sent when the first reply has ended, one that is due at 5 s then."""
    due = [Turn(0.0, 10, at_s=at_s, token_ids=ids(20, 5)) for at_s in (0.0, 0.2, 5.0)]
    assert played(session("a", *due)).stream.at_s.tolist() == [0, 1, 5]


def test_an_open_plan_begins_every_session_at_its_time() -> None:
    """However many are running."""
    load = played(session("a", turn(5)), session("b", turn(6), start_s=0.3), concurrency=None)
    assert load.stream.at_s.tolist() == [0, pytest.approx(0.3)]


def test_a_plan_of_text_needs_a_tokenizer() -> None:
    """With one, text is cut into pages with its template; without, the sentence says what to name."""
    plan = Plan("made", 3, 1, (Session("a", Phase.COUNTED, (Turn(0.0, 5, text="x" * 25),)),))
    with pytest.raises(ScenarioError, match="name the model"):
        load_of_plan(plan, page_tokens=PAGE, assumed=Assumptions())
    load = load_of_plan(
        plan,
        page_tokens=PAGE,
        assumed=Assumptions(),
        encode=lambda text: list(text.encode()),
    )
    assert load.stream.prompt_tokens.tolist() == [30]


def test_a_plan_without_counted_sessions_is_refused() -> None:
    """There would be nothing to judge."""
    with pytest.raises(ScenarioError, match="no counted session"):
        played(session("a", turn(5), phase=Phase.WARMUP))


def test_a_scenario_needs_no_tokenizer_and_its_chat_template_counts() -> None:
    """The control scenario shares nothing, and a rerun gives the same figures."""
    scenario = load_scenario("low-sharing").scaled(counted_sessions=6, concurrency=2)
    first, again = (load_of_scenario(scenario, 4, page_tokens=16, assumed=Assumptions()) for _ in range(2))
    assert first.stream.keys.tolist() == again.stream.keys.tolist()
    assert hits(first) == 0.0
