"""What a cache that never evicts has of each prompt of a plan, to the page: reckoned anew, apart from the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pandas as pd

from scenarios.plan import Plan, Session, Turn

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Reckoned:
    """One request of a plan of token ids, in the order in which requests were sent."""

    session_id: str
    turn: int
    prompt_tokens: int
    cached_tokens: int


def page_exact(plan: Plan, records: pd.DataFrame, page_tokens: int) -> list[Reckoned]:
    """Reckon every request that was sent, one after the other; what the model said counts as words of its own.

    A prompt hits as far as its whole pages begin an earlier prompt or its reply, but never its last token. The last
    token of a reply was not fed back, so it is in no cache.
    """
    sessions = {session.session_id: session for session in plan.sessions}
    unknown = count(-1, -1)
    told: dict[str, list[Ids]] = {}
    cached: list[Ids] = []
    reckoned = []
    for record in records.sort_values("sent_ns").to_dict("records"):
        session = sessions[str(record["session_id"])]
        turn = session.turns[record["turn"]]
        prompt = (*_before(session, turn, told.setdefault(session.session_id, [])), *_ids(turn.token_ids))
        hit = max((_common(prompt, other) for other in cached), default=0)
        pages = min(hit, len(prompt) - 1) // page_tokens
        reckoned.append(Reckoned(session.session_id, int(record["turn"]), len(prompt), pages * page_tokens))
        said = tuple(next(unknown) for _ in range(record["output_tokens"]))
        cached.append((*prompt, *said[:-1]))
        whole = record["status"] == "ok"
        told[session.session_id].append((*prompt, *((whole and turn.reply_token_ids) or said)))
    return reckoned


def _before(session: Session, turn: Turn, told: Sequence[Ids]) -> Ids:
    before = len(told) - 1 if turn.after is None else turn.after
    return _ids(session.system_token_ids) if before < 0 else told[before]


def _ids(token_ids: Ids | None) -> Ids:
    return token_ids or ()


def _common(one: Ids, other: Ids) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
