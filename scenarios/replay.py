"""Recorded sessions, played again: their lengths, times and sharing as recorded, their words if they were.

A trace of blocks has no words; equal blocks get equal tokens. Inside a session a turn that goes on from another one
continues its prompt to the token; between sessions whole blocks are shared.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scenarios.blocks import BlockWriter, Key
from scenarios.casting import (
    PHASES,
    SETTLED_QUANTILE,
    SLOTS_PER_SETTLING_SESSION,
    Role,
    Sketch,
    closed_sessions,
    open_sessions,
)
from scenarios.errors import ScenarioError
from scenarios.model import Api, Recording, Replay
from scenarios.plan import Plan, Session, Turn
from scenarios.readers import open_trace
from scenarios.shape import BEGINNING, nominal_session_s
from scenarios.tokenizer import PromptTokenizer
from scenarios.trace import Clock, Scope, TraceInfo, TraceRequest

MOST_WARM_UP = 0.25
"""Part of a recording that may be spent on warm-up, when the scenario does not say."""
FILLER_SHARE = 0.1
"""Part of the sessions after the warm-up that only keep the load up, when the scenario does not say."""
_OWN_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Recorded:
    """The sessions of a trace that are played, in order of arrival."""

    info: TraceInfo
    sessions: tuple[tuple[TraceRequest, ...], ...]
    dropped: int
    """Sessions that were left out because they pass `max_context_tokens`."""

    @property
    def starts_s(self) -> list[float]:
        """Return the arrivals, the first one at 0; raise ValueError when they are not recorded."""
        times = [session[0].at_s for session in self.sessions]
        if self.info.clock is not Clock.TRACE or any(at_s is None for at_s in times):
            raise ValueError("no arrivals are recorded")
        known = [at_s for at_s in times if at_s is not None]
        return [at_s - known[0] for at_s in known]


def read_recorded(recording: Recording, tokenizer: PromptTokenizer) -> Recorded:
    """Read the sessions that `recording` asks for; raise ScenarioError when none is left."""
    trace = open_trace(recording.trace)
    sessions: dict[str, list[TraceRequest]] = {}
    for request in trace.requests():
        sessions.setdefault(request.session_id, []).append(_measured(request, recording, tokenizer))
    whole = [tuple(session) for session in sessions.values()]
    if trace.info.clock is Clock.TRACE:
        whole.sort(key=lambda session: session[0].at_s or 0.0)
    most = recording.max_context_tokens
    fitting = [session for session in whole if most is None or _longest(session) <= most]
    if not fitting:
        limit = "" if most is None else f" within {most} tokens; raise `max_context_tokens`"
        raise ScenarioError(f"{recording.trace}: holds no session{limit}")
    return Recorded(trace.info, tuple(fitting[: recording.sessions]), len(whole) - len(fitting))


def replay_plan(scenario: Replay, seed: int, tokenizer: PromptTokenizer, api: Api) -> Plan:
    """Make the plan of a replay; raise ScenarioError when its trace does not say what it needs."""
    recorded = read_recorded(scenario.replay, tokenizer)
    source = _RecordedSource(recorded, scenario.replay, _Scribe(recorded, scenario.replay, seed, tokenizer, api), seed)
    pace, number = scenario.sessions, len(recorded.sessions)
    if pace.concurrency is not None:
        slots = pace.concurrency
        first = slots + math.ceil(slots / SLOTS_PER_SETTLING_SESSION)
        counted = pace.counted or max(1, number - first)
        closed = closed_sessions(source, slots=slots, ramp_s=pace.ramp_s or 0.0, counted=counted)
        return Plan(scenario.name, seed, slots, tuple(closed))
    where = f"scenario {scenario.name}"
    settled_s = float(np.quantile([source.nominal_s(session) for session in recorded.sessions], SETTLED_QUANTILE))
    rate: float | None
    if scenario.arrivals is not None:
        rate = scenario.arrivals.mean_per_s
        times = scenario.arrivals.times(np.random.default_rng([seed, Role.ARRIVALS]))
        warm_up_s = settled_s if pace.warm_up_s is None else pace.warm_up_s
        counted = pace.counted or max(1, number - round(scenario.arrivals.mean_per_s * warm_up_s))
    else:
        starts = _starts(scenario, recorded)
        rate = (number - 1) / starts[-1] if starts[-1] > 0 else None
        times = iter(starts)
        warm_up_s = min(settled_s, MOST_WARM_UP * starts[-1]) if pace.warm_up_s is None else pace.warm_up_s
        later = sum(at_s >= warm_up_s for at_s in starts)
        counted = pace.counted or max(1, later - math.ceil(FILLER_SHARE * later))
    sessions = open_sessions(source, times, counted=counted, warm_up_s=warm_up_s, where=where)
    return Plan(scenario.name, seed, None, tuple(sessions), rate)


def _starts(scenario: Replay, recorded: Recorded) -> list[float]:
    try:
        return [at_s / scenario.replay.speed for at_s in recorded.starts_s]
    except ValueError:
        raise ScenarioError(
            f"scenario {scenario.name}: {scenario.replay.trace} does not say when its sessions arrived; give "
            "`sessions.concurrency` with `ramp_s`, or `arrivals`"
        ) from None


def _measured(request: TraceRequest, recording: Recording, tokenizer: PromptTokenizer) -> TraceRequest:
    """Put in the length of a reply that is recorded as text; raise ScenarioError for a request without lengths."""
    output = request.output_tokens
    if not output and request.reply is not None:
        output = tokenizer.count(request.reply.text)
    if not output or (request.input_tokens is None and not request.messages):
        missing = "its prompt's length" if output else "the length of its reply"
        raise ScenarioError(
            f"{recording.trace}, line {request.line}: the request does not say {missing}; leave it out when converting"
        )
    return request if output == request.output_tokens else replace(request, output_tokens=output)


def _longest(session: Sequence[TraceRequest]) -> int:
    """Return the longest prompt with its reply; of a chat log the parts are added up in letters, 4 to a token."""
    letters, longest = 0, 0
    for request in session:
        letters += sum(len(message.text) for message in request.messages)
        prompt = letters // 4 if request.input_tokens is None else request.input_tokens
        longest = max(longest, prompt + (request.output_tokens or 0))
        letters += 4 * (request.output_tokens or 0)
    return longest


class _RecordedSource:
    """Hands out the recorded sessions in their order; when they run out, again from the first, in other words."""

    def __init__(self, recorded: Recorded, recording: Recording, scribe: _Scribe, seed: int) -> None:
        self._recorded = recorded
        self._recording = recording
        self._scribe = scribe
        self._seed = seed
        self._next = itertools.count()

    def sketch(self, role: Role, index: int) -> Sketch:
        """Take the next session."""
        copy, number = divmod(next(self._next), len(self._recorded.sessions))
        session = self._recorded.sessions[number]
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(role, index)))
        if role is Role.OPENING:
            session = session[: rng.integers(1, len(session), endpoint=True)]
        turns = _timed(session, self._recording, rng)

        def write(start_s: float) -> Session:
            words = self._scribe.write(session, turns, copy)
            name = f"{role.name.lower()}-{self._seed}-{index}"
            return replace(words, session_id=name, phase=PHASES[role], start_s=start_s)

        return Sketch(_nominal_s(turns), write, rng.random())

    def nominal_s(self, session: Sequence[TraceRequest]) -> float:
        """Return about how long `session` lasts."""
        return _nominal_s(_timed(session, self._recording, np.random.default_rng(self._seed)))


def _nominal_s(turns: Sequence[Turn]) -> float:
    return nominal_session_s(Session("", PHASES[Role.COUNTED], tuple(turns)))


def _timed(session: Sequence[TraceRequest], recording: Recording, rng: np.random.Generator) -> list[Turn]:
    """Time the turns: by a recorded pause, else by their recorded time, else by a drawn pause."""
    most = math.inf if recording.max_think_s is None else recording.max_think_s
    turns: list[Turn] = []
    due_s, before = 0.0, session[0]
    for index, request in enumerate(session):
        think_s, at_s = 0.0, None
        if index and request.think_s is not None:
            think_s = min(request.think_s, most) / recording.speed
        elif index and request.at_s is not None and before.at_s is not None:
            due_s += max(0.0, min(request.at_s - before.at_s, most)) / recording.speed
            at_s = round(due_s, 3)
        elif index and recording.think_s is not None:
            think_s = min(recording.think_s.draw(rng), most) / recording.speed
        turns.append(Turn(think_s=round(think_s, 3), max_output_tokens=request.output_tokens or 1, at_s=at_s))
        before = request
    return turns


class _Scribe:
    """Puts words into recorded sessions."""

    def __init__(
        self, recorded: Recorded, recording: Recording, seed: int, tokenizer: PromptTokenizer, api: Api
    ) -> None:
        self._tokenizer = tokenizer
        self._api = api
        self._scripted = recording.reply == "scripted"
        self._scope = recorded.info.scope
        self._block_tokens = recorded.info.block_tokens or _OWN_BLOCK_TOKENS
        self._blocks: Callable[[], BlockWriter] = lambda: BlockWriter(tokenizer, seed, api, self._block_tokens)
        self._writer: BlockWriter | None = None

    def write(self, session: Sequence[TraceRequest], turns: Sequence[Turn], copy: int) -> Session:
        """Write `session`, of which `turns` hold the times; each `copy` of a session has other words."""
        if all(request.messages for request in session):
            return self._logged(session, turns, copy)
        return Session("", PHASES[Role.COUNTED], tuple(self._drawn(session, turns, copy)))

    def _logged(self, session: Sequence[TraceRequest], turns: Sequence[Turn], copy: int) -> Session:
        """Write what was said; the copies of a session are told apart by their first line."""
        system = [message.text for request in session for message in request.messages if message.role == "system"]
        written: list[Turn] = []
        for request, turn in zip(session, turns, strict=True):
            said = [message.text for message in request.messages if message.role != "system"]
            if copy and not written:
                said.insert(0, f"({copy + 1})")
            reply = request.reply.text if request.reply is not None and self._scripted else None
            written.append(self._with_words(replace(turn, after=request.after), "\n\n".join(said), reply))
        bare = Session("", PHASES[Role.COUNTED], tuple(written))
        text = "\n\n".join(system) if system else None
        if self._api == "chat" or text is None:
            return replace(bare, system_text=text)
        return replace(bare, system_token_ids=tuple(self._tokenizer.ids(text)))

    def _with_words(self, turn: Turn, text: str, reply: str | None) -> Turn:
        if self._api == "chat":
            return replace(turn, text=text, reply_text=reply)
        ids = None if reply is None else tuple(self._tokenizer.ids(reply))
        return replace(turn, token_ids=tuple(self._tokenizer.ids(text)), reply_token_ids=ids)

    def _drawn(self, session: Sequence[TraceRequest], turns: Sequence[Turn], copy: int) -> Iterator[Turn]:
        """Draw words of the recorded lengths, from the recorded blocks."""
        self._writer = writer = self._writer or self._blocks()
        heirs = self._heirs(session)
        parents = {heir: parent for parent, heir in heirs.items()}
        for index, (request, turn) in enumerate(zip(session, turns, strict=True)):
            last = index
            while last in heirs:
                last = heirs[last]
            end = heirs.get(index)
            length = _tokens(request) if end is None else _tokens(session[end])
            picks = writer.prompt(self._keys(session[last], length, copy), length)
            begin = 0
            if index in parents:
                parent = session[parents[index]]
                begin = _tokens(parent) + self._reply_tokens(parent, request)
            own = picks[begin : _tokens(request)]
            reply = None
            if end is not None and self._scripted:
                reply = picks[_tokens(request) :][: self._reply_tokens(request, session[end])]
            before = parents.get(index, BEGINNING)
            after = None if before == index - 1 else before
            if self._api == "chat":
                said = None if reply is None else writer.text(reply)
                yield replace(turn, after=after, text=writer.text(own), reply_text=said)
            else:
                ids = None if reply is None else writer.token_ids(reply)
                yield replace(turn, after=after, token_ids=writer.token_ids(own), reply_token_ids=ids)

    def _heirs(self, session: Sequence[TraceRequest]) -> dict[int, int]:
        """Map a turn to the one that goes on from it: the first whose prompt begins with all its whole blocks."""
        heirs: dict[int, int] = {}
        for index, request in enumerate(session):
            parent = index - 1 if request.after is None else request.after
            if parent < 0 or parent in heirs:
                continue
            whole = _tokens(session[parent]) // self._block_tokens
            same = request.block_ids[:whole] == session[parent].block_ids[:whole]
            least = _tokens(session[parent]) + (0 if self._scripted else session[parent].output_tokens or 0)
            if same and _tokens(request) > least:
                heirs[parent] = index
        return heirs

    def _reply_tokens(self, request: TraceRequest, heir: TraceRequest) -> int:
        """Return how much of a reply joins the history: of a recorded one as much as leaves room for a question."""
        return min(request.output_tokens or 0, _tokens(heir) - _tokens(request) - 1)

    def _keys(self, request: TraceRequest, tokens: int, copy: int) -> list[Key]:
        """Return the blocks of a prompt, as far as `tokens`; what no block is recorded for is the session's own."""
        session = int.from_bytes(hashlib.blake2b(request.session_id.encode(), digest_size=8).digest(), "big")
        blocks = math.ceil(tokens / self._block_tokens)
        scope = (0,) if self._scope is Scope.GLOBAL else (1, session)
        keys = [(*scope, copy, number & (2**64 - 1)) for number in request.block_ids[:blocks]]
        return keys + [(2, session, copy, number) for number in range(len(keys), blocks)]


def _tokens(request: TraceRequest) -> int:
    return request.input_tokens or 1
