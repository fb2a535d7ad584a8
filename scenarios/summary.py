"""What a plan amounts to before anything is run: requests, prompt lengths, and the tokens that stay alive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np
import numpy.typing as npt

from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session
from scenarios.shape import BEGINNING, nominal_session_s
from scenarios.tokenizer import PromptTokenizer

TEMPLATE_TOKENS = 5
"""What a chat template adds to a message, about; token plans have no template."""

Ids = npt.NDArray[np.uint32]

_TEMPLATE: Ids = np.full(TEMPLATE_TOKENS, 2**32 - 1, dtype=np.uint32)
_UNKNOWN = 2**31
"""Ids from here on stand for words that the model has yet to say: each is like no other."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The counted sessions of a plan in figures. In chat plans the template's tokens are an estimate."""

    scenario: str
    seed: int
    concurrency: int | None
    """Sessions at a time; None for an open plan."""
    rate_per_s: float | None
    """Sessions that begin in a second; None for a closed plan."""
    live_sessions: float
    """The concurrency; of an open plan an estimate, rate x length of a session at about 50 tokens a second."""
    sessions: int
    requests: int
    mean_prompt_tokens: float
    max_prompt_tokens: int
    max_context_tokens: int
    """The longest prompt with its reply: the context length that the engine must have."""
    mean_output_tokens: float
    tokens_per_session: float
    """KV that a live session holds for itself, on average over its turns."""
    shared_tokens: int
    """KV of what several sessions begin with, each prefix once: system prompts, examples, documents."""
    working_set_tokens: int
    """KV that the live sessions hold at a time: live sessions x tokens per session, shared prefixes once."""
    unique_tokens: int
    """KV of all counted sessions: what a cache would have to hold to lose nothing."""
    reusable_share: float
    """Share of the prompt tokens that an endless cache would save."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One session's prompts in tokens. Prompts that others go on from are beginnings of those."""

    session: int
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    ends: tuple[Ids, ...]
    """The prompts that no other goes on from."""
    unknown: int
    """Tokens in them that the model has yet to say."""


def describe(plan: Plan, tokenizer: PromptTokenizer) -> PlanSummary:
    """Measure the counted sessions of `plan`; raise ScenarioError when it has none."""
    counted = [session for session in plan.sessions if session.phase is Phase.COUNTED]
    if not counted:
        raise ScenarioError(f"the plan of {plan.scenario} has no counted session; make it again")
    writer = _Writer(tokenizer)
    paths = [writer.path(number, session) for number, session in enumerate(counted)]
    tree = _Tree(paths)

    prompts = [tokens for path in paths for tokens in path.prompts]
    outputs = [tokens for path in paths for tokens in path.outputs]
    fresh = tree.tokens - sum(path.unknown for path in paths)
    own = fmean(
        prompt + output - min(prompt, tree.shared_with_others[path.session])
        for path in paths
        for prompt, output in zip(path.prompts, path.outputs, strict=True)
    )
    live = float(plan.concurrency or (plan.rate_per_s or 0.0) * fmean(map(nominal_session_s, counted)))
    return PlanSummary(
        scenario=plan.scenario,
        seed=plan.seed,
        concurrency=plan.concurrency,
        rate_per_s=plan.rate_per_s,
        live_sessions=live,
        sessions=len(counted),
        requests=len(prompts),
        mean_prompt_tokens=fmean(prompts),
        max_prompt_tokens=max(prompts),
        max_context_tokens=max(map(sum, zip(prompts, outputs, strict=True))),
        mean_output_tokens=fmean(outputs),
        tokens_per_session=own,
        shared_tokens=tree.shared_tokens,
        working_set_tokens=round(live * own) + tree.shared_tokens,
        unique_tokens=fresh + sum(outputs),
        reusable_share=1 - fresh / sum(prompts),
    )


class _Writer:
    """Writes the prompts of sessions as ids."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self._tokenizer = tokenizer
        self._next_unknown = _UNKNOWN

    def path(self, number: int, session: Session) -> _Path:
        """Write the session number `number`."""
        beginning = tuple(self._message(session.system_text, session.system_token_ids))
        asked: list[tuple[Ids, ...]] = []
        answered: list[tuple[Ids, ...]] = []
        continued: set[int] = set()
        unknown = {}
        for index, turn in enumerate(session.turns):
            before = index - 1 if turn.after is None else turn.after
            history = beginning if before == BEGINNING else answered[before]
            continued.add(before)
            asked.append((*history, *self._message(turn.text, turn.token_ids)))
            scripted = tuple(self._message(turn.reply_text, turn.reply_token_ids))
            unknown[index] = 0 if scripted else turn.max_output_tokens
            own = () if scripted else (*([_TEMPLATE] if turn.text is not None else []), self._unknown(unknown[index]))
            answered.append((*asked[index], *scripted, *own))
        return _Path(
            session=number,
            prompts=tuple(sum(map(len, parts)) for parts in asked),
            outputs=tuple(turn.max_output_tokens for turn in session.turns),
            ends=tuple(np.concatenate(parts) for index, parts in enumerate(asked) if index not in continued),
            unknown=sum(tokens for index, tokens in unknown.items() if index in continued),
        )

    def _message(self, text: str | None, token_ids: tuple[int, ...] | None) -> Iterator[Ids]:
        if token_ids is not None:
            yield np.array(token_ids, dtype=np.uint32)
        elif text is not None:
            yield _TEMPLATE
            yield np.array(self._tokenizer.ids(text), dtype=np.uint32)

    def _unknown(self, tokens: int) -> Ids:
        self._next_unknown += tokens
        return np.arange(self._next_unknown - tokens, self._next_unknown, dtype=np.uint32)


class _Tree:
    """The prefix tree of all prompts, as far as its size tells what is shared.

    In sorted order, two neighbours share as much as any two that lie around them; so the neighbours tell all.
    """

    def __init__(self, paths: list[_Path]) -> None:
        ends = [(end.astype(">u4").tobytes(), end, path.session) for path in paths for end in path.ends]
        ends.sort(key=lambda end: end[0])
        lengths = [len(end) for _, end, _ in ends]
        common = [_common(one, other) for (_, one, _), (_, other, _) in pairwise(ends)]
        self.tokens = sum(lengths) - sum(common)
        """Tokens of the tree."""

        owners = [session for _, _, session in ends]
        before = _with_other_owner(common, owners)
        after = _with_other_owner(common[::-1], owners[::-1])[::-1]
        shared = [max(pair) for pair in zip(before, after, strict=True)]
        self.shared_tokens = sum(shared) - sum(map(min, common, shared, shared[1:]))
        """Tokens of the tree that more than one session has."""
        self.shared_with_others: dict[int, int] = {}
        """How far each session's prompts begin like those of another."""
        for owner, tokens in zip(owners, shared, strict=True):
            self.shared_with_others[owner] = max(tokens, self.shared_with_others.get(owner, 0))


def _common(one: Ids, other: Ids) -> int:
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(differ.argmax()) if differ.any() else length


def _with_other_owner(common: list[int], owners: list[int]) -> list[int]:
    """Return what each has in common with the nearest one before it that has another owner."""
    found = [0]
    for tokens, (before, owner) in zip(common, pairwise(owners), strict=True):
        found.append(tokens if before != owner else min(tokens, found[-1]))
    return found
