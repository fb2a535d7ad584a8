"""From the sessions of a plan to the stream that analysis counts on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scenarios.analysis.load import Load
from scenarios.analysis.pages import History, PagedRequest, Unknown, pages_stream
from scenarios.analysis.stream import MAX_BLOCKS, StreamCollector
from scenarios.analysis.text import TEMPLATE_IDS, Encode
from scenarios.analysis.timing import Assumptions, Seconds, played
from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session, Turn


def load_of_plan(
    plan: Plan,
    *,
    page_tokens: int,
    assumed: Assumptions,
    encode: Encode | None = None,
    chat_template: bool = False,
    max_blocks: int = MAX_BLOCKS,
) -> Load:
    """Play `plan` on a clock of its own and return what it asks of a cache.

    `encode` is needed for plans of text; `chat_template` adds what a template would to messages that are token ids.
    Raise ScenarioError for a plan of text without `encode`.
    """
    turns = [(number, turn) for number, session in enumerate(plan.sessions) for turn in range(len(session.turns))]
    numbers = np.array([number for number, _ in turns])
    at_s = _times(plan, numbers, assumed)
    counted = np.array([plan.sessions[number].phase is Phase.COUNTED for number in numbers])
    if not counted.any():
        raise ScenarioError(f"the plan of {plan.scenario} has no counted session; make it again")
    end_s = at_s[counted].max()
    writer = _Pages(page_tokens, encode, chat_template)
    collector = StreamCollector(max_blocks)
    begin = 0
    for number, session in enumerate(plan.sessions):
        times_s = at_s[begin : begin + len(session.turns)]
        begin += len(session.turns)
        requests = writer.requests(session, number, times_s)
        collector.add(pages_stream([each for each in requests if each.at_s <= end_s], page_tokens))
    stream = collector.joined()
    return Load(
        source=f"scenario {plan.scenario}, seed {plan.seed}",
        stream=stream.timed(stream.at_s),
        sessions_known=True,
        others_known=True,
        times="simulated",
        notes=(
            f"Times are simulated: {_users(plan)}, each request takes {assumed.service_s:g} s, pauses as planned.",
            f"Pages of {page_tokens} tokens; replies are as long as they may be.",
        ),
    )


def _users(plan: Plan) -> str:
    return "sessions begin as they arrive" if plan.concurrency is None else f"{plan.concurrency} users"


def _times(plan: Plan, numbers: np.ndarray[tuple[int], np.dtype[np.int64]], assumed: Assumptions) -> Seconds:
    gaps_s = np.array([gap for session in plan.sessions for gap in _gaps(session, assumed.service_s)])
    first_starts_s = [session.start_s for session in plan.sessions[: plan.slots]]
    first_starts_s += [0.0] * (plan.slots - len(first_starts_s))
    return played(numbers, gaps_s, assumed.service_s, list(range(len(plan.sessions))), first_starts_s)


def _gaps(session: Session, service_s: float) -> list[float]:
    """Return the seconds between the beginnings of one request and the next: a turn waits for the reply before it."""
    gaps, began_s = [0.0], 0.0
    for turn in session.turns[1:]:
        ready_s = began_s + service_s
        begins_s = ready_s + turn.think_s if turn.at_s is None else max(turn.at_s, ready_s)
        gaps.append(begins_s - began_s)
        began_s = begins_s
    return gaps


class _Pages:
    """Writes the pages of sessions."""

    def __init__(self, page_tokens: int, encode: Encode | None, chat_template: bool) -> None:
        self._page_tokens = page_tokens
        self._encode = encode
        self._chat_template = chat_template
        self._unknown = Unknown()

    def requests(self, session: Session, number: int, times_s: Seconds) -> list[PagedRequest]:
        beginning = self._message(History(self._page_tokens), session.system_text, session.system_token_ids)
        counted = session.phase is Phase.COUNTED
        histories: list[History] = []
        requests = []
        for index, turn in enumerate(session.turns):
            before = index - 1 if turn.after is None else turn.after
            history = beginning if before < 0 else histories[before]
            prompt = self._message(history, turn.text, turn.token_ids)
            own_words = self._unknown.ids(
                min(turn.cancel_after_tokens or turn.max_output_tokens, turn.max_output_tokens)
            )
            cached = prompt.extended(own_words)
            histories.append(self._after_reply(prompt, cached, turn))
            requests.append(PagedRequest(float(times_s[index]), number, prompt, cached, counted))
        return requests

    def _after_reply(self, prompt: History, cached: History, turn: Turn) -> History:
        """A scripted reply takes the place of the model's own, whose pages are then never asked for again."""
        if turn.reply_text is None and turn.reply_token_ids is None:
            return cached
        return self._message(prompt, turn.reply_text, turn.reply_token_ids)

    def _message(self, history: History, text: str | None, token_ids: Sequence[int] | None) -> History:
        if token_ids is not None:
            return (history.extended(TEMPLATE_IDS) if self._chat_template else history).extended(token_ids)
        if text is None:
            return history
        if self._encode is None:
            raise ScenarioError("the plan is text and no tokenizer is given; name the model, whose tokenizer counts it")
        return history.extended(TEMPLATE_IDS).extended(self._encode(text))
