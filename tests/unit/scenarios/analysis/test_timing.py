"""When simulated users begin their requests."""

import numpy as np

from scenarios.analysis.timing import played


def times(sessions: list[int], gaps_s: list[float], order: list[int], starts_s: list[float]) -> list[float]:
    """Play with a service time of 1 s."""
    return list(played(np.array(sessions), np.array(gaps_s), 1.0, order, starts_s))


def test_turns_follow_their_gaps() -> None:
    """One user, one session: each request comes its gap after the one before."""
    assert times([0, 0, 0], [0, 5, 2], [0], [3.0]) == [3, 8, 10]


def test_a_user_goes_on_with_the_next_session_at_the_end_of_the_last_reply() -> None:
    """Sessions 0 and 1 take 1 + 1 and 0 + 1 s; the second user is free first and takes session 2."""
    assert times([0, 1, 0, 2], [0, 0, 1, 0], [0, 1, 2], [0.0, 0.5]) == [0, 0.5, 1, 1.5]


def test_sessions_begin_in_the_order_given() -> None:
    """The order of the file does not matter."""
    assert times([0, 1], [0, 0], [1, 0], [0.0]) == [1, 0]


def test_requests_of_sessions_may_lie_among_each_other() -> None:
    """Gaps are those of the own session."""
    assert times([0, 1, 0, 1], [0, 0, 4, 6], [0, 1], [0.0, 10.0]) == [0, 10, 4, 16]
